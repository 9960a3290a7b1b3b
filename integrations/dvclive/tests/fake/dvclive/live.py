import copy
import csv
import json
import logging
import math
import os
import shutil
from pathlib import Path

from dvclive.repository import EXPERIMENTS, find, get_dvc_repo
from dvclive.serialize import dump_yaml, load_yaml
from dvclive.studio import get_dvc_studio_config, post_to_studio

logger = logging.getLogger("dvclive")


class Live:
    def __init__(
        self,
        dir="dvclive",  # noqa: A002
        resume=False,
        report=None,
        save_dvc_exp=True,
        dvcyaml="dvc.yaml",
        cache_images=False,
        exp_name=None,
        exp_message=None,
        monitor_system=False,
    ):
        if report not in (None, "html", "notebook", "md"):
            raise ValueError(f"`report` can only be `None`, `auto`, `html`, `notebook` or `md`. Got {report} instead.")
        self.summary = {}
        self.is_monitoring = monitor_system
        self._dir, self._dvcyaml = dir, dvcyaml
        self._save_dvc_exp = save_dvc_exp
        self._step = None
        self._params, self._metrics, self._artifacts = {}, {}, {}
        self._exp_name, self._exp_message = exp_name, exp_message
        self._repo_url = None
        self._dvc_repo = None
        self._init_dvc()
        os.makedirs(self.dir, exist_ok=True)
        if resume:
            self._params.update(load_yaml(self.params_file) if os.path.isfile(self.params_file) else {})
            if os.path.exists(self.metrics_file):
                self.summary = json.loads(Path(self.metrics_file).read_text("utf-8"))
            self._step = self.summary.get("step", 0) + 1
        else:
            self._init_cleanup()
        self._studio_events_to_skip = set()
        self._dvc_studio_config = {}
        self._studio_queue = None
        self._init_studio()

    def _init_cleanup(self):
        shutil.rmtree(Path(self.plots_dir, "metrics"), ignore_errors=True)
        for file in (self.metrics_file, self.params_file, os.path.join(self.dir, "dvc.yaml")):
            Path(file).unlink(missing_ok=True)

    def _init_dvc(self):
        self._dvc_repo = get_dvc_repo()
        self._dvc_file = self._init_dvc_file()
        if self._exp_name in EXPERIMENTS:
            logger.warning("Experiment conflicts with existing experiment '%s'.", self._exp_name)
            self._exp_name = None
        self._exp_name = self._exp_name or f"random-{len(EXPERIMENTS)}"
        if find(".git") is None and self._save_dvc_exp:
            logger.warning("Can't save experiment without a Git Repo.")
            self._save_dvc_exp = False

    def _init_dvc_file(self):
        if not self._dvcyaml or os.path.basename(self._dvcyaml) == "dvc.yaml":
            return self._dvcyaml or "dvc.yaml"
        raise ValueError("`dvcyaml` path must have filename 'dvc.yaml'")

    def _init_studio(self):
        self._dvc_studio_config = get_dvc_studio_config(self)
        if self._dvc_studio_config:
            post_to_studio(self, "start")
        else:
            self._studio_events_to_skip |= {"start", "data", "done"}

    dir = property(lambda self: self._dir)
    dvc_file = property(lambda self: self._dvc_file)
    params_file = property(lambda self: os.path.join(self.dir, "params.yaml"))
    metrics_file = property(lambda self: os.path.join(self.dir, "metrics.json"))
    plots_dir = property(lambda self: os.path.join(self.dir, "plots"))
    artifacts_dir = property(lambda self: os.path.join(self.dir, "artifacts"))

    @property
    def step(self):
        return self._step or 0

    @step.setter
    def step(self, value):
        self._step = value

    def log_metric(self, name, val, timestamp=False, plot=True):
        if not isinstance(val, (int, float, str)):
            raise TypeError(f"Data '{name}' has not supported type {type(val)}")
        if not isinstance(val, str) and not math.isfinite(val):
            val = str(val)
        self._metrics[name] = val
        file = Path(self.plots_dir, "metrics", f"{name}.tsv")
        file.parent.mkdir(parents=True, exist_ok=True)
        is_new = not file.exists()
        with open(file, "a", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened, delimiter="\t", lineterminator=os.linesep)
            writer.writerows([["step", os.path.basename(name)]] * is_new + [[self.step, val]])
        branch = self.summary = copy.deepcopy(self.summary)
        *folders, last = name.split("/")
        for folder in folders:
            branch = branch.setdefault(folder, {})
        branch[last] = val

    def log_params(self, params):
        self._params.update(params)
        dump_yaml(self._params, self.params_file)

    def log_artifact(self, path, type=None, name=None, desc=None, labels=None, meta=None, copy=False, cache=True):  # noqa: A002
        if not isinstance(path, (str, Path)):
            raise TypeError(f"Data '{path}' has not supported type {type(path)}")
        if self._dvc_repo is None:
            logger.warning("A DVC repo is required to log artifacts. Skipping `log_artifact(%s)`.", path)
            return
        if cache:
            self._dvc_repo.added.append(path)
        self._artifacts[name] = {"path": path, "type": type}

    def make_summary(self):
        if self._step is not None:
            self.summary["step"] = self.step
        Path(self.metrics_file).write_text(json.dumps(self.summary), "utf-8")

    def make_dvcyaml(self):
        """As the real one, it adds what is there again if the file lies in the folder of the run."""
        found = load_yaml(self.dvc_file) if os.path.exists(self.dvc_file) else {}
        folder = os.path.relpath(self.dir, os.path.dirname(os.path.abspath(self.dvc_file))) + "/"
        for kind, file in (("params", self.params_file), ("metrics", self.metrics_file), ("plots", self.plots_dir)):
            entry = os.path.relpath(file, os.path.dirname(os.path.abspath(self.dvc_file)))
            found[kind] = [other for other in found.get(kind, []) if folder not in other] + [entry]
        artifacts = {name: other for name, other in found.pop("artifacts", {}).items() if folder not in other["path"]}
        ours = {name: {**about, "path": os.path.relpath(about["path"])} for name, about in self._artifacts.items()}
        dump_yaml({**found, **({"artifacts": artifacts | ours} if artifacts | ours else {})}, self.dvc_file)

    def make_report(self):
        pass

    def post_data_to_studio(self):
        post_to_studio(self, "data")

    def sync(self):
        self.make_summary()
        if self._dvcyaml:
            self.make_dvcyaml()
        self.make_report()
        self.post_data_to_studio()

    def next_step(self):
        self.sync()
        self.step += 1

    def end(self):
        if "step" in self.summary:
            self.step = self.summary["step"]
        self.sync()
        if self._save_dvc_exp:
            EXPERIMENTS[self._exp_name] = copy.deepcopy(self.summary)
        post_to_studio(self, "done")
