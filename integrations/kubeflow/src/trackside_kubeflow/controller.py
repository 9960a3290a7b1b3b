"""The way to the controller: TLS with its own authority, and the token of the job's pods."""

from __future__ import annotations

import json
import ssl
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from trackside_kubeflow.address import Address

ANSWER_SECONDS = 5.0
LONGEST_ANSWER = 1 << 16


class RefusedError(RuntimeError):
    """The controller does not take a status, or is not the one that it should be; `code` is that of HTTP, if any."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class Controller:
    """Takes the status of a TrainJob. It is asked directly: without a proxy, and no redirection is followed."""

    def __init__(self, address: Address, ca_cert: str | None, token_file: str) -> None:
        self._address = address
        self._ca_cert = ca_cert
        self._token_file = token_file

    def trust(self) -> ssl.SSLContext:
        """Whom to trust: the authority in the file, which may be renewed at any time, or the system's where none is."""
        try:
            return ssl.create_default_context(cafile=self._ca_cert)
        except OSError as error:
            raise RefusedError(f"ca_cert {self._ca_cert} holds no certificate ({error})") from error

    def update(self, status: dict[str, Any]) -> None:
        """Replace the status of the job by this one; raises what keeps the controller from taking it."""
        host, port, path = self._address
        body = json.dumps({"trainerStatus": status}, ensure_ascii=False, separators=(",", ":")).encode()
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
        with closing(HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=self.trust())) as connection:
            try:
                connection.request("POST", path, body, headers)
            except ssl.SSLCertVerificationError as error:
                raise RefusedError(f"{host} is not trusted: {error.verify_message}") from error
            response = connection.getresponse()
            answer = response.read(LONGEST_ANSWER)
        if response.status != 200:
            raise RefusedError(f"{response.status} {_message_in(answer) or response.reason}", response.status)

    def _token(self) -> str:
        """The token as it is now: it is renewed again and again."""
        words = Path(self._token_file).read_text("utf-8").split()
        if len(words) != 1 or not words[0].isascii():
            raise RefusedError("token_file holds no token")
        return words[0]


def _message_in(answer: bytes) -> str | None:
    """What an answer says, if it is a `Status` of Kubernetes."""
    try:
        said = json.loads(answer)
    except ValueError:
        return None
    return str(said["message"]) if isinstance(said, dict) and said.get("message") else None
