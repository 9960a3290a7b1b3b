"""Pages that are made from the packages are as these are now."""

import subprocess
import sys

from house import ROOT


def test_the_page_of_all_trackers_is_made_anew_when_one_of_them_changes():
    source = "import make_trackers; print(make_trackers.page(), end='')"
    made = subprocess.run(
        [sys.executable, "-B", "-c", source], cwd=ROOT / "docs", capture_output=True, text=True, timeout=60, check=True
    )
    written = (ROOT / "docs/trackers.md").read_text("utf-8")
    assert written == made.stdout, "type: python docs/make_trackers.py"
