"""The events of a training loop and those who listen to them: the protocol of `transformers.TrainerCallback`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from trackside.state import TrainerControl, TrainerState

logger = logging.getLogger(__name__)

Listener = Callable[..., "TrainerControl | None"]


class TrainerCallback:
    """Something that listens to a training loop: override the events that you need.

    Each event is called as `on_x(args, state, control, **kwargs)` with the keywords `model`, `processing_class`,
    `tokenizer` (the older name of the same object, left out when it is None), `optimizer`, `lr_scheduler`,
    `train_dataloader`, `eval_dataloader`, and `logs`, `metrics` or `exception` where they apply. To steer the loop,
    change `control`, or return another one. Which methods are overridden is looked up when the callback is added.
    """

    def on_init_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The loop is set up."""

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Training starts or resumes, at `state.global_step`."""

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An epoch begins."""

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An optimizer step begins, with the first of its batches."""

    def on_substep_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """A batch was accumulated, and is not the last one of its step."""

    def on_pre_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The gradients are complete and clipped; the optimizer has not used them yet."""

    def on_optimizer_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The optimizer has stepped; the gradients are still there, and the schedule has not moved on."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The step is counted in `state.global_step`; the gradients are gone."""

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """`logs` were added to `state.log_history`."""

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An evaluation gave `metrics`; they are logged already, and not yet compared with the best."""

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """A checkpoint is complete on disk."""

    def on_prediction_step(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """A batch of an evaluation or a prediction is done."""

    def on_predict(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """A prediction gave `metrics`."""

    def on_epoch_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """An epoch ends; a log, an evaluation and a save may follow."""

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Training came to its end, early or not. After an error there is `on_exception` instead."""

    def on_exception(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """Training is left by `exception` (any BaseException), which goes on after this."""

    def on_push_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> Any:
        """The model is about to be pushed to the Hub."""


EVENTS = tuple(name for name in vars(TrainerCallback) if name.startswith("on_"))


def _event(name: str) -> Callable[..., TrainerControl]:
    def fire(
        self: CallbackHandler, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        listeners = self._listeners[name]
        return self._call(listeners, args, state, control, kwargs) if listeners else control

    fire.__name__ = name
    fire.__doc__ = getattr(TrainerCallback, name).__doc__
    return fire


class CallbackHandler(TrainerCallback):
    """Tells all callbacks of each event, in order, and clears the flags that an event ends.

    For each event it keeps ready the methods that really override it, so that a callback that does not listen costs
    nothing. Changing `callbacks` in any way makes it look again.
    """

    def __init__(
        self,
        callbacks: Iterable[TrainerCallback | type[TrainerCallback]],
        model: Any = None,
        processing_class: Any = None,
        optimizer: Any = None,
        lr_scheduler: Any = None,
    ) -> None:
        self.callbacks = []
        self.model = model
        self.processing_class = processing_class
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.train_dataloader: Any = None
        self.eval_dataloader: Any = None
        for callback in listed(callbacks):
            self.add_callback(callback)
        if not any(_is_default_flow(callback) for callback in self.callbacks):
            logger.warning(
                "Without a DefaultFlowCallback nothing is logged, evaluated or saved by itself and max_steps does not "
                "end the training; add one with add_callback(DefaultFlowCallback). There are: %s.",
                self.callback_list.replace("\n", ", ") or "no callbacks",
            )

    @property
    def callbacks(self) -> list[Any]:
        """The callbacks in the order in which they are told; may be changed in place."""
        return self._callbacks

    @callbacks.setter
    def callbacks(self, callbacks: Iterable[Any]) -> None:
        self._callbacks = _WatchedList(callbacks)
        self._callbacks.changed = self._find_listeners
        self._find_listeners()

    def _find_listeners(self) -> None:
        self._listeners = {event: self._listeners_of(event) for event in EVENTS}

    def _listeners_of(self, event: str) -> tuple[Listener, ...]:
        ignored = getattr(TrainerCallback, event, None)
        methods = (getattr(callback, event, None) for callback in self.callbacks)
        return tuple(
            method for method in methods if method is not None and getattr(method, "__func__", None) is not ignored
        )

    def __getstate__(self) -> dict[str, Any]:
        state = {**vars(self), "_callbacks": list(self._callbacks)}
        del state["_listeners"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.callbacks = self._callbacks

    @property
    def callback_list(self) -> str:
        """The class names of the callbacks, one a line."""
        return "\n".join(type(callback).__name__ for callback in self.callbacks)

    def add_callback(self, callback: Any) -> None:
        """Add a callback, or make one of a class; a second one of a class is added with a warning."""
        added = callback() if isinstance(callback, type) else callback
        _check_events(added)
        if any(type(other) is type(added) for other in self.callbacks):
            logger.warning("There is a %s among the callbacks already; now there are two.", type(added).__name__)
        self.callbacks.append(added)

    def pop_callback(self, callback: Any) -> Any:
        """Remove and return the given callback, or the first one of the given class; None if there is none."""
        for index, other in enumerate(self.callbacks):
            if isinstance(other, callback) if isinstance(callback, type) else other == callback:
                return self.callbacks.pop(index)
        return None

    def remove_callback(self, callback: Any) -> None:
        """Remove the first callback of the given class, if any, or the given callback.

        Raises:
            ValueError: the given instance is not among the callbacks.
        """
        if self.pop_callback(callback) is None and not isinstance(callback, type):
            raise ValueError(f"This {type(callback).__name__} is not among the callbacks: it cannot be removed.")

    on_init_end = _event("on_init_end")
    on_substep_end = _event("on_substep_end")
    on_pre_optimizer_step = _event("on_pre_optimizer_step")
    on_optimizer_step = _event("on_optimizer_step")
    on_step_end = _event("on_step_end")
    on_prediction_step = _event("on_prediction_step")
    on_epoch_end = _event("on_epoch_end")
    on_train_end = _event("on_train_end")
    on_push_begin = _event("on_push_begin")

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        control.should_training_stop = False
        return self.call_event("on_train_begin", args, state, control, **kwargs)

    def on_epoch_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        control.should_epoch_stop = False
        return self.call_event("on_epoch_begin", args, state, control, **kwargs)

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        control.should_log = control.should_evaluate = control.should_save = False
        listeners = self._listeners["on_step_begin"]
        return self._call(listeners, args, state, control, kwargs) if listeners else control

    def on_log(
        self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any
    ) -> TrainerControl:
        control.should_log = False
        return self.call_event("on_log", args, state, control, logs=logs, **kwargs)

    def on_evaluate(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> TrainerControl:
        control.should_evaluate = False
        return self.call_event("on_evaluate", args, state, control, metrics=metrics, **kwargs)

    def on_predict(
        self, args: Any, state: TrainerState, control: TrainerControl, metrics: Any = None, **kwargs: Any
    ) -> TrainerControl:
        return self.call_event("on_predict", args, state, control, metrics=metrics, **kwargs)

    def on_save(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        control.should_save = False
        return self.call_event("on_save", args, state, control, **kwargs)

    def on_exception(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> TrainerControl:
        """Tell everyone, whoever fails: the exception that ends the training must not be hidden by another one."""
        for listener in self._listeners["on_exception"]:
            with _failure_logged():
                control = self._call((listener,), args, state, control, kwargs)
        return control

    def call_event(
        self, event: str, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> TrainerControl:
        """Tell all who listen to `event`, also one that is not in the protocol; the last control returned wins."""
        listeners = self._listeners.get(event)
        return self._call(self._listeners_of(event) if listeners is None else listeners, args, state, control, kwargs)

    def _call(
        self,
        listeners: tuple[Listener, ...],
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        kwargs: dict[str, Any],
    ) -> TrainerControl:
        keywords = {
            "model": self.model,
            "processing_class": self.processing_class,
            "optimizer": self.optimizer,
            "lr_scheduler": self.lr_scheduler,
            "train_dataloader": self.train_dataloader,
            "eval_dataloader": self.eval_dataloader,
            **kwargs,
        }
        if self.processing_class is not None:
            keywords["tokenizer"] = self.processing_class
        for listener in listeners:
            control = listener(args, state, control, **keywords) or control
        return control


def listed(callbacks: Any) -> list[Any]:
    """The callbacks that were passed, as a list; a TypeError if it is a single one."""
    if isinstance(callbacks, str):
        return [callbacks]
    if isinstance(callbacks, type) or not isinstance(callbacks, Iterable):
        name = callbacks.__name__ if isinstance(callbacks, type) else type(callbacks).__name__
        raise TypeError(f"callbacks takes a list, not {name} alone; type callbacks=[...].")
    return list(callbacks)


def _check_events(callback: Any) -> None:
    """Refuse what listens to nothing, and warn of a method that is named almost like an event."""
    if isinstance(callback, str):
        raise TypeError(f'{callback!r} is no callback; type report_to="{callback}" to report to a tracker.')
    own = {name for name in dir(callback) if name.startswith("on_")}
    if not own and not any(hasattr(callback, event) for event in EVENTS):
        kind = type(callback).__name__
        raise TypeError(f"A {kind} is no callback; give it a method of the name of an event, such as on_step_end.")
    for name in sorted(own.difference(EVENTS)):
        from trackside.spelling import closest

        meant = closest(name.replace("_start", "_begin"), EVENTS)
        if meant is not None and callable(getattr(callback, name)):
            logger.warning("%s.%s is no event of a training; did you mean %s?", type(callback).__name__, name, meant)


@contextmanager
def _failure_logged() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("A callback failed while it was told that the training is left by an exception.")


def _is_default_flow(callback: Any) -> bool:
    """By name, so that the one of `transformers` counts too."""
    return any(kind.__name__ == "DefaultFlowCallback" for kind in type(callback).__mro__)


class _WatchedList(list[Any]):
    """A list that tells when it was changed."""

    changed: Callable[[], None] | None = None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy is a plain list, without the handler and all that it holds."""
        return list, (), None, iter(self)


def _watched(name: str) -> Callable[..., Any]:
    mutate = getattr(list, name)

    def method(self: _WatchedList, *args: Any, **kwargs: Any) -> Any:
        result = mutate(self, *args, **kwargs)
        if self.changed is not None:
            self.changed()
        return result

    method.__name__ = name
    return method


for _name in ("append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"):
    setattr(_WatchedList, _name, _watched(_name))
for _name in ("__setitem__", "__delitem__", "__iadd__", "__imul__"):
    setattr(_WatchedList, _name, _watched(_name))
