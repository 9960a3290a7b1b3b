"""What TensorBoard shows, read from the event files by TensorBoard's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.hparams import api_pb2, backend_context, get_experiment, list_session_groups

EVERYTHING = {"scalars": 0, "tensors": 0}


class RunOnDisk:
    """One run's directory, as TensorBoard reads it."""

    def __init__(self, directory: str | Path) -> None:
        self.events = EventAccumulator(str(directory), EVERYTHING).Reload()

    @property
    def tags(self) -> set[str]:
        return set(self.events.Tags()["scalars"])

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        return [(event.step, event.value) for event in self.events.Scalars(tag)]

    def times(self, tag: str) -> list[float]:
        return [event.wall_time for event in self.events.Scalars(tag)]

    @property
    def text_tags(self) -> set[str]:
        suffix = "/text_summary"
        return {tag.removesuffix(suffix) for tag in self.events.Tags()["tensors"] if tag.endswith(suffix)}

    def texts(self, tag: str) -> list[tuple[int, str]]:
        events = self.events.Tensors(f"{tag}/text_summary")
        return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events]

    def described(self, tag: str) -> dict[str, Any]:
        """The last text of a tag that holds JSON in a block of code."""
        return json.loads(self.texts(tag)[-1][1].removeprefix("```json\n").removesuffix("\n```"))


def hparams_table(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The rows of the HParams tab by run: `params`, `metrics` (the last values), and `status`."""
    multiplexer = EventMultiplexer(tensor_size_guidance=EVERYTHING).AddRunsFromDirectory(str(folder)).Reload()
    context = backend_context.Context(TBContext(data_provider=MultiplexerDataProvider(multiplexer, str(folder))))
    experiment = get_experiment.Handler(RequestContext(), context, "", api_pb2.GetExperimentRequest()).run()
    request = api_pb2.ListSessionGroupsRequest(
        allowed_statuses=api_pb2.Status.values(),
        col_params=[api_pb2.ColParams(metric=info.name) for info in experiment.metric_infos],
        slice_size=1000,
    )
    groups = list_session_groups.Handler(RequestContext(), context, "", request).run()
    table = MessageToDict(groups)  # as the tab fetches it; a nan or an infinity among the params would break it here
    return {group["sessions"][0]["name"]: _row(group) for group in table["sessionGroups"]}


def _row(group: dict[str, Any]) -> dict[str, Any]:
    (session,) = group["sessions"]
    metrics = [(metric["name"]["tag"], metric.get("value", 0.0)) for metric in session["metricValues"]]
    assert len(metrics) == len(dict(metrics)), "a metric stands there twice"
    return {"params": group["hparams"], "metrics": dict(metrics), "status": session.get("status", "STATUS_UNKNOWN")}
