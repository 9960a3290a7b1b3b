"""Models of a task."""

import os

from clearml import SERVER


class OutputModel:
    def __init__(
        self,
        task=None,
        config_text=None,
        config_dict=None,
        label_enumeration=None,
        name=None,
        tags=None,
        comment=None,
        framework=None,
        base_model_id=None,
    ):
        self._task = task
        self._name = name

    def update_weights(
        self,
        weights_filename=None,
        upload_uri=None,
        target_filename=None,
        auto_delete_file=True,
        register_uri=None,
        iteration=None,
        update_comment=True,
        is_package=False,
        async_enable=True,
    ):
        if async_enable or auto_delete_file:
            raise AssertionError("an upload that nobody waits for may never end, and the file is not the SDK's")
        if not isinstance(weights_filename, str):
            raise TypeError("argument of type 'PosixPath' is not iterable")
        if not (upload_uri or self._task.output_uri):
            raise AssertionError("the path on this machine would be noted")
        address = f"/{self._task.id}/models/{target_filename}"
        with open(weights_filename, "rb") as file:
            SERVER.files[address] = file.read()
        send = self._task.session.send_or_raise
        model = {"task": self._task.id, "name": self._name, "uri": address, "iteration": iteration}
        model_id = send("models.create", model)["id"]
        stem = target_filename.rpartition(".")[0]
        entry = {"task": self._task.id, "type": "output", "name": stem, "model": model_id}
        send("tasks.add_or_update_model", entry)
        return address


class Model:
    @classmethod
    def remove(cls, model, delete_weights_file=True, force=False, raise_on_errors=False):
        if model not in SERVER.models:
            raise ValueError(f"Could not find model id={model}")
        if delete_weights_file:
            del SERVER.files[os.fspath(SERVER.models[model]["uri"])]
        SERVER.answer("models.delete", {"model": model})
        return True
