"""Experiments: what goes wrong in them is logged, not raised, and what comes after their end is dropped."""

import functools
import json
import logging
import os
import queue
import tempfile

from comet_ml.config import get_global_experiment, set_global_experiment
from comet_ml.messages import MetricMessage
from comet_ml.server import SERVER, Stored

LOGGER = logging.getLogger("comet_ml.experiment")
LONGEST_VALUE = 1000


class Streamer:
    def __init__(self, stored):
        self.stored = stored
        self.messages = queue.Queue()
        self.closed = False

    def put_message_in_q(self, message):
        if not isinstance(message, MetricMessage):
            raise TypeError(f"{message!r} is no message")
        if not self.closed:
            self.stored.metrics.append({**message.metric, "timestamp": message.local_timestamp})

    def has_connection_to_server(self):
        return SERVER.is_reachable

    def has_upload_failed(self):
        return False

    def is_alive(self):
        return not self.closed


def while_alive(method):
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        if not self.alive:
            return
        try:
            method(self, *args, **kwargs)
        except Exception:
            LOGGER.exception("%s has failed", method.__name__)

    return call


class CometExperiment:
    def __init__(self, key, config, api_key):
        previous = get_global_experiment()
        if previous is not None:
            previous.clean()
        set_global_experiment(self)
        self.id = key
        self.api_key = api_key
        self.tmpdir = tempfile.mkdtemp()
        self.disabled, self.ended = config.disabled, False
        self.alive = not self.disabled
        self.stored = self._open()
        self.streamer = Streamer(self.stored) if self.alive else None
        self.context = self.curr_step = self.curr_epoch = None
        if config.name is not None:
            self.log_other("Name", config.name)
        self.stored.tags += config.tags or []

    def _open(self):
        raise NotImplementedError

    def _close(self):
        """What an end does beyond this process."""

    def get_key(self):
        return self.id

    @while_alive
    def log_parameter(self, name, value, step=None):
        if not isinstance(name, str) or not 0 < len(name) <= 100:
            raise ValueError("a name has 1 to 100 characters")
        if not isinstance(value, (str, int, float, type(None))):
            raise TypeError(f"a parameter is plain, not {value!r}")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise OverflowError("a server takes 64 bits")
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            raise ValueError("this would be truncated")
        self.stored.params[name] = value

    @while_alive
    def log_other(self, key, value):
        text = value if isinstance(value, (int, float, type(None))) else str(value).encode().decode()
        self.stored.others[key[:100]] = text[:LONGEST_VALUE] if isinstance(text, str) else text

    def log_others(self, dictionary):
        for key, value in dictionary.items():
            self.log_other(key, value)

    @while_alive
    def log_text(self, text, step=None, metadata=None):
        json.dumps(metadata)
        content = text.encode().decode()
        self.stored.texts.append({"text": content, "step": self.curr_step if step is None else step, **metadata})

    @while_alive
    def log_asset_data(self, data, name=None, overwrite=False, step=None, metadata=None, file_name=None, epoch=None):
        self._keep(name, data.encode())

    @while_alive
    def log_asset(self, file_data, file_name=None, overwrite=False, copy_to_tmp=True, step=None, metadata=None):
        with open(file_data, "rb") as file:
            self._keep(file_name, file.read())

    def _keep(self, name, content):
        if not isinstance(name, str):
            raise TypeError("fileName value must not be None")
        self.stored.assets[name] = content

    @while_alive
    def set_model_graph(self, graph, overwrite=False):
        self.stored.graph = graph

    @while_alive
    def log_optimization(
        self, optimization_id=None, metric_name=None, metric_value=None, parameters=None, objective=None
    ):
        self.stored.others |= {"optimizer_id": optimization_id, "optimizer_parameters": json.dumps(parameters)}

    def flush(self):
        return self.streamer is not None

    def clean(self):
        self.end()
        return True

    def end(self):
        if self.ended:
            return
        if self.alive:
            self.streamer.closed = True
            self._close()
        self.alive, self.ended = False, True


class Experiment(CometExperiment):
    def _open(self):
        stored = SERVER.experiments.setdefault(self.id, Stored()) if self.alive else Stored()
        stored.is_running, stored.has_crashed = True, False
        return stored

    @property
    def url(self):
        return f"https://www.comet.com/team/project/{self.id}"

    def _report_experiment_error(self, message, has_crashed=False):
        self.stored.has_crashed = has_crashed

    def _close(self):
        self.stored.is_running = False


class OfflineExperiment(CometExperiment):
    customer_error_message = None

    def __init__(self, key, config, api_key):
        self.offline_directory = config.offline_directory
        if not (config.disabled or os.path.isdir(self.offline_directory)):
            raise NotADirectoryError(self.offline_directory)
        super().__init__(key, config, api_key)

    def _open(self):
        return Stored()

    @property
    def url(self):
        return None

    def _report_experiment_error(self, message, has_crashed=False):
        self.stored.has_crashed = True

    def _close(self):
        SERVER.archives.append((self.offline_directory, self.id))
        SERVER.experiments.setdefault(self.id, Stored()).add(self.stored)
