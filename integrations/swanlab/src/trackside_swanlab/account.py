"""What SwanLab will find out about the account, told without importing it, and whether its server takes the key."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

NEEDS_NO_KEY = ("offline", "local", "disabled")
FILES_WITH_KEYS = (".env", "swanlab.yaml", "swanlab.yml", ".swanlab/config.yaml", ".swanlab/config.yml")
NO_KEY = "it has no key; type: swanlab login, or set SWANLAB_API_KEY, or SWANLAB_MODE=offline"
SECONDS_TO_ANSWER = 10


def has_key() -> bool:
    """Whether there is a key, as far as can be told without importing the SDK."""
    if os.environ.get("SWANLAB_API_KEY") or _has_logged_in():
        return True
    home = Path(os.environ.get("SWANLAB_ROOT") or os.environ.get("SWANLAB_SAVE_DIR") or Path.home() / ".swanlab")
    if any(Path(folder, ".netrc").is_file() for folder in (".swanlab", home)):
        return True
    return any("api_key" in _text(Path(file)) for file in (*FILES_WITH_KEYS, home / "config.yaml"))


def _text(file: Path) -> str:
    with suppress(OSError):
        return file.read_text("utf-8", "replace").lower()
    return ""


def _has_logged_in() -> bool:
    """Whether the program has called `swanlab.login()`."""
    client = sys.modules.get("swanlab.sdk.internal.core_python.client")
    return client is not None and client.exists()


def check_key(server: str, key: str | None) -> None:
    """Sign in by hand: the SDK takes 15 seconds to say the same of a server that is down and of a wrong key.

    Raises:
        OSError: the server cannot be reached, or has a trouble of the moment.
        RuntimeError: there is no key, or the server refuses it.
    """
    if _has_logged_in():
        return
    if not key:
        raise RuntimeError(NO_KEY)
    question = urllib.request.Request(f"{server.rstrip('/')}/api/login/api_key", b"", {"authorization": key})
    try:
        urllib.request.urlopen(question, timeout=SECONDS_TO_ANSWER).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            raise RuntimeError(f"{server} refuses the key; type: swanlab login --relogin") from None
        if error.code == 429 or error.code >= 500:
            raise
    except urllib.error.URLError as error:
        if not isinstance(error.reason, ssl.SSLError):  # the SDK may know a certificate that Python does not
            raise
