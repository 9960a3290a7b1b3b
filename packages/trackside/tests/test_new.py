"""A project of one's own for a tracker that has no integration yet."""

import json
import sys
from pathlib import Path

import pytest


def test_a_project_is_made_here_and_said_how_it_is_tested(typed):
    code, output = typed("new", "acme_cloud")
    assert code == 0
    assert output.startswith("Made trackside-acme-cloud.")
    assert "python -m pytest" in output
    project = Path("trackside-acme-cloud")
    assert 'name = "acme_cloud"' in (project / "src/trackside_acme_cloud/reporter.py").read_text()
    assert "pip install trackside-acme-cloud\n" in (project / "README.md").read_text()


def test_as_json_it_is_the_folder_and_its_files(typed):
    code, output = typed("new", "acme", "--json")
    said = json.loads(output)
    assert (code, said["folder"]) == (0, "trackside-acme")
    made = {str(path) for path in Path("trackside-acme").rglob("*") if path.is_file()}
    assert set(said["files"]) == made


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Acme", "'Acme' is no name"),
        ("../acme", "'../acme' is no name"),
        ("json", "'json' is a word of Python"),
        ("tensorboard", "there is one for 'tensorboard'"),
    ],
)
def test_a_name_that_cannot_be_is_an_error_of_usage_and_makes_nothing(typed, name, said):
    code, output = typed("new", name)
    assert code == 2
    assert said in output.splitlines()[-1]
    assert list(Path().iterdir()) == []


def test_a_folder_that_is_there_stays_as_it_is(typed):
    Path("trackside-acme").mkdir()
    assert typed("new", "acme") == (1, "Error: trackside-acme: File exists.\n")
    assert list(Path("trackside-acme").iterdir()) == []


def test_where_the_template_is_missing_it_says_what_to_type(typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "trackside_testkit.new", None)
    code, output = typed("new", "acme")
    assert code == 1
    assert output.endswith("type: pip install trackside-testkit\n")
