"""Options of a reporter, and its copies."""

import copy
import dataclasses
import pickle
from types import SimpleNamespace

import pytest
from training import Loop, Notebook, kinds

from trackside import Configured, TrainerState, env
from trackside.options import words


class Optional(Notebook):
    project: str = env("OPTIONAL_PROJECT", "default")
    watch: bool = env("OPTIONAL_WATCH", False)
    every: int = env("OPTIONAL_EVERY", 10)
    plain: object = env(None)
    tags: object = env("OPTIONAL_TAGS", (), words)


def test_an_option_is_what_was_given_else_the_environment_else_the_default(monkeypatch):
    reporter = Optional()
    assert (reporter.project, reporter.watch, reporter.every, reporter.plain) == ("default", False, 10, None)
    monkeypatch.setenv("OPTIONAL_PROJECT", "p")
    monkeypatch.setenv("OPTIONAL_WATCH", "Yes")
    monkeypatch.setenv("OPTIONAL_EVERY", "5")
    assert (reporter.project, reporter.watch, reporter.every) == ("p", True, 5)
    assert Optional(project="q", watch=False).watch is False


@pytest.mark.parametrize(("variable", "text"), [("OPTIONAL_EVERY", "often"), ("OPTIONAL_WATCH", "perhaps")])
def test_a_variable_that_is_not_understood_is_named(monkeypatch, variable, text):
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=f"{variable}='{text}'"):
        _ = (Optional().every, Optional().watch)


@pytest.mark.parametrize(("text", "tags"), [("a, b c,,a ", ("a", "b c", "a")), (" ,", ()), ("", ())])
def test_a_list_in_a_variable_has_commas_between_its_words(monkeypatch, text, tags):
    monkeypatch.setenv("OPTIONAL_TAGS", text)
    assert Optional().tags == tags


def test_an_unknown_option_is_refused_with_those_that_there_are():
    with pytest.raises(TypeError, match=r"'logdir'.*every, key_style, plain, project, resume, tags, watch"):
        Optional(logdir="x")


def test_a_misspelled_option_is_answered_with_what_was_meant():
    with pytest.raises(TypeError, match="has no option 'projekt', perhaps 'project'; it takes"):
        Optional(projekt="x")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda reporter: pickle.loads(pickle.dumps(reporter))])
@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_copy_starts_anew_at_any_moment(duplicate, moment):
    reporter = Optional(project="p")
    loop = Loop(reporter)
    if moment != "before":
        loop.begin()
        reporter.handle = lambda: None
    if moment == "after":
        loop.end()
    copied = duplicate(reporter)
    assert copied.project == "p"
    copied.calls = []
    other = Loop(copied)
    other.begin()
    other.log({"loss": 1.0})
    other.end()
    assert kinds(copied) == ["start", "log_params", "log_points", "finish"]


def test_setup_is_called_before_the_start_and_may_set_options():
    class Setting(Optional):
        def setup(self, args, state, model, **kwargs):
            self.project = f"of {model.config['hidden_size']}"

        def start(self, run):
            self.note("project", self.project)
            return super().start(run)

    reporter = Setting()
    Loop(reporter).begin()
    assert reporter.told("project") == ["of 8"]


def test_what_a_tracker_attaches_is_detached_at_the_end():
    class Attaching(Notebook):
        def attach(self):
            self.note("attach", None)

        def detach(self):
            self.note("detach", None)

    reporter = Attaching()
    loop = Loop(reporter)
    loop.begin()
    loop.end()
    assert kinds(reporter) == ["start", "log_params", "attach", "detach", "finish"]


def test_nothing_of_the_users_is_changed():
    @dataclasses.dataclass
    class Args:
        output_dir: str = "out"
        nested: dict = dataclasses.field(default_factory=lambda: {"api_key": "sk-abcdefgh"})

    loop = Loop(Notebook())
    loop.args, loop.model = Args(), SimpleNamespace(config={"deep": {"token": "hf_SECRET"}})
    before = copy.deepcopy((loop.args, loop.model.config))
    loop.begin()
    loop.evaluate({"eval_loss": 1.0})
    loop.end()
    assert (loop.args, loop.model.config) == before
    changed = {
        name for name, value in vars(loop.state).items() if value != getattr(TrainerState(), name) and name[0] != "_"
    }
    assert changed == {"stateful_callbacks"}


def test_configured_is_true_or_tells_why():
    assert Configured()
    assert not Configured(False, "no key")
