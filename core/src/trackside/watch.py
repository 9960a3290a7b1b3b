"""How a training has ended, where its loop has no event for it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

Close = Callable[[BaseException | None], None]

_close: Close = lambda exception: None  # noqa: E731 - until there is something to close
_first_hook = _hook_before = sys.excepthook
_has_come = _is_telling = False
_coming_first = threading.Lock()


@contextmanager
def watch() -> Iterator[None]:
    """Tell the reporters at once if what is in the `with` block is left by an exception, which goes on.

    For loops that have no event for it, such as `transformers.Trainer`; a loop of ours tells by itself. Without it a
    run that was left is closed by the end of the program or the next training, and a pruned trial counts as failed.

        with trackside.watch():
            trainer.train()
    """
    try:
        yield
    except BaseException as exception:
        _close(exception)
        raise


def mind_the_end(close: Close) -> None:
    """Let `close` hear of an error that nobody catches, and of SIGTERM, before the program ends; and of its exit.

    SIGTERM is minded only from the main thread, and only where nobody else has a handler for it.
    """
    global _close
    _close = close
    come_first()
    import signal

    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _tell_of_termination)


def come_first() -> None:
    """Hear of errors and of the exit before those who have put hooks of their own since: SDKs do when they start."""
    global _first_hook, _hook_before, _has_come
    with _coming_first:
        atexit.unregister(_tell_of_exit)
        atexit.register(_tell_of_exit)
        if sys.excepthook is not _tell_of_uncaught:
            if not _has_come:
                _first_hook, _has_come = sys.excepthook, True
            _hook_before, sys.excepthook = sys.excepthook, _tell_of_uncaught


@contextmanager
def aside() -> Iterator[None]:
    """Let an SDK that starts find the excepthook that was there before ours, which it is going to call from its own."""
    with _coming_first:
        if sys.excepthook is _tell_of_uncaught:
            sys.excepthook = _hook_before
    try:
        yield
    finally:
        come_first()


def _tell_of_exit() -> None:
    _close(None)


def _tell_of_uncaught(kind: type[BaseException], exception: BaseException, trace: TracebackType | None) -> None:
    global _is_telling
    if _is_telling:  # a hook that was put over this one hands the error back
        _first_hook(kind, exception, trace)
        return
    _is_telling = True
    try:
        _close(exception)
    finally:
        _hook_before(kind, exception, trace)
        _is_telling = False


def _tell_of_termination(number: int, frame: FrameType | None) -> None:
    """Close what is open as killed, then end as if nobody had minded the signal."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _close(SystemExit(128 + number))
    finally:
        os.kill(os.getpid(), number)
