"""The command as a person types it, and the runs and trackers that it is typed about."""

import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from trackside import Run
from trackside.records import Record
from trackside_command import main
from trackside_spool.folder import RunFolder
from trackside_spool.journal import Journal, encode, encode_record

BEGAN = 1_767_225_600.0
COMMAND = [sys.executable, "-c", "from trackside_command import main; main()"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("TRACKSIDE_", "TENSORBOARD_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def typed():
    """Types a command, and returns its exit code and what it has printed, errors included."""

    def typed(*words):
        done = CliRunner().invoke(main, words)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    return typed


@pytest.fixture
def typed_at_a_terminal():
    """Types a command at a terminal of so many columns, and returns what that shows."""

    def typed(columns, *words):
        terminal, end = pty.openpty()
        env = {**os.environ, "COLUMNS": str(columns), "TERM": "dumb", "PYTHONPATH": os.pathsep.join(sys.path)}
        with subprocess.Popen([*COMMAND, *words], stdin=end, stdout=end, stderr=end, env=env):
            os.close(end)
            shown = b"".join(iter(lambda: _read(terminal), b""))
        os.close(terminal)
        return shown.decode().replace("\r\n", "\n")

    return typed


def _read(terminal):
    try:
        return os.read(terminal, 65536)
    except OSError:  # nobody writes any more
        return b""


@pytest.fixture
def typed_to_a_file():
    """Types a command whose output goes into a file; returns what it has printed there and what as errors."""

    def typed(*words, **variables):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
        done = subprocess.run([*COMMAND, *words], capture_output=True, env=env, timeout=60)
        return done.stdout, done.stderr

    return typed


@pytest.fixture
def write_run():
    """Writes the journal of a run: values by step, or `{"kind": ...}` for a note; returns its folder."""

    def write_run(*entries, name="baseline", run_id="0123456789ab", below="out", status="finished", **params):
        run = Run(run_id, name, below, args=params, time=BEGAN)
        folder = RunFolder.of(run)
        journal = Journal(folder.journal, run)
        for count, entry in enumerate(entries, 1):
            if isinstance(entry, dict):
                journal.append(encode(entry))
            else:
                step, values = entry
                journal.append(encode_record(Record("log", step, step / 10, BEGAN + count, values)))
        if status is not None:
            journal.append(encode_record(Record("finished", len(entries), None, BEGAN + 60, status=status)))
        return folder

    return write_run


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """Installs an integration: a module with a reporter, and what the metadata of its distribution say."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)

    def publish(name, body="", requires=(), version="1.5"):
        code = PREAMBLE.format(name=name) + textwrap.indent(textwrap.dedent(body), "    ")
        (site / f"trackside_{name}.py").write_text(code)
        about = site / f"trackside_{name}-{version}.dist-info"
        about.mkdir()
        needed = "".join(f"Requires-Dist: {one}\n" for one in ("trackside-core>=0.1", *requires))
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: trackside-{name}\nVersion: {version}\n{needed}")
        (about / "entry_points.txt").write_text(f"[trackside.reporters]\n{name} = trackside_{name}:Tracker\n")
        published.append(f"trackside_{name}")

    published = []
    yield publish
    for module in published:
        sys.modules.pop(module, None)


PREAMBLE = """
import threading
from pathlib import Path
from trackside import Configured, Reporter, env

calls = []
gate = threading.Event()

class Tracker(Reporter):
    name = "{name}"
    api_key = env("{name}_api_key".upper())
    logging_dir = env("{name}_logging_dir".upper())
    is_quick = env("{name}_is_quick".upper(), True)

    def start(self, run):
        calls.append(("start", run.name))
        return run.tracker_id or self.resume

    def log_points(self, points):
        calls.append(("log_points", [dict(point.values) for point in points]))

    def finish(self, status):
        calls.append(("finish", status))

"""


def contents(folder):
    """What all files below a folder hold."""
    return {path: path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
