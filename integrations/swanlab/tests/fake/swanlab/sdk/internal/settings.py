"""Settings, of which only those are known that the real one knows."""

import json
import os
import re
from types import SimpleNamespace

MODES = ("disabled", "online", "local", "offline")
PROBE = {"hardware", "runtime", "requirements", "conda", "git", "swanlab", "monitor"}
KNOWN = {"interactive": None, "probe": PROBE, "terminal": {"proxy_type", "max_length"}}


def check_project(name):
    if not re.fullmatch(r"[0-9a-zA-Z_\-+.]{1,100}", name):
        raise ValueError(f"String should match pattern: {name!r}")


def check_name(text):
    if text is not None and not 1 <= len(text.encode("utf-8").decode("utf-8")) <= 512:
        raise ValueError(f"String should have at most 512 characters: {text!r}")


class Settings:
    def __init__(self, **values):
        if "SWANLAB_PROJECT" in os.environ:
            json.loads(os.environ["SWANLAB_PROJECT"])
        for name, value in values.items():
            if name not in KNOWN or (KNOWN[name] is not None and value.keys() - KNOWN[name]):
                raise ValueError(f"Extra inputs are not permitted: {name}={value}")
        self.given = values
        self.mode = os.environ.get("SWANLAB_MODE", "online")
        self.api_key = os.environ.get("SWANLAB_API_KEY")
        self.api_host = os.environ.get("SWANLAB_API_HOST", "https://api.swanlab.test")
        self.project = SimpleNamespace(name=os.environ.get("SWANLAB_PROJ_NAME"))
        self.experiment = SimpleNamespace(name=os.environ.get("SWANLAB_EXP_NAME"))
        self.probe = self.terminal = None
        self.model_fields_set = set()
        for group in ("probe", "terminal"):
            names = {name for name in KNOWN[group] if f"SWANLAB_{group}_{name}".upper() in os.environ}
            setattr(self, group, SimpleNamespace(model_fields_set=names))
            self.model_fields_set |= {group} if names else set()


def create_settings():
    return Settings()
