"""The reporter that writes TensorBoard's event files."""

from __future__ import annotations

import errno
import json
import math
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from trackside import Limits, Point, Reporter, Run, Status, env
from trackside.mapping import Keys
from trackside.values import encodable
from trackside_tensorboard.writer import cut_back, directory_of, import_alone, open_writer, position_of, whole, write

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FLOAT32_MAX = 3.4028234663852886e38
DIRECTORY_NAME = Limits(key=r"\w\-.", key_length=60)  # of 255 bytes, of which one character may take four


class TensorBoardCallback(Reporter):
    """Reports a run to TensorBoard: one directory for each run, one event for each log, in the file at once."""

    name = "tensorboard"
    sdk = "tensorboardX"
    limits = Limits(key=r"\w\-./")  # what tensorboardX itself leaves in a tag
    reopenable = True
    handles = ("tb_writer",)

    tb_writer: Any = env(None)
    """A SummaryWriter of the user's, of tensorboardX or torch: it is logged to and never closed."""
    logging_dir: str | None = env("TENSORBOARD_LOGGING_DIR")
    """The folder in which each run gets a directory of its own; else `args.logging_dir`, else `<output_dir>/runs`."""

    _mark: str | None = None

    def __init__(self, tb_writer: Any = None, **options: Any) -> None:
        super().__init__(tb_writer=tb_writer, **options)

    def import_sdk(self) -> None:
        import_alone()

    def start(self, run: Run) -> str:
        self._about, self._last_step, self._mark = run, run.step, None
        self._is_reopened = self.tracker_id is not None
        if self.tb_writer is not None:
            self.adopted, self.run = True, self.tb_writer
            return directory_of(self.tb_writer)
        continued = self._continued(run)
        directory = continued or self._claim(run)
        if continued and run.position:
            cut_back(continued, run.position)
        is_replayed = run.position is not None and run.step == 0
        is_resumed = continued is not None and not self._is_reopened and not is_replayed
        self.run = open_writer(directory, purge_step=run.step + 1 if is_resumed else None)
        return directory

    def flush(self) -> Any:
        """All that was written is in the file already; where it ends."""
        return None if self.adopted else position_of(self.run)

    def log_points(self, points: Sequence[Point]) -> None:
        """All of them or none, so that a call that has failed can be made again."""
        with whole(self.run):
            for point in points:
                self._write([self._scalar(key, number) for key, number in point.values.items()], point.step, point.time)

    def log_text(self, key: str, text: str, step: int, time: float) -> None:
        self._write([_text(key, text)], step, time)

    def log_params(self, params: Mapping[str, Any]) -> None:
        """The table of the HParams tab, and each source of the parameters as a text."""
        from tensorboardX.summary import hparams

        _, session_start, _ = hparams({key: _hparam(value) for key, value in params.items()}, {})
        about = self._about
        sources = {"args": about.args, "model_config": about.model_config, "peft_config": about.peft_config}
        texts = [_text(tag, _code(source)) for tag, source in sources.items() if source]
        self._write([*session_start.value, *texts], about.step, about.time)

    def finish(self, status: Status) -> None:
        """Only success goes to the HParams tab: it keeps the first status for ever, and a failed run may be resumed."""
        from tensorboardX.summary import hparams

        if not self._is_reopened:
            _, _, session_end = hparams({}, {})
            ends = [_text("status", status), *(session_end.value if status == "finished" else ())]
            self._write(ends, self._last_step, time.time())
        self.run.close()

    def where(self) -> str | None:
        if self.tracker_id is None:
            return None
        folder = self.tracker_id if self.adopted else os.path.dirname(self.tracker_id)
        return f"tensorboard --logdir {shlex.quote(folder)}"

    def is_passing(self, error: Exception) -> bool:
        """A full disk may have room again."""
        return getattr(error, "errno", None) in FULL or super().is_passing(error)

    def _continued(self, run: Run) -> str | None:
        """The directory of the run that is continued, if the user insists on it or it is still there."""
        directory = run.tracker_id
        if directory is None or not (directory == self.resume or os.path.isdir(directory)):
            return None
        return os.path.abspath(directory)

    def _claim(self, run: Run) -> str:
        """A new directory, named like the run; or the one that a process claimed for it before it died."""
        parent = os.fspath(self.logging_dir or run.args.get("logging_dir") or os.path.join(run.output_dir, "runs"))
        if "://" in parent:
            raise ValueError(f"{parent} is no folder of this machine; give tb_writer=SummaryWriter({parent!r}) instead")
        folder = os.path.abspath(os.path.expanduser(parent))
        directory = _make_directory(os.path.join(folder, Keys(DIRECTORY_NAME)(run.name)), mark=f".claimed-by-{run.id}")
        self._mark = os.path.join(directory, f".claimed-by-{run.id}")
        return directory

    def _scalar(self, key: str, number: int | float) -> Any:
        """TensorBoard keeps scalars as 32-bit floats; a finite number beyond them would become an infinity."""
        from tensorboardX.proto.summary_pb2 import Summary

        if math.isfinite(number) and abs(number) > FLOAT32_MAX:
            self.warn_once(("float32", key), "%s draws no number beyond 3.4e38: %s is kept as text.", self.name, key)
            return _text(key, repr(number))
        return Summary.Value(tag=key, simple_value=number)

    def _write(self, values: Sequence[Any], step: int, time: float) -> None:
        self._last_step = step
        write(self.run, values, step, time)
        if self._mark is not None:  # by now it is known elsewhere whose directory this is
            with suppress(OSError):
                os.remove(self._mark)
            self._mark = None


def _make_directory(wanted: str, mark: str) -> str:
    """Make a directory that nobody has made, and mark it: `wanted`, else `wanted-2`, `wanted-3` and so on.

    One that bears the mark already is taken as it is.
    """
    number, directory = 1, wanted
    while not os.path.exists(os.path.join(directory, mark)):
        try:
            os.makedirs(directory)
            open(os.path.join(directory, mark), "x").close()
        except FileExistsError:  # noqa: PERF203 - each try claims a name
            number += 1
            directory = f"{wanted}-{number}"
    return directory


def _text(tag: str, text: str) -> Any:
    from tensorboardX import summary

    return summary.text(tag, encodable(text)).value[0]


def _code(source: Mapping[str, Any]) -> str:
    """JSON as TensorBoard's Markdown shows it unchanged."""
    return f"```json\n{json.dumps(source, indent=2)}\n```"


def _hparam(value: Any) -> Any:
    """What the HParams tab takes: bool, finite float, text, or None for an empty cell."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return float(value) if math.isfinite(value) else str(value)
    return encodable(value if isinstance(value, str) else json.dumps(value))
