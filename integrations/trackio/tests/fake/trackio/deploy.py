# ruff: noqa: T201 - as the real one does
from __future__ import annotations

from trackio.remote_client import SERVERS, Server

FROZEN: set[str] = set()


def resolve_auto_bucket_id(space_id: str, preferred_bucket_id: str) -> str:
    return f"{preferred_bucket_id}-free"


def raise_if_space_is_frozen_for_logging(space_id: str) -> None:
    if space_id in FROZEN:
        raise RuntimeError(f"Cannot log to Hugging Face Space '{space_id}' because it has been frozen")


def create_space_if_not_exists(
    space_id: str, dataset_id: str | None = None, bucket_id: str | None = None, private: bool | None = None
) -> bool:
    print("* Creating new space")
    if "/" not in space_id or "/" not in str(bucket_id):
        raise ValueError("Invalid space or bucket ID")
    is_new = space_id not in SERVERS
    SERVERS.setdefault(space_id, Server("hf_token-of-the-user"))
    return is_new
