"""Reads archives of Comet with nothing but zipfile and json."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from trackside_testkit import Reported


class Archive:
    """One archive: a part of an experiment, as it was logged until its end."""

    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        self.about: dict[str, Any] = json.loads(self._zip.read("experiment.json"))
        lines = self._zip.read("messages.json").decode("utf-8").splitlines()
        self._messages = [(entry["type"], entry["payload"]) for entry in map(json.loads, lines)]

    def payloads(self, kind: str) -> list[dict[str, Any]]:
        return [payload for type_, payload in self._messages if type_ == kind]

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """What was logged by somebody: Comet adds how long the process ran."""
        entries = [{**entry["metric"], "timestamp": entry["local_timestamp"]} for entry in self.payloads("metric_msg")]
        return [entry for entry in entries if entry["metricName"] != "process duration"]

    @property
    def params(self) -> dict[str, Any]:
        entries = [entry["param"] for entry in self.payloads("parameter_msg")]
        return {entry["paramName"]: entry["paramValue"] for entry in entries if entry["source"] == "manual"}

    @property
    def others(self) -> dict[str, Any]:
        return {entry["key"]: entry["value"] for entry in self.payloads("log_other")}

    @property
    def files(self) -> list[dict[str, Any]]:
        """The content of each file with what is said of it."""
        return [
            {**entry["additional_params"], "metadata": entry["metadata"], "content": self._zip.read(entry["file_path"])}
            for entry in self.payloads("file_upload")
        ]


def archives(folder: Path) -> dict[str, list[Archive]]:
    """The archives in a folder by their experiment, in order; an empty one belongs to an experiment that is open."""
    found: dict[str, list[Archive]] = {}
    full = [path for path in folder.glob("*.zip") if zipfile.ZipFile(path).namelist()]
    for archive in sorted(map(Archive, full), key=lambda archive: archive.about["start_time"]):
        found.setdefault(archive.about["offline_id"], []).append(archive)
    return found


def merged(parts: list[Archive]) -> Reported:
    """What the server shows of an experiment when its archives were uploaded."""
    metrics = [entry for part in parts for entry in part.metrics]
    others = {key: value for part in parts for key, value in part.others.items()}
    texts, files = [], {}
    for file in (file for part in parts for file in part.files):
        if file.get("type") == "text-sample":
            texts.append((file["metadata"]["name"], file["step"], file["content"].decode("utf-8")))
        else:
            folder, _, name = file["fileName"].partition("/")
            files.setdefault(folder, []).append(name)
    return Reported(
        points=Reported.by_key((entry["metricName"], entry["step"], float(entry["metricValue"])) for entry in metrics),
        params={key: value for part in parts for key, value in part.params.items()},
        texts=Reported.by_key(texts),
        artifacts=files,
        status=others.get("trackside.status", "running"),
    )
