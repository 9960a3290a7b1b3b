"""Replay a case: model, datasets, scripted metrics, scripted callbacks, recorder and player.

Needs torch only. `play(case, api, out_dir)` runs a case with any `api` object (a module will do) that has
Trainer, TrainingArguments, TrainerCallback, EarlyStoppingCallback and DefaultFlowCallback, and returns the trace.
"""

import copy
import json
import math
import os
import shutil

import torch

EVENTS = (
    "on_init_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin",
    "on_pre_optimizer_step", "on_optimizer_step", "on_substep_end", "on_step_end", "on_evaluate", "on_predict",
    "on_save", "on_log", "on_prediction_step",
)  # fmt: skip
FLAGS = ("should_training_stop", "should_epoch_stop", "should_save", "should_evaluate", "should_log")
PLAN = ("max_steps", "num_train_epochs", "logging_steps", "eval_steps", "save_steps")
CARRIED = ("step", "epoch", "plan", "flags", "kw", "lr", "grads", "history", "best")
COMMON_ARGS = {"report_to": "none", "use_cpu": True, "disable_tqdm": False, "learning_rate": 0.01}


# ---- model and data -------------------------------------------------------------------------------------------
class Regression(torch.nn.Module):
    """a * x + b with a mean squared error; the data never fits, so every optimizer step moves the weights."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.0))
        self.b = torch.nn.Parameter(torch.tensor(0.0))

    def forward(self, input_x, labels=None):
        y = self.a * input_x + self.b
        return {"logits": y} if labels is None else {"loss": ((y - labels) ** 2).mean(), "logits": y}


def make_items(length, nan=False, labels=True):
    xs = [(i * 37 % 64) / 64.0 - 0.5 for i in range(length)]
    ys = [math.nan if nan else 20.0 * x + 30.0 + (i % 5) for i, x in enumerate(xs)]
    return [{"input_x": x, "labels": y} if labels else {"input_x": x} for x, y in zip(xs, ys, strict=True)]


class MapData(torch.utils.data.Dataset):
    def __init__(self, *args, **kwargs):
        self.items = make_items(*args, **kwargs)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return dict(self.items[i])


class IterData(torch.utils.data.IterableDataset):
    def __init__(self, *args, **kwargs):
        self.items = make_items(*args, **kwargs)

    def __iter__(self):
        return (dict(x) for x in self.items)


def make_data(spec):
    """{"map": 64} | {"iter": 64} (+ "nan": true, "labels": false) | {"named": {"a": spec, "b": spec}} | None"""
    if spec is None:
        return None
    if "named" in spec:
        return {name: make_data(s) for name, s in spec["named"].items()}
    options = {k: spec[k] for k in ("nan", "labels") if k in spec}
    return MapData(spec["map"], **options) if "map" in spec else IterData(spec["iter"], **options)


class ScriptedMetrics:
    """compute_metrics that returns the scripted dicts one call after the other, then repeats the last one."""

    def __init__(self, script):
        self.script, self.calls = script, 0

    def __call__(self, _prediction):
        values = self.script[min(self.calls, len(self.script) - 1)]
        self.calls += 1
        return {k: float(v) for k, v in values.items()}  # "nan" and "inf" are written as strings


# ---- callbacks ------------------------------------------------------------------------------------------------
def make_scripted(base, rules):
    """A callback that follows rules. A rule: {"event", conditions, actions}.

    Conditions (all must hold): "step": state.global_step equals it; "call": the n-th call of this event (from 1).
    Actions: "set": flags; "how": "mutate" (default, returns None) | "return" (mutates, returns the same object) |
    "copy" (returns a changed copy) | "fresh" (returns a new control holding only these flags); "raise": message;
    "state"/"args": attributes to set; "logs_pop", "metrics_set": change the dict received.
    """

    class Scripted(base):
        def __init__(self):
            self.calls = dict.fromkeys(EVENTS, 0)

    def handler(event):
        def handle(self, args, state, control, **kwargs):
            self.calls[event] += 1
            result = None
            for rule in rules:
                if rule["event"] != event or rule.get("step", state.global_step) != state.global_step:
                    continue
                if rule.get("call", self.calls[event]) != self.calls[event]:
                    continue
                for target, values in ((state, rule.get("state", {})), (args, rule.get("args", {}))):
                    for name, value in values.items():
                        setattr(target, name, value)
                for key in rule.get("logs_pop", []):
                    kwargs["logs"].pop(key, None)
                kwargs.get("metrics", {}).update(rule.get("metrics_set", {}))
                if "raise" in rule:
                    raise RuntimeError(rule["raise"])
                if "set" in rule:
                    how = rule.get("how", "mutate")
                    target = {"copy": copy.copy, "fresh": lambda c: type(c)()}.get(how, lambda c: c)(control)
                    for name, value in rule["set"].items():
                        setattr(target, name, value)
                    result = None if how == "mutate" else target
            return result

        return handle

    for event in {rule["event"] for rule in rules}:
        setattr(Scripted, event, handler(event))
    return Scripted()


def make_callback(api, spec):
    if "early_stopping" in spec:
        return api.EarlyStoppingCallback(*spec["early_stopping"])  # [patience, threshold]
    return make_scripted(api.TrainerCallback, spec["rules"])


def plain(value):
    """JSON-safe: floats to 10 significant digits, non-finite ones as strings."""
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    value = float(value)
    return float(f"{value:.10g}") if math.isfinite(value) else str(value)


def best_of(state, args):
    """[best metric, its step, its folder]; a loss is written "loss", as its value depends on the sampler."""
    value, step, path = (state[k] for k in ("best_metric", "best_global_step", "best_model_checkpoint"))
    if value is not None and args.metric_for_best_model in ("loss", "eval_loss"):
        value = "loss"
    return [plain(value), step, os.path.basename(path) if path else None]


def six(epoch):
    return None if epoch is None else round(float(epoch), 6)


def make_recorder(base, events, saves):
    """The last callback of the list: appends one dict per event to `events`; keeps the weights of each save."""

    class Recorder(base):
        pass

    def handler(event):
        def handle(self, args, state, control, **kwargs):
            params = list(kwargs["model"].parameters())
            optimizer = kwargs.get("optimizer")
            row = {
                "event": event,
                "step": state.global_step,
                "epoch": six(state.epoch),
                "plan": [plain(getattr(state, name)) for name in PLAN],
                "flags": [name for name in FLAGS if getattr(control, name)],
                "kw": sorted(name for name, value in kwargs.items() if value is not None),
                "lr": plain(optimizer.param_groups[0]["lr"]) if optimizer is not None else None,
                "grads": any(p.grad is not None for p in params),
                "history": len(state.log_history),
                "best": best_of(vars(state), args),
            }
            logs = kwargs.get("logs")
            if logs is not None:
                row["logs"] = sorted(logs)
                row |= {k: plain(logs[k]) for k in ("learning_rate", "eval_score") if k in logs}
                if "epoch" in logs:
                    row["log_epoch"] = six(logs["epoch"])
                losses = [v for k, v in logs.items() if k.endswith("loss")]
                if losses:
                    row["loss_finite"] = all(map(math.isfinite, losses))
            if kwargs.get("metrics") is not None:
                row["metrics"] = sorted(kwargs["metrics"])
            if event == "on_save":
                saves.append((state.global_step, [p.detach().clone() for p in params]))
            events.append(row)

        return handle

    for event in EVENTS:
        setattr(Recorder, event, handler(event))
    return Recorder()


# ---- player ---------------------------------------------------------------------------------------------------
class Player:
    def __init__(self, case, api, out_dir):
        self.case, self.api, self.out_dir = case, api, out_dir
        self.events, self.saves, self.trainer, self.args = [], [], None, {}
        self.metrics = ScriptedMetrics(case["metrics"]) if case.get("metrics") else None
        self.where = "arguments"

    def do_new(self, change=None):
        """A new Trainer with a new model, same folder: {"args", "callbacks", "train", "eval"} override."""
        spec = {**self.case, **(change or {})}
        self.args = {**COMMON_ARGS, **self.case["args"], **spec["args"]}
        self.where = "arguments"
        args = self.api.TrainingArguments(output_dir=self.out_dir, **self.args)
        callbacks = [make_callback(self.api, s) for s in spec.get("callbacks", [])]
        callbacks.append(make_recorder(self.api.TrainerCallback, self.events, self.saves))
        self.where = "trainer"
        self.trainer = None
        self.trainer = self.api.Trainer(
            model=Regression(), args=args, train_dataset=make_data(spec["train"]),
            eval_dataset=make_data(spec.get("eval")), compute_metrics=self.metrics, callbacks=callbacks,
        )  # fmt: skip

    def do_train(self, kwargs=None):
        kwargs = dict(kwargs or {})
        if isinstance(kwargs.get("resume_from_checkpoint"), str):
            kwargs["resume_from_checkpoint"] = os.path.join(self.out_dir, kwargs["resume_from_checkpoint"])
        out = self.trainer.train(**kwargs)
        now = list(self.trainer.model.parameters())
        same = {step for step, then in self.saves if all(torch.equal(p, q) for p, q in zip(now, then, strict=True))}
        return {"global_step": out.global_step, "metrics": sorted(out.metrics), "weights_of_save": sorted(same)}

    def do_evaluate(self, kwargs=None):
        return {"metrics": sorted(self.trainer.evaluate(**(kwargs or {})))}

    def do_predict(self, spec, kwargs=None):
        out = self.trainer.predict(make_data(spec), **(kwargs or {}))
        size = [None if x is None else len(x) for x in (out.predictions, out.label_ids)]
        return {"metrics": sorted(out.metrics), "predictions": size[0], "label_ids": size[1]}

    def do_log(self, logs):
        self.trainer.log(dict(logs))

    def do_remove_callback(self, name):
        self.trainer.remove_callback(getattr(self.api, name))

    def do_add_callback(self, spec):
        self.trainer.add_callback(make_callback(self.api, spec))

    def do_delete(self, name):
        shutil.rmtree(os.path.join(self.out_dir, name))

    def step(self, name, *params):
        first = len(self.events)
        row = {"call": [name, *params]}
        self.where = name
        try:
            row["result"] = getattr(self, "do_" + name)(*params)
        except Exception as error:  # the type and the place are the facts
            row["error"] = {"type": type(error).__name__, "where": self.where}
        row["events"] = [first, len(self.events)]
        if self.trainer is not None:
            state, control = self.trainer.state, self.trainer.control
            row["after"] = {
                "step": state.global_step, "epoch": six(state.epoch), "best": best_of(vars(state), self.trainer.args),
                "flags": [name for name in FLAGS if getattr(control, name)],
            }  # fmt: skip
        return row

    def checkpoint(self, name):
        with open(os.path.join(self.out_dir, name, "trainer_state.json")) as f:
            state = json.load(f)
        return {
            "name": name, "keys": sorted(state), "global_step": state["global_step"], "epoch": six(state["epoch"]),
            "best": best_of(state, self.trainer.args),
            "history": len(state["log_history"]), "stateful_callbacks": plain(state["stateful_callbacks"]),
        }  # fmt: skip

    def run(self):
        calls = [self.step("new")]
        for call in self.case["calls"]:
            if self.trainer is None:
                break
            calls.append(self.step(*call))
        names = [n for n in os.listdir(self.out_dir) if n.startswith("checkpoint-")]
        names.sort(key=lambda n: int(n.split("-")[1]))
        history = self.trainer.state.log_history if self.trainer is not None else []
        return {
            "calls": calls,
            "events": pack(self.events),
            "checkpoints": [self.checkpoint(n) for n in names],
            "log_history": [[h["step"], six(h.get("epoch")), sorted(h)] for h in history],
        }


def play(case, api, out_dir):
    """Run a case in the empty folder `out_dir`; returns its trace."""
    return Player(case, api, out_dir).run()


def pack(events):
    """Leave out each carried field that equals its value in the event before."""
    out, last = [], {}
    for row in events:
        out.append({k: v for k, v in row.items() if k not in CARRIED or k not in last or last[k] != v})
        last = row
    return out


def unpack(events):
    out, last = [], {}
    for row in events:
        out.append({**{k: last[k] for k in CARRIED if k in last}, **row})
        last = out[-1]
    return out


def differences(expected, actual, skip=(), limit=10):
    """Where two traces (both packed) differ, as lines of text; fields named in `skip` are not compared."""
    out = []

    def look(where, a, b):
        if isinstance(a, dict) and isinstance(b, dict):
            for key in [k for k in {**a, **b} if k not in skip]:
                look(f"{where}.{key}", a.get(key, "(absent)"), b.get(key, "(absent)"))
        elif a != b:
            out.append(f"{where}: expected {a!r}, got {b!r}")

    for part in ("events", "calls", "checkpoints", "log_history"):
        a, b = expected[part], actual[part]
        a, b = (unpack(a), unpack(b)) if part == "events" else (a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            look(f"{part}[{i}]" + (f" {x['event']}" if part == "events" else ""), x, y)
        if len(a) != len(b):
            out.append(f"{part}: expected {len(a)} rows, got {len(b)}")
    return out[:limit]
