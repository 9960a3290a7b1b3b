"""ClearML's server, asked in requests that answer within seconds."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trackside import Status

RETRIES = {"total": 2, "connect": 2, "read": 0, "redirect": 2, "status": 2, "backoff_factor": 0.5, "backoff_max": 5.0}
TIMEOUT = (5.0, 30.0)  # seconds to connect, and to get an answer
UNREACHABLE = 503
HIGHEST_FINAL_CODE = 500  # what is above, the SDK asks again for ever


class ServerError(RuntimeError):
    """A request that the server has refused, or never got. `code` is that of HTTP."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Server:
    """The server that the SDK is configured for, or where it keeps everything offline.

    The SDK's own session tries 240 times to connect, and the SDK asks it again for ever. Unless a user's code has made
    that before, the SDK uses the one made here, which gives up.
    """

    def __init__(self) -> None:
        from clearml.backend_interface.base import InterfaceBase

        self._session = _session()
        if InterfaceBase._default_session is None:
            InterfaceBase._set_default_session(self._session)

    def send(self, request: Any) -> Any:
        """The answer to a request; None offline."""
        return _checked(self._session.send(request))

    def can_continue(self, task_id: str) -> bool:
        """Whether there is a task of that id which takes more: one that is published does not."""
        from clearml.backend_api.services import tasks

        answer = self.send(tasks.GetAllRequest(id=[task_id], only_fields=["status"], search_hidden=True))
        return any(task.status != tasks.TaskStatusEnum.published for task in answer.response.tasks)

    def models_of(self, task_id: str) -> list[Any]:
        """The models that a task has made, with their names."""
        from clearml.backend_api.services import models

        return list(self.send(models.GetAllRequest(task=[task_id], only_fields=["id", "name"])).response.models)

    def end(self, task_id: str | None, status: Status) -> None:
        """Set how a task has ended."""
        from clearml.backend_api.services import tasks

        requests = {"finished": tasks.CompletedRequest, "failed": tasks.FailedRequest}
        request = requests.get(status, tasks.StoppedRequest)
        self.send(request(task=task_id, force=True, status_reason=status))

    def events_of(self, task: Any) -> Events:
        return Events(self._session, task)


class Events:
    """Adds events to a task under their own iterations and times; each call returns when the server has them.

    A `Logger` sends in the background, now or never, shifted by the task's initial iteration, at the present time.
    """

    def __init__(self, session: Any, task: Any) -> None:
        from clearml.backend_interface.metrics import Metrics

        silent = logging.Logger("trackside_clearml", logging.CRITICAL)  # what fails here is raised
        self._metrics = Metrics(session=session, task=task, storage_uri=None, log=silent)
        self._worker = session.worker
        self._file = Path(task.get_offline_mode_folder(), "metrics.jsonl") if task.is_offline() else None

    def add(self, events: Sequence[Any]) -> None:
        _checked(self._metrics.write_events(list(events), async_enable=False))

    def position(self) -> int | None:
        """Where the file of a session ends; None where a server has the events."""
        if self._file is None:
            return None
        return self._file.stat().st_size if self._file.exists() else 0

    def cut_back(self, position: int) -> None:
        """Take back what was added to a session since then: it is going to be added again."""
        if self._file is not None and self._file.exists():
            os.truncate(self._file, min(position, self._file.stat().st_size))

    def scalar(self, title: str, series: str, value: float, iteration: int, time: float | None = None) -> Any:
        from clearml.backend_interface.metrics.events import ScalarEvent

        return ScalarEvent(title, series, value=value, iter=iteration, timestamp=_milliseconds(time))

    def line(self, text: str, time: float | None = None) -> Any:
        """A line of the console."""
        from clearml.backend_interface.metrics.events import ConsoleEvent

        return ConsoleEvent(text, level="INFO", worker=self._worker, timestamp=_milliseconds(time))


def _milliseconds(time: float | None) -> int | None:
    return None if time is None else round(time * 1000)


def _checked(answer: Any) -> Any:
    if answer is not None and not answer.ok():
        raise ServerError(answer.meta.result_code, answer.meta.result_msg)
    return answer


def _session() -> Any:
    from clearml.backend_api import Session
    from clearml.backend_api.session.defs import MissingConfigError
    from clearml.backend_api.session.session import LoginError
    from clearml.config import config_obj

    class QuickSession(Session):  # type: ignore[misc, valid-type, unused-ignore]
        _session_timeout = TIMEOUT
        _write_session_timeout = TIMEOUT

    try:
        session = QuickSession(initialize_logging=False, config=config_obj, http_retries_config=dict(RETRIES))
    except LoginError as error:
        raise ServerError(_code_of(error), str(error)) from error
    except MissingConfigError:
        raise RuntimeError(
            "it knows no server; type clearml-init, or set CLEARML_API_ACCESS_KEY and CLEARML_API_SECRET_KEY, "
            "or CLEARML_OFFLINE_MODE=1"
        ) from None
    session.send = _answering(session.send)
    return session


def _answering(send: Callable[..., Any]) -> Callable[..., Any]:
    """`send`, which answers also where nothing does, since the SDK would ask once more, for ever."""
    from clearml.backend_api import CallResult
    from clearml.backend_api.session.response import ResponseMeta
    from clearml.backend_api.session.session import LoginError

    def failed(code: int, reason: str) -> Any:
        return CallResult(meta=ResponseMeta.from_raw_data(min(code, HIGHEST_FINAL_CODE), reason))

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = send(*args, **kwargs)
        except (OSError, LoginError) as error:  # OSError: all that requests raises
            return failed(_code_of(error), str(error))
        is_final = answer is None or answer.meta.result_code <= HIGHEST_FINAL_CODE
        return answer if is_final else failed(answer.meta.result_code, answer.meta.result_msg)

    return call


def _code_of(error: Exception) -> int:
    """The HTTP status behind an error: the SDK keeps only its text."""
    code = re.search(r"\(error (\d+) from", str(error))
    return int(code[1]) if code else UNREACHABLE
