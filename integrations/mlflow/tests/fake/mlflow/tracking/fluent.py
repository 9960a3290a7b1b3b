"""The fluent API: a stack of active runs for each thread."""

import threading

from mlflow.client import MlflowClient
from mlflow.entities import Run


class ThreadLocalStack(threading.local):
    def __init__(self):
        self.stack = []

    def get(self):
        return self.stack


_active_run_stack = ThreadLocalStack()


class ActiveRun(Run):
    def __init__(self, run):
        super().__init__(run.info, run.data)

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        end_run("FINISHED" if exc_type is None else "FAILED")


def active_run():
    stack = _active_run_stack.get()
    return stack[-1] if stack else None


def start_run(run_id=None, experiment_id=None, run_name=None, nested=False):
    stack = _active_run_stack.get()
    if stack and not nested:
        raise Exception(f"Run with UUID {stack[0].info.run_id} is already active.")
    client = MlflowClient()
    run = client.get_run(run_id) if run_id else client.create_run(experiment_id or "0", run_name=run_name or "a run")
    stack.append(ActiveRun(run))
    return stack[-1]


def end_run(status="FINISHED"):
    stack = _active_run_stack.get()
    if stack:
        MlflowClient().set_terminated(stack.pop().info.run_id, status)
