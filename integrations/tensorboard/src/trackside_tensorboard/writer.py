"""Event files that hold an event when the call that wrote it returns."""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


def import_alone() -> None:
    """Import tensorboardX, and not the SDK of Comet, which it imports where that is installed: that patches torch."""
    modules: dict[str, Any] = sys.modules
    is_hidden = modules.setdefault("comet_ml", None) is None
    try:
        import tensorboardX  # noqa: F401
    finally:
        if is_hidden:
            del modules["comet_ml"]


class EventFile:
    """A new event file that is written at once, in the place of tensorboardX's EventFileWriter.

    That one hands events to a queue between processes and a thread: its `flush()` does not wait for them, they are lost
    when the process is killed, and a forked child can hang on the queue. Its files are named by the second, so that a
    second writer overwrites the first. This one has neither queue, thread nor lock, and a name that nobody has.

    A record is, little-endian: length (8 bytes), checksum of that (4), event, checksum of it (4).
    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
    """

    def __init__(self, directory: str) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._directory = directory
        os.makedirs(directory, exist_ok=True)
        self._open()
        self.add_event(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def _open(self) -> None:
        """Readers go through the files of a directory in the order of their names, so these follow time."""
        seconds, nanoseconds = divmod(time.time_ns(), 10**9)
        name = f"events.out.tfevents.{seconds}.{socket.gethostname()}.{nanoseconds:09}.{os.getpid()}"
        path = os.path.join(self._directory, name)
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - open until close()

    def add_event(self, event: Any) -> None:
        from tensorboardX.record_writer import masked_crc32c

        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        checksums = (struct.pack("<I", masked_crc32c(part)) for part in (length, data))
        record = memoryview(b"".join([length, next(checksums), data, next(checksums)]))
        with self.whole():
            while record:
                record = record[self._file.write(record) :]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is written within is in the file, or nothing of it: readers go no further than half an event."""
        begin = self._file.tell()
        try:
            yield
        except BaseException:
            self._file.truncate(begin)
            self._file.seek(begin)
            raise

    def get_logdir(self) -> str:
        return self._directory

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self._file.close()

    def position(self) -> dict[str, Any]:
        return {"file": os.path.basename(self._file.name), "length": self._file.tell()}


def open_writer(directory: str, purge_step: int | None = None) -> Any:
    """A SummaryWriter of tensorboardX on an `EventFile`; what the directory holds from `purge_step` on is hidden."""
    from tensorboardX import FileWriter, SummaryWriter
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    class DirectFileWriter(FileWriter):
        def __init__(self, directory: str) -> None:
            self.event_writer = EventFile(directory)
            self._default_metadata: dict[str, Any] = {}

    class DirectSummaryWriter(SummaryWriter):
        file_writer: Any

        def _get_file_writer(self) -> Any:
            if self.file_writer is None:
                self.file_writer = DirectFileWriter(self.logdir)
                self.all_writers = {self.logdir: self.file_writer}
            return self.file_writer

    writer = DirectSummaryWriter(directory)
    if purge_step is not None:
        writer.file_writer.add_event(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))
    return writer


def whole(writer: Any) -> AbstractContextManager[None]:
    """What is written within is there, or nothing of it; of a writer of the user's that cannot be said."""
    events = getattr(writer.file_writer, "event_writer", None)
    return events.whole() if isinstance(events, EventFile) else nullcontext()


def position_of(writer: Any) -> dict[str, Any]:
    """Where a writer of `open_writer` is: the name of its file, and how many bytes that holds."""
    position: dict[str, Any] = writer.file_writer.event_writer.position()
    return position


def cut_back(directory: str, position: dict[str, Any]) -> None:
    """Remove from a run's directory what was written after `position`, so that it can be written again."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if name == position["file"]:
            os.truncate(path, min(position["length"], os.path.getsize(path)))
        elif name.startswith("events.out.tfevents.") and name > position["file"]:
            os.remove(path)


def directory_of(writer: Any) -> str:
    """The directory of a SummaryWriter that the user has opened."""
    if getattr(writer, "file_writer", None) is None:
        raise TypeError(f"tb_writer takes an open SummaryWriter of tensorboardX or torch, not {writer!r}")
    return os.path.abspath(writer.file_writer.get_logdir())


def write(writer: Any, values: Sequence[Any], step: int, time: float) -> None:
    """Write the values of a summary as one event, which is in the file when this returns."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    event = Event(wall_time=time, step=step, summary=Summary(value=values))
    events = getattr(writer.file_writer, "event_writer", writer.file_writer)
    if type(events).__module__.startswith("tensorboard."):  # torch's SummaryWriter, with message classes of its own
        from tensorboard.compat.proto.event_pb2 import Event as ItsEvent

        events.add_event(ItsEvent.FromString(event.SerializeToString()))
    elif hasattr(events, "_ev_writer"):  # tensorboardX's own, whose flush() does not wait for its queue
        events._ev_writer.write_event(event)
    else:
        events.add_event(event)
    writer.flush()
