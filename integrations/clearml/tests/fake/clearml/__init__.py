"""A stand-in for clearml that refuses what clearml 1.16 and 2.1 refuse, with a server in memory instead of a network.

Names and arguments are those of the real one, which the tests marked `sdk` compare.
"""

from backend import Backend

SERVER = Backend()

from clearml.model import Model, OutputModel  # noqa: E402 - they need the server
from clearml.task import Task  # noqa: E402

__all__ = ["SERVER", "Model", "OutputModel", "Task"]
