"""Requests and answers."""

from clearml.backend_api.session.session import CallResult, Session

__all__ = ["CallResult", "Session"]
