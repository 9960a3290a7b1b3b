"""Spaces on Hugging Face: with a server that takes rows, or static ones that show a copy of a project."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ADDRESS = "https://huggingface.co/spaces/{}"
LONGEST_NAME = 81


def has_token() -> bool:
    """Whether there is a token of Hugging Face, as far as can be told without asking its library."""
    home = Path(os.environ.get("HF_HOME", Path("~/.cache/huggingface").expanduser()))
    file = Path(os.environ.get("HF_TOKEN_PATH", home / "token"))
    return any(map(os.environ.get, ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"))) or file.is_file()


def token_of_user() -> str:
    """The token of Hugging Face, which its library keeps."""
    import huggingface_hub

    token = huggingface_hub.get_token()
    if token is None:
        raise RuntimeError("a Space needs a token of Hugging Face; type: hf auth login")
    return token


def prepare(space_id: str, bucket_id: str | None, private: bool | None) -> tuple[str, str]:
    """Make a Space and its bucket, if they are not there; returns the whole names of both."""
    import huggingface_hub
    from trackio import deploy, utils

    huggingface_hub.whoami(token_of_user())  # raises; where one is refused, trackio would ask for another at a prompt
    space, _, bucket = utils.preprocess_space_and_dataset_ids(space_id, None, bucket_id)
    if bucket_id is None:
        bucket = deploy.resolve_auto_bucket_id(space, bucket)
    deploy.raise_if_space_is_frozen_for_logging(space)
    deploy.create_space_if_not_exists(space, bucket_id=bucket, private=private)
    return space, bucket


def static_space(wanted: str | bool | None, args: Mapping[str, Any], project: str, run_id: str) -> str | None:
    """The static Space that is to show a project, if the user, or the loop for him, wants one.

    Args:
        wanted: its name, True for one that is made, False for none, None for what `args` say.
    """
    if wanted is None:
        wanted = args.get("trackio_static_space_id", False)
    if isinstance(wanted, str):
        return wanted
    if wanted is False:
        return None
    slug = re.sub(r"[^a-z0-9._]+", "-", project.lower())[:LONGEST_NAME].strip("-._") or "trackio"
    return f"{slug}-static-{run_id[:6]}"


def freeze(space_id: str, project: str, static_id: str, private: bool | None) -> None:
    """Copy a project of a Space to a static one."""
    import trackio

    trackio.freeze(space_id=space_id, project=project, new_space_id=static_id, private=private)


def publish(project: str, static_id: str, bucket_id: str | None, private: bool | None) -> str:
    """Copy a project on this machine to a static Space; returns its whole name."""
    import trackio

    return str(
        trackio.sync(
            project=project, sdk="static", space_id=static_id, bucket_id=bucket_id, private=private, force=True
        )
    )


def tag(model: Any, space_id: str) -> None:
    """Let the page of a model on the Hub show a Space: by the tags that `push_to_hub` writes on its card."""
    kept = [one for one in getattr(model, "model_tags", None) or [] if not str(one).startswith("trackio")]
    model.model_tags = [*kept, "trackio", f"trackio:{ADDRESS.format(space_id)}"]
