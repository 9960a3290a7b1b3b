"""What a request with metrics is made of, and its answer."""

from types import SimpleNamespace


class MetricProperties:
    def __init__(self, ux_metric_type=None):
        self.ux_metric_type = ux_metric_type


class MetricV2Value:
    def __init__(self, metric_id=None, created_utc=None, step=None, data=None):
        self.metric_id, self.created_utc, self.step, self.data = metric_id, created_utc, step, data

    def as_json(self):
        created = self.created_utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"metricId": self.metric_id, "createdUtc": created, "step": self.step, "data": self.data}


class MetricV2Dto:
    def __init__(
        self, data_container_id=None, name=None, columns=None, value=None, continuation_token=None, properties=None
    ):
        self.name, self.columns, self.value, self.properties = name, columns, value, properties

    def as_json(self):
        return {
            "name": self.name,
            "columns": self.columns,
            "value": [value.as_json() for value in self.value],
            "properties": {"uxMetricType": self.properties.ux_metric_type},
        }


class BatchMetricV2Dto:
    def __init__(self, values=None, report_errors=None):
        self.values, self.report_errors = values, report_errors


def read_errors(answer):
    return [
        SimpleNamespace(
            metric=MetricV2Dto(name=error["metric"]["name"]),
            error_response=SimpleNamespace(error=SimpleNamespace(**error["errorResponse"]["error"])),
        )
        for error in answer["errors"]
    ]
