"""Makes a new integration in this repository, and offers it with the umbrella: `nox -s new -- NAME`."""

import sys
from pathlib import Path

import tomlkit
from packaging.requirements import Requirement

from trackside_testkit.new import dist_of, make

ROOT = Path(__file__).parents[1]
UMBRELLA = ROOT / "packages/trackside/pyproject.toml"


def add_extra(pyproject: Path, name: str) -> None:
    """Let the umbrella have an extra for an integration, and have `all` bring it too."""
    document = tomlkit.parse(pyproject.read_text("utf-8"))
    extras = document["project"]["optional-dependencies"]
    everything = Requirement(extras.pop("all")[0])
    everything.extras.add(name)
    extras[name] = [f"{dist_of(name)}>=0.1"]
    extras["all"] = [str(everything)]
    pyproject.write_text(tomlkit.dumps(document), "utf-8")


def main(name: str) -> None:
    folder = ROOT / "integrations" / name
    try:
        make(name, folder, "repository")
    except FileExistsError:
        sys.exit(f"There is an integration {name!r} already: {folder.relative_to(ROOT)}.")
    except ValueError as error:
        sys.exit(str(error))
    add_extra(UMBRELLA, name)


if __name__ == "__main__":
    main(sys.argv[1])
