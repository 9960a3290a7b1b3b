# ruff: noqa: A002 - the names are those of the real one
"""Artifacts, whose names and files are checked."""

import json
import os


class Artifact:
    def __init__(
        self,
        name,
        type,
        description=None,
        metadata=None,
        incremental=False,
        use_as=None,
        storage_region=None,
    ):
        if len(name) > 128 or "/" in name:
            raise ValueError(f"{name!r} is no name of an artifact")
        json.dumps(metadata, allow_nan=False)
        self.name, self.type, self.metadata = name, type, metadata or {}
        self.files, self.aliases = {}, []

    def add_file(self, local_path, name=None, is_tmp=False, skip_cache=False, policy="mutable", overwrite=False):
        if not os.path.isfile(local_path):
            raise ValueError(f"Path is not a file: {local_path!r}")
        with open(local_path, "rb") as file:
            self.files[name or os.path.basename(local_path)] = file.read()
