"""What the template becomes under a name."""

import re
import sys

import pytest

from trackside_testkit.new import LONGEST_NAME, make

if sys.version_info < (3, 11):
    import tomli as tomllib
else:
    import tomllib


MISSPELLED = ["", "Acme", "acme-cloud", "a__b", "_a", "a_", "1st", "größe", "a/b", "..", "a b", "a\n"]


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("home", ["repository", "project"])
def test_one_name_rules_the_package(tmp_path, home):
    written = make("acme_cloud", tmp_path / "made", home)
    assert {path.relative_to(tmp_path / "made").as_posix() for path in written} == files(tmp_path / "made")
    assert files(tmp_path / "made") == {
        "CHANGELOG.md",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/trackside_acme_cloud/__init__.py",
        "src/trackside_acme_cloud/py.typed",
        "src/trackside_acme_cloud/reporter.py",
        "tests/conftest.py",
        "tests/fake/acme_cloud/__init__.py",
        "tests/test_acme_cloud.py",
    }
    project = tomllib.loads((tmp_path / "made/pyproject.toml").read_text())["project"]
    assert project["name"] == "trackside-acme-cloud"
    assert project["entry-points"]["trackside.reporters"] == {"acme_cloud": "trackside_acme_cloud:AcmeCloudCallback"}
    text = "".join(path.read_text() for path in written)
    assert not re.search(r"\$\w|\$\{|NAME", text)


def test_each_home_gets_what_it_needs(tmp_path):
    tools = {}
    for home in ("repository", "project"):
        make("acme", tmp_path / home, home)
        tools[home] = set(tomllib.loads((tmp_path / home / "pyproject.toml").read_text())["tool"])
    assert tools == {"repository": {"trackside"}, "project": {"pytest"}}
    assert 'pip install "trackside[acme]"' in (tmp_path / "repository/README.md").read_text()
    assert "pip install trackside-acme\n" in (tmp_path / "project/README.md").read_text()


@pytest.mark.parametrize("name", ["acme", "zeta"])
def test_imports_stand_in_their_order_whatever_the_name(tmp_path, name):
    make(name, tmp_path / name, "project")
    lines = (tmp_path / name / "tests/conftest.py").read_text().splitlines()
    ours = [line for line in lines if line.startswith("from trackside")]
    assert ours == sorted(ours)
    assert any(f"trackside_{name} " in line for line in ours)


@pytest.mark.parametrize("name", [*MISSPELLED, "class", "json", "torch", "all", "pytest", "a" * (LONGEST_NAME + 1)])
def test_a_bad_name_is_refused_in_one_sentence_and_makes_nothing(tmp_path, name):
    with pytest.raises(ValueError, match=r"^'[^\n]+\.$"):
        make(name, tmp_path / "made", "project")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_stays_as_it_is(tmp_path):
    with pytest.raises(FileExistsError):
        make("acme", tmp_path, "project")
    assert list(tmp_path.iterdir()) == []
