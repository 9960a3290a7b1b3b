"""One name rules an integration, and every package brings what a package has to bring."""

import re
from collections.abc import Iterator

import pytest
from house import REPORTERS, ROOT, Package, class_attribute, packages

PACKAGES = packages()
INTEGRATIONS = [package for package in PACKAGES if package.is_integration]


def name_of(package):
    return package.folder.name


def misnamed(integration: Package) -> Iterator[str]:
    """What does not spell the folder's name, as sentences."""
    name = integration.folder.name
    module = f"trackside_{name}"
    registered = integration.project.get("entry-points", {}).get(REPORTERS, {})
    target_module, _, class_name = registered.get(name, "").partition(":")
    if integration.dist != f"trackside-{name.replace('_', '-')}":
        yield f"the dist of {name} is {integration.dist}"
    if integration.modules != [module]:
        yield f"{name} has the modules {integration.modules}, not {module}"
    if list(registered) != [name]:
        yield f"{name} registers {list(registered)}"
    elif target_module != module:
        yield f"{name} registers a class of {target_module}, not of {module}"
    elif (attribute := class_attribute(integration.sources, class_name, "name")) != name:
        yield f"the name of {class_name or 'no class'} is {attribute}, not {name}"


def wrong_extras(umbrella: Package, integrations: list[Package]) -> Iterator[str]:
    """Where the umbrella's extras are not exactly the integrations, and `all` that live together, as sentences.

    Those that bring nothing of ours are for its command.
    """
    offered = umbrella.project["optional-dependencies"]
    extras = {name: brought for name, brought in offered.items() if any("trackside" in one for one in brought)}
    all_of_them = re.fullmatch(r"trackside\[(.*)\]", "".join(extras.pop("all", [])))
    names = {integration.folder.name: integration.dist for integration in integrations}
    if set(extras) != set(names):
        yield f"the extras are {sorted(extras)}, the integrations {sorted(names)}"
    for name in extras.keys() & names.keys():
        if [re.split(r"[^\w-]", requirement)[0] for requirement in extras[name]] != [names[name]]:
            yield f"the extra {name} installs {extras[name]}"
    together = {integration.folder.name for integration in integrations if integration.lives_with_others}
    if not all_of_them or set(all_of_them[1].split(",")) != together:
        yield f"the extra all is {umbrella.project['optional-dependencies'].get('all')}"


def missing(package: Package, licence: str) -> Iterator[str]:
    """What a package does not bring, as sentences."""
    project = package.project
    for file in ("LICENSE", "README.md", "CHANGELOG.md"):
        if not (package.folder / file).is_file():
            yield f"{package.dist} has no {file}"
        elif file == "LICENSE" and (package.folder / file).read_text("utf-8") != licence:
            yield f"{package.dist} has another LICENSE than the repository"
        elif file == "CHANGELOG.md" and newest_version(package) != project["version"]:
            yield f"the CHANGELOG.md of {package.dist} needs a heading `## {project['version']}` above all others"
    for module in package.modules:
        if not (package.folder / "src" / module / "py.typed").is_file():
            yield f"{package.dist} has no py.typed"
        if not list(package.folder.glob("tests/**/test_*.py")):
            yield f"{package.dist} has no tests"
    if project["license"] != "Apache-2.0" or project["requires-python"] != ">=3.10":
        yield f"{package.dist} has a licence or an oldest Python of its own"


def newest_version(package: Package) -> str | None:
    headings = re.findall(r"^## (\S+)", (package.folder / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    return headings[0] if headings else None


@pytest.mark.parametrize("integration", INTEGRATIONS, ids=name_of)
def test_an_integration_has_one_name(integration):
    assert "\n".join(misnamed(integration)) == ""


@pytest.mark.parametrize("integration", INTEGRATIONS, ids=name_of)
def test_the_readme_of_an_integration_says_how_to_install_it(integration):
    readme = (integration.folder / "README.md").read_text("utf-8")
    assert f'pip install "trackside[{integration.folder.name}]"' in readme


@pytest.mark.parametrize("package", [package for package in PACKAGES if not package.is_integration], ids=name_of)
def test_the_dist_of_a_package_is_its_folder(package):
    assert package.dist == {"core": "trackside-core"}.get(package.folder.name, package.folder.name)


@pytest.mark.parametrize("package", PACKAGES, ids=name_of)
def test_a_package_brings_its_licence_readme_changelog_types_and_tests(package):
    assert "\n".join(missing(package, (ROOT / "LICENSE").read_text("utf-8"))) == ""


def test_the_extras_of_the_umbrella_are_the_integrations_and_all():
    assert "\n".join(wrong_extras(Package(ROOT / "packages/trackside"), INTEGRATIONS)) == ""


GOOD = {
    "integrations/comet_ml/pyproject.toml": """
        [project]
        name = "trackside-comet-ml"
        version = "0.2.0"
        license = "Apache-2.0"
        requires-python = ">=3.10"
        [project.entry-points."trackside.reporters"]
        comet_ml = "trackside_comet_ml:CometCallback"
        """,
    "integrations/comet_ml/src/trackside_comet_ml/__init__.py": "from .reporter import CometCallback",
    "integrations/comet_ml/src/trackside_comet_ml/reporter.py": 'class CometCallback:\n    name = "comet_ml"',
    "integrations/comet_ml/src/trackside_comet_ml/py.typed": "",
    "integrations/comet_ml/tests/test_comet_ml.py": "",
    "integrations/comet_ml/README.md": "",
    "integrations/comet_ml/CHANGELOG.md": "# Changelog\n\n## 0.2.0\n",
    "integrations/comet_ml/LICENSE": "the licence",
    "packages/trackside/pyproject.toml": """
        [project]
        name = "trackside"
        [project.optional-dependencies]
        comet_ml = ["trackside-comet-ml>=0.1"]
        plot = ["altair>=5"]
        all = ["trackside[comet_ml]"]
        """,
}


@pytest.fixture
def complaints(tmp_path):
    """A function that says what is wrong with the good tree after one file was changed, or removed by None."""

    def find(file: str, old: str, new: str | None) -> list[str]:
        for name, text in GOOD.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        changed = next(tmp_path.glob(f"*/{file}"))
        assert old in changed.read_text()
        if new is None:
            changed.unlink()
        else:
            changed.write_text(changed.read_text().replace(old, new))
        integration = Package(tmp_path / "integrations/comet_ml")
        umbrella = Package(tmp_path / "packages/trackside")
        return [
            *misnamed(integration),
            *missing(integration, "the licence"),
            *wrong_extras(umbrella, [integration]),
        ]

    return find


def test_a_good_tree_gets_no_complaint(complaints):
    assert complaints("comet_ml/README.md", "", "") == []


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        ("comet_ml/pyproject.toml", "trackside-comet-ml", "trackside-comet", "the dist of comet_ml is"),
        ("comet_ml/pyproject.toml", "comet_ml =", "comet =", "comet_ml registers"),
        ("comet_ml/pyproject.toml", "comet_ml:", "comet:", "registers a class of"),
        ("comet_ml/pyproject.toml", ":CometCallback", ":CometReporter", "the name of CometReporter is None"),
        ("comet_ml/pyproject.toml", "trackside.reporters", "trackside.reporter", "comet_ml registers"),
        ("comet_ml/pyproject.toml", "Apache-2.0", "MIT", "licence"),
        ("comet_ml/pyproject.toml", ">=3.10", ">=3.11", "oldest Python"),
        ("comet_ml/pyproject.toml", "0.2.0", "0.3.0", "needs a heading `## 0.3.0` above all others"),
        ("comet_ml/CHANGELOG.md", "## 0.2.0", "", "the CHANGELOG.md of trackside-comet-ml needs a heading `## 0.2.0`"),
        ("comet_ml/src/trackside_comet_ml/reporter.py", '"comet_ml"', '"comet"', "the name of CometCallback is comet"),
        ("comet_ml/src/trackside_comet_ml/__init__.py", "", None, "has the modules []"),
        ("comet_ml/src/trackside_comet_ml/py.typed", "", None, "has no py.typed"),
        ("comet_ml/tests/test_comet_ml.py", "", None, "has no tests"),
        ("comet_ml/README.md", "", None, "has no README.md"),
        ("comet_ml/CHANGELOG.md", "", None, "has no CHANGELOG.md"),
        ("comet_ml/LICENSE", "", None, "has no LICENSE"),
        ("comet_ml/LICENSE", "the", "another", "has another LICENSE"),
        ("trackside/pyproject.toml", "comet_ml =", "comet-ml =", "the extras are"),
        ("trackside/pyproject.toml", "trackside-comet-ml", "trackside-comet", "the extra comet_ml installs"),
        ("comet_ml/pyproject.toml", "[project]", "[tool.trackside]\ntogether = false\n[project]", "the extra all is"),
        ("trackside/pyproject.toml", "trackside[comet_ml]", "trackside[]", "the extra all is"),
        ("trackside/pyproject.toml", "trackside[comet_ml]", "trackside-comet-ml", "the extra all is"),
    ],
)
def test_a_tree_with_one_fault_gets_its_complaint(complaints, file, old, new, complaint):
    assert complaint in "\n".join(complaints(file, old, new))
