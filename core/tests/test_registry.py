import importlib.metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import Notebook

from trackside import Configured, Reporter, configured, installed, resolve
from trackside.registry import NotConfiguredError, NotInstalledError, install_line, known

GROUP = "trackside.reporters"


class Pen(Notebook):
    name = "pen"
    is_duplicate_of = Reporter.is_duplicate_of


class Ink(Pen):
    name = "red_ink"


class Keyless(Pen):
    name = "keyless"

    def configured(self):
        return Configured(False, "set KEYLESS_API_KEY")


class OnRequest(Pen):
    name = "on_request"

    def configured(self):
        return Configured(self.required, "nobody has named it")


class Absent(Pen):
    name = "absent"
    sdk = "a_module_that_is_not_there"


class Broken(Pen):
    name = "broken"
    __module__ = "a_module_that_is_not_there"


class Misread(Pen):
    name = "misread"

    def configured(self):
        raise ValueError("MISREAD_PORT='many' is not understood")


class Unmakeable(Pen):
    name = "unmakeable"

    def __init__(self):
        raise RuntimeError("no room")


class Metadata:
    """Of the umbrella, of which not every extra is an integration."""

    def get_all(self, name):
        extras = {"pen": "trackside-pen>=0.1", "red-ink": "trackside-red-ink", "crayon": "trackside-crayon>=0.1"}
        others = {"all": "trackside-pen>=0.1", "gallery": "frames>=2,<4"}
        if name == "Provides-Extra":
            return [*extras, *others]
        return [f"{requirement}; extra == '{extra}'" for extra, requirement in {**extras, **others}.items()]


@pytest.fixture(autouse=True)
def install(monkeypatch):
    """Installs integrations; two are there already, and the umbrella offers one more."""
    points = []

    def install(*kinds):
        points.extend(
            importlib.metadata.EntryPoint(kind.name, f"{kind.__module__}:{kind.__name__}", GROUP) for kind in kinds
        )

    install(Pen, Ink)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points if group == GROUP else [])
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: Metadata())
    return install


def names(reporters):
    return [reporter.name for reporter in reporters]


@pytest.mark.parametrize("report_to", [None, [], "", "none", ["none"], "NONE", ()])
def test_nothing_is_nothing(report_to):
    assert resolve(report_to) == []


@pytest.mark.parametrize(
    "report_to",
    ["pen", " Pen ", ["pen"], Pen, [Pen], {"pen": {}}, {"pen": None}, "pen,pen", ["pen", "pen"], ["pen", Pen], [Pen()]],
)
def test_every_form_means_the_same(report_to):
    assert [type(reporter) for reporter in resolve(report_to)] == [Pen]


@pytest.mark.parametrize("report_to", ["pen,red-ink", ["pen", "red_ink"], "pen, RED_INK", {"pen": {}, "red-ink": {}}])
def test_order_is_that_of_the_user(report_to):
    assert names(resolve(report_to)) == ["pen", "red_ink"]


@given(st.permutations(["pen", "red_ink", "pen"]), st.booleans())
def test_a_string_a_list_and_a_dict_agree(wanted, as_dashes):
    spelled = [name.replace("_", "-") if as_dashes else name for name in wanted]
    expected = list(dict.fromkeys(wanted))
    for form in (",".join(spelled), spelled, tuple(spelled), dict.fromkeys(spelled)):
        assert names(resolve(form)) == expected


def test_options_of_a_dict_reach_the_reporter():
    (reporter,) = resolve({"pen": {"resume": "new"}})
    assert reporter.resume == "new"
    with pytest.raises(TypeError, match="'colour'"):
        resolve({"pen": {"colour": "red"}})


def test_an_instance_wins_over_its_name_and_over_all():
    given_one = Pen(resume="new")
    assert resolve(["pen", given_one]) == [given_one]
    assert resolve([given_one, "pen"]) == [given_one]
    assert resolve(["all", given_one])[-1] is given_one
    assert names(resolve(["all", given_one])) == ["red_ink", "pen"]


def test_a_name_wins_over_all():
    reporters = resolve(["all", "pen"])
    assert sorted(names(reporters)) == ["pen", "red_ink"]
    assert [reporter.name for reporter in reporters if reporter.required] == ["pen"]
    (pen,) = (reporter for reporter in resolve(["all", {"pen": {"resume": "new"}}]) if reporter.name == "pen")
    assert pen.resume == "new"


def test_two_instances_that_differ_are_two():
    assert len(resolve([Pen(resume="new"), Pen()])) == 2


def test_all_is_each_that_is_configured_and_never_an_error(install, caplog):
    install(Keyless, Absent, Broken)
    for form in ("all", ["all"]):
        caplog.clear()
        reporters = resolve(form)
        assert names(reporters) == ["pen", "red_ink"]
        assert not any(reporter.required for reporter in reporters)
        assert "set KEYLESS_API_KEY" in caplog.text
        assert "'broken' is installed but broken" in caplog.text
        assert caplog.text.count("absent is installed but left out: its package 'a_module_that_is_not_there'") == 1


def test_one_may_be_there_for_those_only_who_name_it(install, caplog):
    install(OnRequest)
    assert names(resolve("all")) == ["pen", "red_ink"]
    assert "on_request is installed but left out: nobody has named it" in caplog.text
    assert names(resolve("on_request")) == ["on_request"]


def test_one_that_cannot_even_be_asked_is_left_out_of_all(install, caplog):
    install(Misread, Unmakeable)
    assert names(resolve("all")) == ["pen", "red_ink"]
    assert "misread is left out: MISREAD_PORT='many' is not understood" in caplog.text
    assert "unmakeable is left out: no room" in caplog.text


@pytest.mark.parametrize("sdk", ["an_sdk", "an_sdk.core", "not_there.core"])
def test_a_folder_that_is_named_like_an_sdk_is_none(sdk, install, tmp_path, monkeypatch):
    (tmp_path / "an_sdk" / "core").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Pen, "sdk", sdk)
    with pytest.raises(NotInstalledError, match=sdk):
        resolve("pen")
    assert resolve("all") == []


def test_named_reporters_are_required():
    assert all(reporter.required for reporter in resolve("pen,red_ink"))


@pytest.mark.parametrize(
    ("report_to", "error", "said"),
    [
        ("crayon", NotInstalledError, r'\'crayon\'.*installed: .*pen, red_ink.*pip install "trackside\[crayon\]"'),
        ("pne", ValueError, r"'pne'.*did you mean 'pen'"),
        ("quill", ValueError, r"no integration of that name is installed \(installed: absent, .*pen, red_ink"),
        ("none,pen", ValueError, "nothing and for something"),
        ("keyless", NotConfiguredError, "set KEYLESS_API_KEY"),
        ("absent", NotInstalledError, "a_module_that_is_not_there.*pip install trackside-absent"),
        ("broken", ImportError, "installed but broken.*a_module_that_is_not_there"),
        (5, TypeError, "5"),
        ([object], TypeError, "object"),
        ({5: {}}, TypeError, "5"),
        ({"pen": "red"}, TypeError, r"has a str where options of 'pen' belong; type {'pen': {'option': value}}"),
        ({"pen": False}, TypeError, "has a bool where"),
    ],
)
def test_what_cannot_be_had_is_an_error_that_says_what_to_type(install, report_to, error, said):
    install(Keyless, Absent, Broken)
    with pytest.raises(error, match=said):
        resolve(report_to)


def test_nothing_reports_where_reporting_is_switched_off(monkeypatch):
    monkeypatch.setenv("TRACKSIDE_DISABLED", "true")
    assert resolve("pen") == resolve("all") == []


def test_what_is_installed_and_known_can_be_asked(install):
    install(Absent, Keyless)
    assert list(installed()) == ["absent", "keyless", "pen", "red_ink"]
    assert known() == ["absent", "crayon", "keyless", "pen", "red_ink"]
    assert configured("pen")
    assert configured("keyless").why == "set KEYLESS_API_KEY"
    assert "not installed" in configured("absent").why
    assert install_line("crayon") == 'pip install "trackside[crayon]"'


def test_whether_one_could_start_may_depend_on_who_asks(install):
    install(OnRequest)
    assert configured("on_request")
    assert configured("on_request", is_named=False).why == "nobody has named it"
