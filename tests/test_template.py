"""A new tracker, by the steps of CONTRIBUTING.md and by `trackside new`: what comes of it is complete and passes."""

import difflib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv

import pytest
import tomlkit
from house import ROOT

from trackside_testkit.new import LONGEST_NAME, make

STEPS = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("\n## Add a tracker\n")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^ +((?:nox|python) .*)$", STEPS, re.MULTILINE)

NOX = [sys.executable, "-m", "nox", "--no-venv", "--no-install"]
# The sessions for which this one's environment has all that they need, and what they are told on top.
SESSIONS_HERE = {"new": [], "tests(repository)": ["-k", "acme or extras or every_package or page"], "lint": []}


def run(folder, *command):
    """Run a command in a folder; returns its exit code and all that it has printed."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
    return done.returncode, done.stdout


def succeed(folder, *command):
    code, output = run(folder, *command)
    assert code == 0, output
    return output


@pytest.fixture
def clone(tmp_path):
    """This repository, without what is made in it."""
    made = shutil.ignore_patterns(".*", "__pycache__", "dist", "out", "runs")
    return shutil.copytree(ROOT, tmp_path / "clone", ignore=made)


def typed(clone, command):
    """Do what somebody types who follows the steps, where that can run here; a session must be there in any case."""
    program, *words = shlex.split(command)
    if program == "python":
        succeed(clone, sys.executable, *words)
        return
    assert (program, words[0]) == ("nox", "-s")
    sessions, _, arguments = " ".join(words[1:]).partition(" -- ")
    listed = succeed(clone, *NOX, "--list")
    for session in sessions.split():
        assert f" {session} " in listed
        if session in SESSIONS_HERE:
            succeed(clone, *NOX, "-s", session, "--", *arguments.split(), *SESSIONS_HERE[session])


def name_the_sdk(pyproject):
    """What the author of an integration does by hand where its tracker has an SDK to install."""
    document = tomlkit.parse(pyproject.read_text("utf-8"))
    document["project"]["dependencies"].append("acme-sdk>=1,<2")
    document["dependency-groups"]["sdk"] = ["pytest", "acme-sdk"]
    document["dependency-groups"]["oldest"] = ["acme-sdk==1.0"]
    pyproject.write_text(tomlkit.dumps(document), "utf-8")


def test_five_steps_lead_to_an_integration_that_the_repository_takes(clone):
    assert re.findall(r"^(\d)\. \*\*", STEPS, re.MULTILINE) == list("12345")
    first, *others = COMMANDS
    typed(clone, first)
    name_the_sdk(clone / "integrations/acme/pyproject.toml")
    for command in others:
        typed(clone, command)
    assert "[acme](../integrations/acme) | `acme-sdk" in (clone / "docs/trackers.md").read_text("utf-8")


def test_only_the_extras_of_the_umbrella_change(clone):
    before = {path: path.read_bytes() for path in clone.rglob("*") if path.is_file()}
    typed(clone, "nox -s new -- acme")
    (changed,) = [path for path, contents in before.items() if path.read_bytes() != contents]
    assert changed == clone / "packages/trackside/pyproject.toml"
    lines = difflib.ndiff(before[changed].decode().splitlines(), changed.read_text("utf-8").splitlines())
    gone, *new = [line for line in lines if line[0] in "-+"]
    assert gone.startswith("- all = ")
    assert new[0] == '+ acme = ["trackside-acme>=0.1"]'
    assert re.fullmatch(r'\+ all = \["trackside\[acme,.*\]"\]', new[1])
    assert len(new) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Acme"], "'Acme' is no name: it takes lower-case letters and digits"),
        (["tensorboard"], "There is an integration 'tensorboard' already: integrations/tensorboard."),
        ([], "nox -s new -- NAME"),
        (["acme", "zeta"], "nox -s new -- NAME"),
    ],
)
def test_what_cannot_be_a_name_is_refused_in_a_sentence_and_changes_nothing(clone, arguments, said):
    before = {path: path.read_bytes() for path in clone.rglob("*") if path.is_file()}
    code, output = run(clone, *NOX, "-s", "new", "--", *arguments)
    assert code == 1
    assert sum(said in line for line in output.splitlines()) == 1
    assert "Traceback" not in output
    assert {path: path.read_bytes() for path in clone.rglob("*") if path in before} == before
    assert not (clone / "integrations/acme").exists()


@pytest.mark.parametrize("name", ["a", "zeta_cloud", "m" * LONGEST_NAME])
def test_under_any_name_it_is_in_the_style_of_the_house(clone, name):
    folder = clone / "integrations" / name
    make(name, folder, "repository")
    succeed(clone, "ruff", "check", "--no-cache", str(folder))
    succeed(clone, "ruff", "format", "--no-cache", "--check", str(folder))


@pytest.fixture(params=["repository", "project"])
def made(request, tmp_path):
    """The folder of a new package, inside this repository or not."""
    if request.param == "repository":
        clone = request.getfixturevalue("clone")
        typed(clone, COMMANDS[0])
        return clone / "integrations/acme"
    succeed(tmp_path, "trackside", "new", "acme")
    return tmp_path / "trackside-acme"


def test_it_can_be_built_and_installed_and_keeps_the_contract(made, tmp_path):
    succeed(made, sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path / "dist"))
    (wheel,) = (tmp_path / "dist").glob("trackside_acme-0.1.0-*.whl")
    python = environment_beside_this_one(tmp_path / "environment")
    succeed(tmp_path, sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", str(wheel))
    output = succeed(made, python, "-B", "-m", "pytest", "-rs", "tests")
    assert int(re.search(r"(\d+) passed", output)[1]) > 90
    assert "is not installed" not in output  # which would leave out what the entry point is


def environment_beside_this_one(folder):
    """A Python that has all that this one has, and can be given more."""
    venv.create(folder, with_pip=False)
    (python,) = [path for path in folder.glob("*/python*") if path.stem == "python"]
    packages = next(folder.rglob("site-packages"))
    packages.joinpath("beside.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})")
    return str(python)
