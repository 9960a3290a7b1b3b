"""As much of it as a Space needs."""

from __future__ import annotations

import os
from types import SimpleNamespace


class HfHubHTTPError(Exception):
    response = SimpleNamespace(status_code=401)


def get_token() -> str | None:
    return os.environ.get("HF_TOKEN")


def whoami(token: str | None = None) -> dict[str, str]:
    if token != "hf_token-of-the-user":
        raise HfHubHTTPError("Invalid user token.")
    return {"name": "me"}
