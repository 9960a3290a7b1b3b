import copy
import logging
import pickle

import pytest
from training import arguments

from trackside import CallbackHandler, DefaultFlowCallback, TrainerCallback, TrainerControl, TrainerState
from trackside.callbacks import EVENTS

ARGS = arguments()


class Listening(TrainerCallback):
    """Listens to two events."""

    def __init__(self):
        self.heard = []

    def on_step_end(self, args, state, control, **kwargs):
        self.heard.append(("on_step_end", kwargs))

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.heard.append(("on_log", logs))


@pytest.fixture
def fire():
    state, control = TrainerState(), TrainerControl()

    def fire(handler, event, control=control, **kwargs):
        return getattr(handler, event)(ARGS, state, control, **kwargs)

    return fire


def handler_of(*callbacks, **kwargs):
    return CallbackHandler([DefaultFlowCallback, *callbacks], **kwargs)


def test_the_protocol_has_the_sixteen_events_of_transformers_and_on_exception():
    assert set(EVENTS) == {
        "on_init_end", "on_train_begin", "on_epoch_begin", "on_step_begin", "on_substep_end", "on_pre_optimizer_step",
        "on_optimizer_step", "on_step_end", "on_log", "on_evaluate", "on_save", "on_prediction_step", "on_predict",
        "on_epoch_end", "on_train_end", "on_push_begin", "on_exception",
    }  # fmt: skip


def test_a_callback_is_told_of_what_it_overrides_with_the_keywords_of_the_protocol(fire):
    listening = Listening()
    handler = handler_of(listening, model="model", optimizer="optimizer", lr_scheduler="scheduler")
    handler.train_dataloader, handler.eval_dataloader = "train", "eval"
    for event in EVENTS:
        fire(handler, event)
    assert [event for event, _ in listening.heard] == ["on_step_end", "on_log"]
    keywords = dict(listening.heard)["on_step_end"]
    assert keywords == {
        "model": "model",
        "processing_class": None,
        "optimizer": "optimizer",
        "lr_scheduler": "scheduler",
        "train_dataloader": "train",
        "eval_dataloader": "eval",
    }


def test_the_older_name_of_the_processing_class_is_served_when_there_is_one(fire):
    listening = Listening()
    fire(handler_of(listening, processing_class="tokenizer"), "on_step_end")
    keywords = listening.heard[0][1]
    assert keywords["tokenizer"] == keywords["processing_class"] == "tokenizer"


def test_callbacks_are_told_in_their_order_and_share_one_dict_of_logs(fire):
    class Adding(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            logs["added"] = 1

    listening, logs = Listening(), {"loss": 2.0}
    fire(handler_of(Adding(), listening), "on_log", logs=logs)
    assert listening.heard == [("on_log", {"loss": 2.0, "added": 1})]
    assert listening.heard[0][1] is logs


def test_a_returned_control_replaces_the_one_before(fire):
    class Returning(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            return TrainerControl(should_save=True)

    class Looking(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            self.seen = control

    looking = Looking()
    control = fire(CallbackHandler([Returning, looking]), "on_step_end")
    assert control is looking.seen
    assert control.should_save


@pytest.mark.parametrize(
    ("event", "cleared"),
    [
        ("on_train_begin", {"should_training_stop"}),
        ("on_epoch_begin", {"should_epoch_stop"}),
        ("on_step_begin", {"should_log", "should_evaluate", "should_save"}),
        ("on_log", {"should_log"}),
        ("on_evaluate", {"should_evaluate"}),
        ("on_save", {"should_save"}),
        ("on_step_end", set()),
        ("on_epoch_end", set()),
        ("on_train_end", set()),
    ],
)
def test_an_event_clears_the_flags_that_it_ends(fire, event, cleared):
    control = TrainerControl(True, True, True, True, True)
    fire(CallbackHandler([TrainerCallback]), event, control)
    assert {name for name, value in vars(control).items() if not value} == cleared


def test_a_duck_without_an_event_is_skipped(fire):
    class Duck:
        heard = 0

        def on_step_end(self, args, state, control, **kwargs):
            self.heard += 1

    duck = Duck()
    handler = handler_of(duck)
    for event in ("on_step_end", "on_save", "on_exception"):
        fire(handler, event)
    assert duck.heard == 1


def test_an_event_that_is_not_in_the_protocol_can_be_fired(fire):
    class Own(TrainerCallback):
        def on_rollout(self, args, state, control, **kwargs):
            control.should_log = kwargs["reward"] > 1

    control = handler_of(Own()).call_event("on_rollout", ARGS, TrainerState(), TrainerControl(), reward=2)
    assert control.should_log


@pytest.mark.parametrize(
    ("callbacks", "sentence"),
    [
        (["tensorboard"], "'tensorboard' is no callback; type report_to=\"tensorboard\" to report to a tracker."),
        ("tensorboard", "'tensorboard' is no callback; type report_to=\"tensorboard\" to report to a tracker."),
        (Listening(), "callbacks takes a list, not Listening alone; type callbacks=[...]."),
        (Listening, "callbacks takes a list, not Listening alone; type callbacks=[...]."),
        ([{"on": "step"}], "A dict is no callback; give it a method of the name of an event"),
        ([None], "A NoneType is no callback"),
    ],
)
def test_what_is_no_list_of_callbacks_is_refused_with_what_to_type(callbacks, sentence):
    with pytest.raises(TypeError) as refusal:
        CallbackHandler(callbacks)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(
    ("typed", "meant"), [("on_step_ended", "on_step_end"), ("on_epoch_start", "on_epoch_begin"), ("on_logs", "on_log")]
)
@pytest.mark.parametrize("base", [TrainerCallback, Listening])
def test_a_method_that_is_named_almost_like_an_event_is_warned_of(base, typed, meant, caplog):
    handler_of(type("Mine", (base,), {typed: lambda self, *args, **kwargs: None}))
    assert caplog.messages == [f"Mine.{typed} is no event of a training; did you mean {meant}?"]


def test_events_of_ones_own_and_attributes_are_no_typing_errors(caplog):
    class Own(TrainerCallback):
        on_logs = 3
        on_rollout = on_gpu_idle = TrainerCallback.on_step_end

    handler_of(Own)
    assert caplog.messages == []


@pytest.mark.parametrize(
    "change",
    [
        lambda handler, new: handler.add_callback(new),
        lambda handler, new: handler.callbacks.append(new),
        lambda handler, new: handler.callbacks.insert(0, new),
        lambda handler, new: handler.callbacks.extend([new]),
        lambda handler, new: handler.callbacks.__setitem__(0, new),
        lambda handler, new: handler.callbacks.__iadd__([new]),
        lambda handler, new: setattr(handler, "callbacks", [new]),
        lambda handler, new: setattr(handler, "callbacks", handler.callbacks + [new]),  # noqa: RUF005
    ],
)
def test_a_callback_listens_as_soon_as_it_is_in_the_list(fire, change):
    handler, listening = handler_of(), Listening()
    fire(handler, "on_step_end")
    change(handler, listening)
    fire(handler, "on_step_end")
    assert len(listening.heard) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda handler, old: handler.remove_callback(old),
        lambda handler, old: handler.remove_callback(Listening),
        lambda handler, old: handler.pop_callback(Listening),
        lambda handler, old: handler.callbacks.remove(old),
        lambda handler, old: handler.callbacks.pop(),
        lambda handler, old: handler.callbacks.clear(),
        lambda handler, old: handler.callbacks.__delitem__(1),
        lambda handler, old: setattr(handler, "callbacks", []),
    ],
)
def test_a_callback_is_told_nothing_once_it_is_out_of_the_list(fire, change):
    listening = Listening()
    handler = handler_of(listening)
    change(handler, listening)
    fire(handler, "on_step_end")
    assert listening.heard == []


def test_pop_returns_the_first_of_a_class_and_none_where_there_is_none():
    first, second = Listening(), Listening()
    handler = handler_of(first, second)
    assert handler.pop_callback(Listening) is first
    assert handler.pop_callback(second) is second
    assert handler.pop_callback(Listening) is None


def test_removing_what_is_not_there_is_an_error_for_an_instance_only():
    handler = handler_of()
    handler.remove_callback(Listening)
    with pytest.raises(ValueError, match="not among the callbacks"):
        handler.remove_callback(Listening())


def test_a_second_callback_of_a_class_is_added_with_a_warning(caplog):
    handler = handler_of(Listening)
    handler.add_callback(Listening())
    assert handler.callback_list == "DefaultFlowCallback\nListening\nListening"
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Listening" in caplog.text


def test_a_handler_without_a_default_flow_says_what_will_not_happen(caplog):
    CallbackHandler([Listening])
    assert "DefaultFlowCallback" in caplog.text
    assert "Listening" in caplog.text


def test_all_are_told_of_an_exception_even_if_one_of_them_fails(fire, caplog):
    class Failing(TrainerCallback):
        def on_exception(self, args, state, control, **kwargs):
            raise RuntimeError("failing twice")

    class Closing(TrainerCallback):
        def on_exception(self, args, state, control, exception=None, **kwargs):
            self.seen = exception

    closing, error = Closing(), KeyboardInterrupt()
    fire(handler_of(Failing(), closing), "on_exception", exception=error)
    assert closing.seen is error
    assert "failing twice" in caplog.text


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda items: pickle.loads(pickle.dumps(items))])
def test_a_copy_of_the_list_of_callbacks_is_a_mere_list(duplicate):
    handler = CallbackHandler([DefaultFlowCallback()], model=lambda: "cannot be pickled")
    copied = duplicate(handler.callbacks)
    assert type(copied) is list
    assert [type(callback) for callback in copied] == [DefaultFlowCallback]


def test_an_exception_of_a_callback_is_the_users_to_see(fire):
    class Failing(TrainerCallback):
        def on_log(self, args, state, control, **kwargs):
            raise RuntimeError("look at me")

    with pytest.raises(RuntimeError, match="look at me"):
        fire(handler_of(Failing()), "on_log", logs={})


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda handler: pickle.loads(pickle.dumps(handler))])
def test_a_copied_handler_tells_its_own_callbacks(fire, duplicate):
    handler = handler_of(Listening())
    copied = duplicate(handler)
    copied.add_callback(Shouting())
    fire(copied, "on_step_end")
    assert handler.callbacks[1].heard == []
    assert len(copied.callbacks[1].heard) == len(copied.callbacks[2].heard) == 1


class Shouting(Listening):
    pass
