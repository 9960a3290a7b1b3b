"""A repository of Git and DVC."""

from pathlib import Path

EXPERIMENTS = {}


class Repository:
    def __init__(self, root):
        self.root = root
        self.added = []


def find(name):
    here = Path.cwd()
    return next((folder for folder in (here, *here.parents) if (folder / name).exists()), None)


def get_dvc_repo():
    """As the real one, it makes one where there is only Git."""
    root = find(".dvc") or find(".git")
    if root is None:
        return None
    (root / ".dvc").mkdir(exist_ok=True)
    return Repository(root)
