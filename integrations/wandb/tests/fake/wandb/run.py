# ruff: noqa: A002 - the names are those of the real one
"""A run: what it refuses, and what it has taken."""

import json
import os
import uuid

RUNS = []
ACTIVE = {}


class Config(dict):
    def update(self, d, allow_val_change=None):
        from wandb.errors import Error

        for key, value in d.items():
            key = key.strip("-")
            if not allow_val_change and self.get(key, value) != value:
                raise Error(f"Attempted to change value of key {key!r}")
            self[key] = json.loads(json.dumps(value, allow_nan=False))


class Summary(dict):
    def update(self, d):
        for key, value in d.items():
            if not isinstance(key, str):
                raise TypeError(f"{key!r} is no key")
            self[key] = value


class Run:
    def __init__(self, id, mode, name, project, entity, group, job_type, tags, notes, folder, resume, settings):
        from wandb.errors import UsageError

        if id is not None and (not id or set(id) & set(":;,#?/'")):
            raise UsageError(f"Invalid run ID {id!r}")
        if set(project) & set("/\\#?%:") or len(project) > 128:
            raise UsageError(f"Invalid project name {project!r}")
        if any(len(tag) > 64 for tag in tags or ()):
            raise UsageError("a tag has more than 64 characters")
        self.id = id or uuid.uuid4().hex[:8]
        self.name, self.project, self.entity = name, project, entity or ""
        self.group, self.job_type, self.notes, self.resume = group, job_type, notes, resume
        self.tags = tuple(tags or ())
        self.disabled, self.offline = mode == "disabled", mode == "offline"
        self.dir = os.path.join(folder, "wandb", f"offline-run-{uuid.uuid4().hex[:8]}-{self.id}", "files")
        self.settings = type("Settings", (), settings)
        self.config, self.summary = Config(), Summary()
        self.rows, self.metrics, self.artifacts, self.files = [], {}, [], {}
        self.synced = {}  # the latest values of step metrics, which every row has
        self.exit_code = None
        if not self.disabled:
            os.makedirs(self.dir)

    @property
    def url(self):
        return None if self.offline else f"https://wandb.test/{self.project}/runs/{self.id}"

    def define_metric(self, name, step_metric=None, step_sync=None, hidden=None, summary=None, overwrite=None):
        self._check_open()
        self.metrics[name] = step_metric

    def log(self, data, step=None, commit=None):
        self._check_open()
        if any(not isinstance(key, str) or not key for key in data):
            raise TypeError("Key values passed to `wandb.log` must be strings.")
        for value in data.values():
            if not isinstance(value, (int, float, str)):
                raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
            str(value).encode("utf-8")
        if step is not None and step < len(self.rows):
            return  # as the real one does it: a warning at most
        self.synced |= {name: data[name] for name in self.metrics.values() if name in data}
        self.rows.append({**self.synced, **data})

    def log_artifact(self, artifact_or_path, name=None, type=None, aliases=None, tags=None):
        self._check_open()
        artifact_or_path.aliases = ["latest", *(aliases or ())]
        self.artifacts.append(artifact_or_path)

    def save(self, glob_str, base_path=None, policy="live"):
        self._check_open()
        with open(glob_str, encoding="utf-8") as file:
            self.files[os.path.relpath(glob_str, base_path)] = file.read()

    def watch(self, models, criterion=None, log="gradients", log_freq=1000, idx=None, log_graph=False):
        models._wandb_hook_names = [log]
        models.hook = lambda: log_freq

    def unwatch(self, models=None):
        del models._wandb_hook_names, models.hook

    def finish(self, exit_code=None):
        import wandb
        from wandb.sdk.lib import module

        if self.exit_code is None:
            self.exit_code = exit_code or 0
            ACTIVE.pop(self.id, None)
        if wandb.run is self:
            module.unset_globals()

    def _check_open(self):
        from wandb.errors import UsageError

        if self.exit_code is not None:
            raise UsageError(f"Run ({self.id}) is finished.")
