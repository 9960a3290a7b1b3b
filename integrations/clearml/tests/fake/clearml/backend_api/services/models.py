"""Requests for models."""

from clearml.backend_api.session.session import Request


class GetAllRequest(Request):
    def __init__(self, only_fields=None, task=None):
        super().__init__("models.get_all", {"task": task, "only_fields": only_fields})
