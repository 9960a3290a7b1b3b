"""Sends events."""

from clearml.backend_api.session.session import CallResult, SendError


class Metrics:
    def __init__(
        self,
        session,
        task,
        storage_uri,
        storage_uri_suffix="metrics",
        iteration_offset=0,
        log=None,
        for_model=False,
    ):
        self._session = session
        self._task_id = task.id
        self._offset = iteration_offset

    def write_events(self, events, async_enable=True, callback=None, **kwargs):
        if not events:
            return None
        if async_enable:
            raise AssertionError("what is sent in the background may never arrive")
        sent = [event.as_sent(self._task_id, self._offset) for event in events]
        try:
            self._session.send_or_raise("events.add_batch", sent)
        except SendError as error:
            return error.result
        return CallResult(meta=_Ok)


class _Ok:
    result_code = 200
