"""Metrics of a run: numbers with a step, and rows of tables.

`Run.log` stamps a value with the time of the call, and a thread of the SDK sends it a second later, or loses it if the
service is away. The same request is made here directly, with the loop's own time, and its answer is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from trackside_azure_ml.runs import is_offline

_TYPES = {float: "double", int: "int", str: "string"}

Row = Mapping[str, "int | str"]


class Metric(NamedTuple):
    """One value of one metric: a number, or a row of a table by its columns."""

    name: str
    value: float | Row
    step: int
    time: float


def send(run: Any, metrics: Sequence[Metric]) -> list[tuple[str, str]]:
    """Send metrics in one request, or have the SDK print them; returns those that are refused, each with the reason.

    What is sent again has the same ids again.
    """
    if is_offline(run):
        _print(run, metrics)
        return []
    from azureml._restclient.models import BatchMetricV2Dto

    of_name: dict[str, list[Metric]] = {}
    for metric in metrics:
        of_name.setdefault(metric.name, []).append(metric)
    batch = BatchMetricV2Dto(values=[_as_sent(run.id, same) for same in of_name.values()], report_errors=True)
    client = run._client.metrics
    answer = client._execute_with_workspace_run_arguments(client._client.metric.post_run_metrics, batch)
    return [
        (refused.metric.name, refused.error_response.error.message) for refused in getattr(answer, "errors", None) or ()
    ]


def _as_sent(run_id: str, metrics: Sequence[Metric]) -> Any:
    """All values of one metric, in the SDK's form."""
    from azureml._restclient.models import MetricProperties, MetricV2Dto, MetricV2Value

    name = metrics[0].name
    values = [
        MetricV2Value(
            metric_id=str(uuid5(NAMESPACE_OID, repr((run_id, metric)))),
            created_utc=datetime.fromtimestamp(metric.time, timezone.utc),
            step=metric.step,
            data=dict(metric.value) if isinstance(metric.value, Mapping) else {name: metric.value},
        )
        for metric in metrics
    ]
    kind = "table" if isinstance(metrics[0].value, Mapping) else "scalar"
    columns = {column: _TYPES[type(cell)] for column, cell in values[0].data.items()}
    return MetricV2Dto(
        name=name, columns=columns, value=values, properties=MetricProperties(ux_metric_type=f"azureml.v1.{kind}")
    )


def _print(run: Any, metrics: Sequence[Metric]) -> None:
    for metric in metrics:
        if isinstance(metric.value, Mapping):
            run.log_table(metric.name, dict(metric.value))
        else:
            run.log(metric.name, metric.value)
