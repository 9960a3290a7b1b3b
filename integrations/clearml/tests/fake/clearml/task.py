"""The one task of a process, and what it does to the process."""

import atexit
import json
import os
import sys
from pathlib import Path

import clearml.logger
from clearml import SERVER
from clearml.backend_interface.base import InterfaceBase
from clearml.binding.environ_bind import PatchOsFork
from clearml.config.cache import SessionCache
from clearml.config.defs import PROC_MASTER_ID_ENV_VAR

BASIC = (str, int, float, list, tuple, dict, type(None))


class UsageError(RuntimeError):
    pass


class TaskStub:
    """What the SDK gives a child process of the one that has the task: it takes everything and does nothing."""

    id = None

    def __getattr__(self, name):
        raise AssertionError("this is a child process, as the environment says, in which a task does nothing")


class Task:
    hooks: set[str] = set()  # noqa: RUF012 - of the process
    _main = None
    _report_subprocess_enabled = True

    # ---- of the process -----------------------------------------------------------------------------------------

    @classmethod
    def init(
        cls,
        project_name=None,
        task_name=None,
        task_type="training",
        tags=None,
        reuse_last_task_id=True,
        continue_last_task=False,
        output_uri=None,
        auto_connect_arg_parser=True,
        auto_connect_frameworks=True,
        auto_resource_monitoring=True,
        auto_connect_streams=True,
        deferred_init=False,
    ):
        owner = PROC_MASTER_ID_ENV_VAR.get() or ""
        if owner and owner.partition(":")[0] != str(os.getpid()):
            return TaskStub()
        if cls._main is not None:
            if (project_name, task_name) != (None, None) and (project_name, task_name) != cls._main.names:
                raise UsageError("Current task already created and does not match")
            return cls._main
        PROC_MASTER_ID_ENV_VAR.set(f"{os.getpid()}:")
        if not cls.running_locally():
            task_id = os.environ["CLEARML_TASK_ID"]
        elif isinstance(reuse_last_task_id, str) and reuse_last_task_id in SERVER.tasks:
            task_id = reuse_last_task_id
            SERVER.answer("tasks.started", {"task": task_id, "force": True})
        else:
            task_id = cls._create(project_name, task_name, tags)
        cls._main = task = cls(task_id, (project_name, task_name))
        task.output_uri = output_uri
        task.initial_iteration = 0 if continue_last_task == 0 and continue_last_task is not False else 1000
        task.connected = (
            auto_connect_arg_parser,
            auto_connect_frameworks,
            auto_connect_streams,
            auto_resource_monitoring,
        )
        cls.hooks |= {"signals", "exceptions", "exit"}
        PatchOsFork.patch_fork(task)
        atexit.register(task._at_exit)
        sys.exit = task._exit
        SessionCache.store(task_id)
        if cls._report_subprocess_enabled:
            raise AssertionError("the process was forked to report from")
        print(f"ClearML Task: created new task id={task_id}")  # noqa: T201 - as the real one does
        clearml.logger.report_text("ClearML results page: ...")
        return task

    @classmethod
    def _create(cls, project_name, task_name, tags):
        send = InterfaceBase._default_session.send_or_raise
        task_id = send("tasks.create", {"name": task_name, "project": project_name, "tags": tags})["id"]
        send("tasks.started", {"task": task_id})
        return task_id

    @classmethod
    def current_task(cls):
        return cls._main

    @classmethod
    def _has_current_task_obj(cls):
        return cls._main is not None

    @staticmethod
    def running_locally():
        return "CLEARML_TASK_ID" not in os.environ

    @staticmethod
    def is_offline():
        return False

    @staticmethod
    def set_offline(offline_mode=False):
        if offline_mode:
            raise AssertionError("the fake has no offline mode")

    @classmethod
    def _remove_signal_hooks(cls):
        cls.hooks.discard("signals")

    @classmethod
    def _remove_exception_hooks(cls):
        cls.hooks.discard("exceptions")

    @staticmethod
    def _exit(code=0):
        raise AssertionError("sys.exit is not the one of Python")

    # ---- one task -----------------------------------------------------------------------------------------------

    def __init__(self, task_id, names):
        self.id = task_id
        self.names = names
        self.session = InterfaceBase._default_session
        self._is_closed = False

    def _at_exit(self):
        self.close()

    def close(self):
        if self._is_closed:
            return
        if self.session is not None:
            self.session.send_quietly("tasks.completed", {"task": self.id})
        self._is_closed = True
        type(self)._main = None
        PROC_MASTER_ID_ENV_VAR.set(f"{os.getpid()}:")
        print("ClearML Task: closed")  # noqa: T201

    def get_parameters(self, backwards_compatibility=True, cast=False):
        sections = SERVER.tasks[self.id]["hyperparams"]
        return {f"{name}/{key}": item["value"] for name, section in sections.items() for key, item in section.items()}

    def set_parameters(self, *args, **kwargs):
        """In the place of all that there are."""
        self._set_parameters({}, args[0])

    def update_parameters(self, *args, **kwargs):
        self._set_parameters(self.get_parameters(), args[0])

    def _set_parameters(self, before, values):
        self._check_open()
        for name, value in values.items():
            if not isinstance(value, BASIC):
                raise TypeError(f"Parameters must be of builtin type ({name}[{type(value).__name__}])")
        sections: dict[str, dict[str, object]] = {}
        for name, value in {**before, **values}.items():
            section, _, key = name.partition("/")
            sections.setdefault(section, {})[key] = {"name": key, "value": _stringified(value)}
        self.session.send_or_raise("tasks.edit", {"task": self.id, "force": True, "hyperparams": sections})

    def set_configuration_object(self, name, config_text=None, description=None, config_type=None, config_dict=None):
        self._check_open()
        if not isinstance(config_text, str):
            raise ValueError("Config text or config dict must be provided")
        configuration = {**SERVER.tasks[self.id]["configuration"], name: {"value": config_text, "type": config_type}}
        self.session.send_or_raise("tasks.edit", {"task": self.id, "force": True, "configuration": configuration})

    def upload_artifact(
        self,
        name,
        artifact_object,
        metadata=None,
        delete_after_upload=False,
        auto_pickle=None,
        preview=None,
        wait_on_upload=False,
        extension_name=None,
        serialization_function=None,
        retries=0,
    ):
        self._check_open()
        if not isinstance(artifact_object, Path) or not wait_on_upload:
            raise AssertionError("a text may be taken for a path, and an upload that nobody waits for may never end")
        address = f"/{self.id}/artifacts/{name}/{artifact_object.name}"
        SERVER.files[address] = artifact_object.read_bytes()
        artifact = {"key": name, "uri": address}
        self.session.send_or_raise("tasks.add_or_update_artifacts", {"task": self.id, "artifacts": [artifact]})
        return True

    def get_output_log_web_page(self):
        return f"https://app.clear.ml/projects/*/experiments/{self.id}/output/log"

    def _check_open(self):
        if self._is_closed:
            raise ValueError("Cannot use a task after it was closed")


def _stringified(value):
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, (list, tuple, dict)) else str(value)
