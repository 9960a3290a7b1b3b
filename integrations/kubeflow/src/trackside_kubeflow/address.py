"""The address that a TrainJob's pods are given for its status."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_JOB = re.compile(r"/namespaces/([^/]+)/trainjobs/([^/]+)/status/?$")


class Address(NamedTuple):
    """Where the status of one TrainJob is sent to."""

    host: str
    port: int | None
    path: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Take an address apart; raises ValueError for one that a token must not be sent to."""
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError("it does not begin with https://")
        path = parts.path or "/"
        return cls(parts.hostname, parts.port, f"{path}?{parts.query}" if parts.query else path)

    @property
    def job(self) -> tuple[str, str] | None:
        """Namespace and name of the job, if the path says them as the controller's do."""
        match = _JOB.search(self.path)
        return (match[1], match[2]) if match else None
