"""What wandb will find out about the account and the server, told without importing it."""

from __future__ import annotations

import configparser
import netrc
import os
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

SERVERS = ("https://api.wandb.ai", "https://api.forge.coreweave.com")
NEEDS_NO_KEY = ("offline", "dryrun", "disabled")


def setting(name: str) -> str | None:
    """What `wandb login`, `wandb offline` or `wandb init` have written down, for this folder or for this user."""
    config = os.environ.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb"
    files = configparser.ConfigParser(interpolation=None)
    with suppress(configparser.Error, OSError):
        files.read([Path(config, "settings"), Path("wandb", "settings")], "utf-8")
    return files.get("default", name, fallback=None)


def has_key(server: str | None) -> bool:
    """Whether there is a key for a server, or for the public one if None is named."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE") or setting("api_key"):
        return True
    named = server or setting("base_url")
    return any(map(_is_in_netrc, [named] if named else SERVERS)) or _has_logged_in()


def _is_in_netrc(server: str) -> bool:
    names = [os.environ["NETRC"]] if os.environ.get("NETRC") else [Path.home() / ".netrc", Path.home() / "_netrc"]
    for name in names:
        with suppress(OSError, netrc.NetrcParseError):
            found = netrc.netrc(os.path.expanduser(name)).authenticators(urlsplit(server).netloc)
            if found and found[2]:
                return True
    return False


def _has_logged_in() -> bool:
    """Whether the program has called `wandb.login()`."""
    setup = sys.modules.get("wandb.sdk.wandb_setup")
    return setup is not None and bool(setup.singleton().settings.api_key)
