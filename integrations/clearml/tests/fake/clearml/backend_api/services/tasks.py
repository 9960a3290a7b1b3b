"""Requests for tasks."""

from clearml.backend_api.session.session import Request


class TaskStatusEnum:
    published = "published"


class GetAllRequest(Request):
    def __init__(self, id=None, only_fields=None, search_hidden=None):  # noqa: A002 - the real name
        super().__init__("tasks.get_all", {"id": id, "only_fields": only_fields, "search_hidden": search_hidden})


class CompletedRequest(Request):
    def __init__(self, task, force=False, status_reason=None):
        super().__init__("tasks.completed", {"task": task, "force": force, "status_reason": status_reason})


class FailedRequest(Request):
    def __init__(self, task, force=False, status_reason=None):
        super().__init__("tasks.failed", {"task": task, "force": force, "status_reason": status_reason})


class StoppedRequest(Request):
    def __init__(self, task, force=False, status_reason=None):
        super().__init__("tasks.stopped", {"task": task, "force": force, "status_reason": status_reason})
