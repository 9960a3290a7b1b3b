"""Settings, of which only those are known that the real one knows."""

KNOWN = {
    "base_url",
    "console",
    "finish_timeout",
    "finish_timeout_raises",
    "git_commit",
    "git_remote_url",
    "init_timeout",
    "mode",
    "program",
    "silent",
    "x_disable_meta",
}


class Settings:
    silent = False
    http_proxy = https_proxy = None

    def __init__(self, **values):
        if values.keys() - KNOWN:
            raise ValueError(f"Extra inputs are not permitted: {values.keys() - KNOWN}")
        vars(self).update(values)
