"""A session, which a request may wait for as long as it lives."""

import os
from contextlib import suppress
from types import SimpleNamespace

from backend import Refused

from clearml import SERVER
from clearml.backend_api.session.defs import MissingConfigError
from clearml.backend_api.session.response import ResponseMeta


class LoginError(Exception):
    pass


class SendError(Exception):
    def __init__(self, result):
        super().__init__(f"Action failed <{result.meta.result_code}/0: {result.meta.result_msg}>")
        self.result = result


class CallResult:
    def __init__(self, meta, response=None):
        self.meta = meta
        self.response = response

    def ok(self):
        return self.meta.result_code == 200


class Session:
    worker = "here"

    def __init__(
        self,
        worker=None,
        api_key=None,
        secret_key=None,
        host=None,
        logger=None,
        verbose=None,
        config=None,
        http_retries_config=None,
        **kwargs,
    ):
        if not http_retries_config or max(http_retries_config.values()) > 10:
            raise AssertionError("it would take minutes to give up")
        key = os.environ.get("CLEARML_API_ACCESS_KEY")
        if key is None:
            raise MissingConfigError("It seems ClearML is not configured on this machine!\n...")
        if SERVER.trouble == 0:
            raise LoginError("Unrecognized Authentication Error: Max retries exceeded")
        if SERVER.trouble or key != SERVER.key:
            code = SERVER.trouble or 401
            raise LoginError(f"Failed getting token (error {code} from here): Unauthorized (invalid credentials)")

    @staticmethod
    def get_files_server_host():
        return "https://files.clear.ml"

    def send(self, req_obj, async_enable=False, headers=None):
        if SERVER.trouble == 0:
            raise ConnectionError("Max retries exceeded")
        try:
            answer = SERVER.answer(req_obj.name, req_obj.data)
        except Refused as refusal:
            return CallResult(ResponseMeta(refusal.code, str(refusal)))
        return CallResult(ResponseMeta(200, "OK"), _as_object(answer))

    def send_or_raise(self, name, data):
        """As the SDK's objects do: they ask once more, for ever, where nothing answers, or with more than 500."""
        try:
            result = self.send(Request(name, data))
        except Exception as error:
            raise AssertionError("this is asked again for ever") from error
        if result.meta.result_code > 500:
            raise AssertionError("this is asked again for ever")
        if not result.ok():
            raise SendError(result)
        return vars(result.response)

    def send_quietly(self, name, data):
        with suppress(SendError):
            self.send_or_raise(name, data)


class Request:
    def __init__(self, name, data):
        self.name = name
        self.data = data


def _as_object(answer):
    entries = {
        name: [SimpleNamespace(**item) for item in value] if name in ("tasks", "models") else value
        for name, value in answer.items()
    }
    return SimpleNamespace(**entries)
