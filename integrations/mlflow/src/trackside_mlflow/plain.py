"""Names, texts and files as MLflow takes them."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Iterator
from typing import Any
from zlib import crc32

from trackside import Artifact

PICKLE_OF_ALL_ARGUMENTS = "training_args.bin"


def as_path(key: str) -> str:
    """A key as MLflow takes it: it may hold slashes, but has to be a clean path that leads downwards.

    Others have their slashes replaced, and end in a checksum so that they stay apart.
    """
    if posixpath.normpath(key) == key and key != "." and not key.startswith(("..", "/")):
        return key
    return f"{key.replace('/', '_').lstrip('.')}_{crc32(key.encode()):08x}"


def encodable(value: Any) -> str:
    """The text of a value, without the lone surrogates that Python puts for the undecodable bytes of a file name."""
    return str(value).encode("utf-8", "replace").decode("utf-8")


def json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError('it takes a JSON object, {"name": "value"}')
    return value


def files_of(artifact: Artifact) -> Iterator[tuple[str, str]]:
    """Each file of an artifact and the folder that it belongs in; without the pickle of all arguments."""
    if os.path.isfile(artifact.path):
        yield artifact.path, artifact.name
    for folder, _, names in os.walk(artifact.path):
        below = os.path.relpath(folder, artifact.path).replace(os.sep, "/")
        for name in sorted(names):
            if name != PICKLE_OF_ALL_ARGUMENTS:
                yield os.path.join(folder, name), posixpath.normpath(f"{artifact.name}/{below}")
