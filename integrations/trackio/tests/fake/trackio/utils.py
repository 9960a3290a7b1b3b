from __future__ import annotations

import os


def get_storage_mode() -> str:
    return os.environ.get("TRACKIO_STORAGE_MODE", "sqlite")


def parse_trackio_server_url(url: str) -> tuple[str, str | None]:
    base, _, token = url.partition("?write_token=")
    return base, token or None


def preprocess_space_and_dataset_ids(
    space_id: str | None, dataset_id: str | None, bucket_id: str | None = None
) -> tuple[str | None, str | None, str | None]:
    if space_id is not None and "/" not in space_id:
        space_id = f"me/{space_id}"
    return space_id, dataset_id, bucket_id or f"{space_id}-bucket"
