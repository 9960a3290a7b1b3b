"""Everything that is checked, built or shown from here; CONTRIBUTING.md explains the sessions.

Packages are found by their folders. A requirement that is a package of ours is taken from its folder, together with
those of ours that it needs in turn; pip is never asked for one of ours by name.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import nox
from nox.project import dependency_groups, load_toml
from packaging.requirements import Requirement

nox.options.sessions = ["tests"]
nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False  # not on CI either: the core is tested on the Pythons that are there

ROOT = Path(__file__).parent
CORE_PYTHONS = ["3.10", "3.11", "3.12", "3.13"]
SESSIONS_OF_THEIR_OWN = ["tests/parity", "tests/wheels", "tests/faults", "tests/together", "tests/test_template.py"]
# An environment sees what was installed into it, and nothing that a developer's shell adds.
ENVIRONMENT = {"PYTHONPATH": None, "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".nox/hypothesis")}

PATTERNS = ["core/pyproject.toml", "packages/*/pyproject.toml", "integrations/*/pyproject.toml"]
PROJECTS = {file.parent: load_toml(file)["project"] for pattern in PATTERNS for file in sorted(ROOT.glob(pattern))}
FOLDERS = {project["name"]: folder for folder, project in PROJECTS.items()}

# pyenv keeps those Pythons off the PATH that are not activated.
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], *map(str, sorted(PYENV.glob("versions/*/bin")))])


def members() -> Iterator[nox.param]:
    """What is tested separately: each package, the core on each further Python, and the repository as a whole."""
    for folder in PROJECTS:
        if (folder / "tests").is_dir():
            yield nox.param(folder, None, id=folder.name.removeprefix("trackside-"))
    for python in CORE_PYTHONS:
        if python != f"{sys.version_info.major}.{sys.version_info.minor}":
            yield nox.param(ROOT / "core", python, id=f"core-{python}")
    yield nox.param(ROOT, None, id="repository")


def group(name: str, folder: Path = ROOT) -> list[str]:
    """A dependency group of a folder's pyproject.toml."""
    return list(dependency_groups(load_toml(folder / "pyproject.toml"), name))


def name_of(requirement: str) -> str:
    return Requirement(requirement).name


def ours(requirements: Iterable[str]) -> set[Path]:
    """The folders of our packages among the requirements, and of those that these need in turn."""
    folders = {FOLDERS[name] for name in map(name_of, requirements) if name in FOLDERS}
    return folders.union(*(ours(PROJECTS[folder].get("dependencies", [])) for folder in folders))


def sdk_of(folder: Path) -> set[str]:
    """The names in the dependency group `sdk` of an integration: what its own tests do without."""
    entries = load_toml(folder / "pyproject.toml").get("dependency-groups", {}).get("sdk", [])
    return {name_of(entry) for entry in entries if isinstance(entry, str)}


def sdks() -> Iterator[nox.param]:
    """Each integration with its tracker's SDK: the latest version, and the oldest that the package admits."""
    for folder in filter(sdk_of, PROJECTS):
        yield nox.param(folder, [], id=folder.name)
        yield nox.param(folder, group("oldest", folder), id=f"{folder.name}-oldest")


def lives_with_others(folder: Path) -> bool:
    """Whether an integration and its SDK can be installed beside all others."""
    return bool(load_toml(folder / "pyproject.toml").get("tool", {}).get("trackside", {}).get("together", True))


def install(session: nox.Session, requirements: Iterable[str], sdks: bool = True) -> None:
    """Install everything in one pip call, so that pip finds what is ours and looks nowhere else for it.

    Without SDKs, an integration is installed with what else it needs.
    """
    requirements = list(requirements)
    folders = ours(requirements)
    bare = set() if sdks else {folder for folder in folders if sdk_of(folder)}
    for folder in bare:
        requirements += [need for need in PROJECTS[folder]["dependencies"] if name_of(need) not in sdk_of(folder)]
    others = [requirement for requirement in requirements if name_of(requirement) not in FOLDERS]
    session.install("--constraint", "constraints.txt", *map(str, sorted(folders - bare)), *others)
    if bare:
        session.install("--no-deps", *map(str, sorted(bare)))


def pytest(session: nox.Session, *arguments: str, success_codes: Iterable[int] = (0,)) -> None:
    """Run pytest with an empty home, in which it also leaves what it has to leave."""
    with tempfile.TemporaryDirectory() as home:
        places = dict.fromkeys(["HOME", "USERPROFILE", "TMPDIR"], home)
        environment = {**ENVIRONMENT, **places}
        session.run("pytest", *arguments, *session.posargs, env=environment, success_codes=success_codes)


@nox.session
@nox.parametrize("folder, python", members())
def tests(session: nox.Session, folder: Path) -> None:
    """Test one package with its own dependencies and no others, an integration against a fake SDK if it has one."""
    dist = [PROJECTS[folder]["name"]] if folder in PROJECTS else []
    install(session, [*dist, *group("test", folder)], sdks=False)
    ignored = [f"--ignore={other}" for other in SESSIONS_OF_THEIR_OWN]
    pytest(session, str(folder.relative_to(ROOT) / "tests"), *ignored, "-m", "not sdk")


@nox.session
@nox.parametrize("folder, versions", sdks())
def sdk(session: nox.Session, folder: Path, versions: list[str]) -> None:
    """Test an integration with the real SDK of its tracker, without a network."""
    install(session, [PROJECTS[folder]["name"], *group("sdk", folder), *versions])
    pytest(session, str(folder.relative_to(ROOT) / "tests"), "-m", "sdk")


@nox.session
def together(session: nox.Session) -> None:
    """Have all integrations in one environment: the contract of each again, its fake beside its SDK, and the example.

    One that cannot live beside others says so in its pyproject.toml.
    """
    folders = [folder for folder in PROJECTS if folder.parent.name == "integrations" and lives_with_others(folder)]
    groups = list(group("demo"))
    for folder in folders:
        groups += group("sdk" if sdk_of(folder) else "test", folder)
    install(session, ["trackside", *(PROJECTS[folder]["name"] for folder in folders), *groups])
    session.run("pip", "check")
    for folder in folders:
        tests = str(folder.relative_to(ROOT) / "tests")
        pytest(session, tests, "-m", "not sdk", "-n", "2")
        pytest(session, tests, "-m", "sdk", "-k", "fake", success_codes=[0, 5])  # 5: it needs no fake
    pytest(session, "tests/together")


@nox.session
def new(session: nox.Session) -> None:
    """Make the integration of a tracker from the template: nox -s new -- NAME."""
    if len(session.posargs) != 1:
        session.error("Say how the tracker is called: nox -s new -- NAME")
    install(session, group("new"))
    session.run("python", "tools/new.py", *session.posargs, env=ENVIRONMENT)


@nox.session
def template(session: nox.Session) -> None:
    """Follow the steps of CONTRIBUTING.md to a new integration, and build, install and test it."""
    install(session, group("template"))
    pytest(session, "tests/test_template.py", "-n", "2")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    install(session, group("lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types: the core alone and strictly, for the oldest Python; then the others, with all they need."""
    install(session, [*FOLDERS, *group("types")], sdks=False)
    session.run("mypy", "--strict", "--python-version", CORE_PYTHONS[0], "core/src")
    session.run(
        "mypy", *(str(source.relative_to(ROOT)) for folder in PROJECTS for source in folder.glob("src/trackside_*"))
    )


@nox.session
def build(session: nox.Session) -> None:
    """Build every wheel, each from its sdist, into dist/."""
    install(session, group("build"))
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    for folder in PROJECTS:
        session.run("python", "-m", "build", "--no-isolation", "--outdir", "dist", str(folder.relative_to(ROOT)))


@nox.session(requires=["build"], reuse_venv=False)
def wheels(session: nox.Session) -> None:
    """Install all wheels that can live together into a clean environment, and look at what a user then has."""
    names = [project["name"].replace("-", "_") for folder, project in PROJECTS.items() if lives_with_others(folder)]
    wheels = [str(wheel) for name in names for wheel in ROOT.glob(f"dist/{name}-*.whl")]
    session.install("--constraint", "constraints.txt", *wheels, *group("test"))
    session.run("pip", "check")
    pytest(session, "tests/wheels")


@nox.session
def demo(session: nox.Session) -> None:
    """Train the example on real data and report it to TensorBoard."""
    install(session, group("demo"))
    session.run("python", "examples/digits.py", "--output-dir", "out/digits", *session.posargs, env=ENVIRONMENT)
    tensorboard = (Path(session.bin) / "tensorboard").relative_to(ROOT)
    session.log(f"Look at the curves with: {tensorboard} --logdir out/digits")


@nox.session
def parity(session: nox.Session) -> None:
    """Run our callbacks inside `transformers.Trainer`, and theirs inside ours."""
    install(session, group("parity"))
    pytest(session, "tests/parity")


@nox.session
def faults(session: nox.Session) -> None:
    """Break things on purpose: kill trainings, fill disks, take servers away. On CI fewer trainings are killed."""
    install(session, group("faults"))
    os.environ.setdefault("TRACKSIDE_KILLS", "3" if os.environ.get("CI") else "100")
    pytest(session, "tests/faults", "-n", "2")


@nox.session
def benchmarks(session: nox.Session) -> None:
    """Measure us beside `transformers`, in one run."""
    install(session, group("benchmarks"))
    for script in sorted(ROOT.glob("benchmarks/*.py")):
        if "__main__" in script.read_text("utf-8"):
            session.run("python", str(script.relative_to(ROOT)), env=ENVIRONMENT)
