"""The tags of a run, within MLflow's limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from trackside import Limits
from trackside.mapping import Keys, chunks, cut
from trackside.values import encodable, redact
from trackside_mlflow.client import LONGEST_TAG, Client

logger = logging.getLogger(__name__)

PER_CALL = 100
LATEST = "; latest: "


class Tags:
    """Sets tags of a run and knows those that it has. What is too long is cut, and kept whole as an artifact."""

    def __init__(self, client: Client, run: Any) -> None:
        self._client = client
        self._run_id = run.info.run_id
        self._texts: dict[str, str] = dict(run.data.tags)
        self._keys = Keys(Limits(key=r"\w\-. :/", key_length=240, key_is_path=True))

    def set(self, tags: Mapping[str, Any]) -> None:
        from mlflow.entities import RunTag

        texts = {self._keys(name): encodable(str(value)) for name, value in redact(tags).items()}
        for name, text in texts.items():
            if len(text) > LONGEST_TAG:
                logger.warning("mlflow: the tag %s is cut; it is whole in the artifact tags/%s.txt.", name, name)
                self._client.log_text(self._run_id, text, f"tags/{name}.txt")
        for chunk in chunks(texts, PER_CALL):
            sent = [RunTag(name, cut(text, LONGEST_TAG)) for name, text in chunk.items()]
            self._client.log_batch(self._run_id, tags=sent, synchronous=True)
        self._texts |= texts

    def set_first_and_latest(self, tags: Mapping[str, str]) -> None:
        """Set tags that keep the first text that they had beside the latest one."""
        noted = {}
        for name, text in tags.items():
            first = self._texts.get(self._keys(name), text).partition(LATEST)[0]
            noted[name] = text if text == first else f"{first}{LATEST}{text}"
        self.set(noted)

    def add_to_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Add to a tag that holds a JSON object."""
        try:
            known = json.loads(self._texts.get(name, "{}"))
        except ValueError:  # it was cut
            known = {}
        self.set({name: json.dumps({**known, **values})})


def json_object(text: str) -> dict[str, Any]:
    """Tags as the environment has them."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError('it takes a JSON object, {"name": "value"}')
    return value
