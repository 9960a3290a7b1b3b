"""Which trackers there are, and what each of them lacks."""

import json

import pytest

from trackside import installed
from trackside.registry import known


def row(output, name):
    (found,) = [line.split(maxsplit=4) for line in output.splitlines() if line.startswith(f"{name} ")]
    return found


def test_a_tracker_that_lacks_nothing_is_ready(typed, publish):
    publish("pen", requires=["click>=8"])
    code, output = typed("list")
    assert code == 0
    name, version, sdk, _, ready = row(output, "pen")
    assert (name, version, sdk, ready) == ("pen", "1.5", "click", "yes")


def test_one_that_is_not_installed_is_shown_with_the_line_to_type(typed):
    absent = next(name for name in known() if name not in installed())
    assert f'not installed; type: pip install "trackside[{absent}]"' in " ".join(row(typed("list")[1], absent))


def test_extras_that_bring_no_tracker_are_none(typed):
    names = [tracker["name"] for tracker in json.loads(typed("list", "--json")[1])["trackers"]]
    assert "tensorboard" in names
    assert not {"plot", "parquet", "all"} & set(names)


@pytest.mark.parametrize(
    ("published", "said"),
    [
        ({"requires": ["an-sdk-nobody-wrote>=2"]}, "an-sdk-nobody-wrote is not installed; type: pip install"),
        ({"requires": ["click>=1,<2"]}, "does not fit, it takes >=1,<2"),
        ({"body": "configured = lambda self: Configured(False, 'set PEN_API_KEY')"}, "set PEN_API_KEY"),
        ({"body": "configured = lambda self: Configured(not self.required, 'nobody names it')"}, ""),
        ({"body": "sdk = 'a_module_that_is_not_there'"}, "'a_module_that_is_not_there' is not installed"),
        ({"body": "import a_module_that_is_not_there"}, "installed but broken (ModuleNotFoundError"),
        ({"requires": ["an-sdk-nobody-wrote; extra == 'more'"]}, ""),
    ],
)
def test_what_is_missing_is_said_to_people_and_to_programs(typed, publish, published, said):
    publish("pen", **published)
    assert said in typed("list")[1]
    (pen,) = [one for one in json.loads(typed("list", "--json")[1])["trackers"] if one["name"] == "pen"]
    assert pen["ready"] == (not said)
    assert said in (pen["missing"] or "")


def test_a_terminal_gets_a_table_and_a_narrow_one_a_block_for_each_tracker(typed_at_a_terminal, publish):
    publish("pen", requires=["click>=8"])
    wide, narrow = typed_at_a_terminal(100, "list"), typed_at_a_terminal(30, "list")
    assert row(wide, "pen")[:3] == ["pen", "1.5", "click"]
    assert max(map(len, wide.splitlines())) <= 100
    assert "pen\n  integration: 1.5\n  SDK: click" in narrow


def test_elsewhere_nothing_is_drawn_around_the_words(typed):
    assert typed("list")[1].isascii()
