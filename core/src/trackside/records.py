"""What is known of a run, free of any tracker: the run itself, its records, and what trackers are told of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from trackside.values import describe, flatten, redact

Status = Literal["finished", "failed", "killed", "pruned"]
Kind = Literal["log", "evaluate", "predict", "artifact", "finished"]

PICKLES_OF_ARGUMENTS = ("training_args.bin",)


class Point(NamedTuple):
    """Numbers that belong together: `values` by key, at an optimizer step, in Unix seconds of the loop's clock."""

    values: Mapping[str, int | float]
    step: int
    epoch: float | None
    time: float


class Artifact(NamedTuple):
    """A file or folder on disk that belongs to a run."""

    path: str
    name: str
    kind: Literal["checkpoint", "model", "file"] = "checkpoint"
    step: int = 0

    def files(self) -> Iterator[tuple[str, str]]:
        """Each file with its name below the artifact, with forward slashes; of a single file that is its own name.

        The pickle of all arguments, secrets included, is left out.
        """
        if os.path.isfile(self.path):
            yield self.path, os.path.basename(self.path)
        for folder, folders, names in os.walk(self.path):
            folders.sort()
            for name in sorted(names):
                if name not in PICKLES_OF_ARGUMENTS:
                    file = os.path.join(folder, name)
                    yield file, os.path.relpath(file, self.path).replace(os.sep, "/")


class Record(NamedTuple):
    """One entry of a run's sequence; `values` are plain, flat and redacted, under the names that the loop gave them."""

    kind: Kind
    step: int
    epoch: float | None
    time: float
    values: Mapping[str, Any] = {}
    artifact: Artifact | None = None
    status: Status | None = None


class Limits(NamedTuple):
    """What a tracker takes, as data. None means that it has no such limit.

    Attributes:
        key: the characters of a key, as the inside of a regular expression's `[...]`; others become `_`.
        key_length: characters of a key; longer ones are cut and end in a hash.
        key_is_path: whether a key is a path, which has to lead downwards, with no empty step in it.
        param_value: characters of a parameter written as text; longer ones are cut visibly.
        params_per_call: parameters in one `log_params`.
        points_per_call: values in one `log_points`, over all its points.
        text: characters of one `log_text`.
    """

    key: str | None = None
    key_length: int | None = None
    key_is_path: bool = False
    param_value: int | None = None
    params_per_call: int | None = None
    points_per_call: int | None = None
    text: int | None = None


@dataclass(frozen=True)
class Run:
    """A run as a tracker is told of it: who it is, what it was started with, and where it stands.

    Attributes:
        id: unique, made once, the same when the run is continued.
        name: readable and unique.
        project: what the user calls the whole of his runs, if he says so.
        args: the arguments of the loop; `model_config` and `peft_config` those of the model. Plain and redacted.
        num_parameters: how many numbers the model consists of, if it says so.
        source: `command`, `python`, and `git_commit` where there is one.
        step: the optimizer step at which it begins now, above 0 after a resume.
        tracker_id: this tracker's own id of the run if it is continued, else None.
        position: what its `flush` has returned of where it was when all before this run's next record was safe.
    """

    id: str
    name: str
    output_dir: str
    project: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    model_config: Mapping[str, Any] = field(default_factory=dict)
    peft_config: Mapping[str, Any] = field(default_factory=dict)
    num_parameters: int | None = None
    source: Mapping[str, str] = field(default_factory=dict)
    trial_name: str | None = None
    trial_params: Mapping[str, Any] | None = None
    step: int = 0
    time: float = 0.0
    tracker_id: str | None = None
    position: Any = None

    @property
    def params(self) -> dict[str, Any]:
        """All parameters under one roof; an argument of the loop wins over one of the model's config."""
        params = {**self.model_config, **self.args}
        if self.peft_config:
            params["peft_config"] = self.peft_config
        return params

    def origin(self, tracker_id: str | None) -> dict[str, Any]:
        """Where the run comes from that a tracker knows by this id, of which trial, and how large its model: flat."""
        about = {"run": self.id, **self.source}
        if self.tracker_id not in (None, tracker_id):
            about["continues"] = str(self.tracker_id)
        found: dict[str, Any] = {f"trackside/{name}": text for name, text in about.items()}
        if self.trial_name is not None:
            found["trial/name"] = self.trial_name
            found |= {f"trial/{name}": value for name, value in flatten(self.trial_params or {}).items()}
        return found if self.num_parameters is None else {**found, "model/num_parameters": self.num_parameters}

    @classmethod
    def gather(cls, args: Any, state: Any, model: Any = None) -> Run:
        """What is known of a run when its first event arrives; continues the one that `state` carries."""
        now = time.time()
        carried = carried_by(state)
        output_dir = str(argument(args, "output_dir") or ".")
        trial_name = _public(getattr(state, "trial_name", None))
        return cls(
            id=carried.get("run") or new_id(),
            name=carried.get("name") or _name(args, output_dir, trial_name, now),
            output_dir=output_dir,
            project=_public(argument(args, "project")),
            args=_params(args),
            model_config=_params(getattr(model, "config", None)),
            peft_config=_params(getattr(model, "peft_config", None)),
            num_parameters=_num_parameters(model),
            source=_source(),
            trial_name=trial_name,
            trial_params=_params(state.trial_params) or None,
            step=state.global_step,
            time=now,
        )


def _num_parameters(model: Any) -> int | None:
    """The number of parameters of a model that tells it as transformers' do, or that has parameters as torch's do."""
    try:
        if hasattr(model, "num_parameters"):
            return int(model.num_parameters())
        return sum(int(parameter.numel()) for parameter in model.parameters())
    except Exception:  # no such model, or one that is not loaded yet
        return None


STATE_KEY = "trackside"


def carried_by(state: Any) -> dict[str, Any]:
    """What a state, perhaps read from a checkpoint, knows of its run: `{"run", "name", "trackers": {name: id}}`."""
    carried = state.stateful_callbacks.get(STATE_KEY) if isinstance(state.stateful_callbacks, dict) else None
    return carried if isinstance(carried, dict) else {}


def _source() -> dict[str, str]:
    """Where a run comes from: the command, redacted, the commit of the working directory, and the Python."""
    import shlex

    source = {"command": shlex.join(_public(sys.argv)), "python": sys.version.split()[0]}
    commit = _commit()
    return {**source, "git_commit": commit} if commit else source


def _commit() -> str | None:
    import subprocess

    try:
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=2, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, no repository, or none that answers
        return None
    return asked.stdout.strip()


def new_id() -> str:
    """An id for a run: 12 hexadecimal digits."""
    return os.urandom(6).hex()


def argument(args: Any, name: str) -> Any:
    """An argument of the loop, whatever holds them; None if there is none of this name."""
    return args.get(name) if isinstance(args, Mapping) else getattr(args, name, None)


def _name(args: Any, output_dir: str, trial_name: str | None, now: float) -> str:
    """The user's name, or the output folder with time and a few random digits: runs of one script differ."""
    given = argument(args, "run_name")
    if given and given != output_dir:  # transformers once set the one to the other
        return f"{_public(given)}-{trial_name}" if trial_name else str(_public(given))
    folder = _public(os.path.basename(os.path.abspath(output_dir)))
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    return "-".join(str(part) for part in (folder, trial_name, stamp, os.urandom(2).hex()) if part)


def _public(value: Any) -> Any:
    return redact(describe(value))


def _params(source: Any) -> dict[str, Any]:
    """Parameters as plain, redacted data, from a mapping, a dataclass, a config with `to_dict()` or any namespace."""
    if source is None:
        return {}
    params = describe(source)
    if not isinstance(params, dict):
        params = describe(getattr(source, "__dict__", {}))
    public: dict[str, Any] = redact({key: value for key, value in params.items() if not key.startswith("_")})
    return public
