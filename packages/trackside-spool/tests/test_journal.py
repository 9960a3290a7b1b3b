import json
import math
import os
import resource
import subprocess
import sys

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackside_spool import JournalError
from trackside_spool.journal import Journal, Notes, Reader, count_records, decode_record, encode, read_run


def line(number, **values):
    return encode({"kind": "log", "step": number, "epoch": 0.5, "time": 1e9, "values": values or {"loss": 0.5}})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "journal.jsonl"


@pytest.fixture
def journal(path, run):
    return Journal(path, run)


def steps(path):
    return [record.step for _, record in Reader(path).read(10_000)]


def test_it_says_what_it_is_and_of_which_run(journal, path, run):
    first = json.loads(path.read_text().splitlines()[0])
    assert (first["format"], first["version"], first["run"]["args"]) == ("trackside-journal", 1, {"lr": 0.1})
    assert read_run(path) == run


def test_what_was_appended_is_read_in_order(journal, path):
    for number in range(5):
        journal.append(line(number))
    assert steps(path) == [0, 1, 2, 3, 4]
    assert count_records(path) == 5


def test_any_table_library_reads_it(journal, path):
    journal.append(line(1, loss=0.5))
    journal.append(line(2, loss=math.nan, grad_norm=math.inf))
    table = pd.read_json(path, lines=True)
    records = table[table["kind"] == "log"]
    assert list(records["step"]) == [1, 2]
    assert records["values"].iloc[1] == {"loss": "NaN", "grad_norm": "Infinity"}


def refuse(token):
    raise AssertionError(f"{token} is no JSON")


FINITE_OR_NOT = st.floats() | st.integers(-(2**63), 2**63 - 1) | st.booleans()
TEXT = st.text().filter(lambda text: text not in ("NaN", "Infinity", "-Infinity"))


@given(st.dictionaries(st.text(), FINITE_OR_NOT | st.none() | TEXT))
def test_any_plain_value_comes_back_from_standard_json(values):
    encoded = encode({"kind": "log", "step": 1, "epoch": None, "time": 0.5, "values": values})
    assert encoded.count(b"\n") == 1
    record = decode_record(json.loads(encoded, parse_constant=refuse))
    assert repr(dict(record.values)) == repr(values)


@settings(max_examples=50)
@given(cut=st.integers(2, 60))
def test_a_line_that_a_crash_has_torn_is_left_out_and_nothing_before_it(tmp_path_factory, cut):
    from trackside import Run

    path = tmp_path_factory.mktemp("torn") / "journal.jsonl"
    run = Run("id", "name", str(path.parent))
    journal = Journal(path, run)
    for number in range(3):
        journal.append(line(number))
    os.truncate(path, path.stat().st_size - cut)
    whole = steps(path)
    assert whole == [0, 1]
    after = Journal(path, run)
    after.append(line(9))
    assert steps(path) == [0, 1, 9]
    assert count_records(path) == 3


def test_a_reader_goes_on_where_it_stopped(journal, path):
    reader = Reader(path)
    journal.append(line(0))
    assert [number for number, _ in reader.read(10)] == [0]
    assert reader.read(10) == []
    for number in range(1, 6):
        journal.append(line(number))
    assert [number for number, _ in reader.read(2)] == [1, 2]
    assert [number for number, _ in reader.read(10, before=4)] == [3]
    again = Reader(path, reader.number, reader.offset)
    assert [record.step for _, record in again.read(10)] == [4, 5]


def test_half_a_line_waits_until_it_is_whole(journal, path):
    whole = line(7)
    reader = Reader(path)
    os.write(journal._file, whole[:20])
    assert reader.read(10) == []
    os.write(journal._file, whole[20:])
    assert [record.step for _, record in reader.read(10)] == [7]


def test_lines_that_are_no_records_are_counted_and_passed_over(journal, path):
    for bad in (b"not json\n", b'{"kind":"log"}\n', b'{"kind":"log", broken\n'):
        journal.append(bad)
    journal.append(encode({"kind": "skip", "tracker": "a", "first": 0, "end": 2}))
    journal.append(line(1))
    reader = Reader(path)
    assert [number for number, _ in reader.read(10)] == [0]
    assert reader.torn == 3
    assert Notes.of(path).skipped == {"a": {0, 1}}


@pytest.mark.parametrize("text", ["", "hello\n", "[]\n", '{"format": "other", "version": 1}\n', "\x00\n"])
def test_a_file_that_is_no_journal_is_refused_with_its_name(path, text):
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(JournalError, match=r"journal\.jsonl is no journal"):
        read_run(path)


def test_a_journal_of_a_newer_version_is_refused_with_what_to_do(path, journal):
    path.write_text(path.read_text().replace('"version":1', '"version":2'))
    with pytest.raises(JournalError, match=r"newer version.*upgrade trackside-spool"):
        read_run(path)


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from trackside import Run
from trackside_spool.journal import Journal, count_records, encode
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path("journal.jsonl")
journal = Journal(path, Run("id", "name", "."))
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
line = lambda n: encode({"kind": "log", "step": n, "epoch": 0, "time": 0, "values": {"loss": 1.0}})
for number in range(100):
    journal.append(line(number))
full = count_records(path)
assert 5 < full < 50 and full + len(journal.unprotected) == 100, (full, len(journal.unprotected))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(line(100))
assert count_records(path) == 101 and not journal.unprotected
"""


def test_on_a_full_disk_records_wait_in_memory_and_follow_when_there_is_room():
    done = subprocess.run([sys.executable, "-c", FULL_DISK], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written") == 1


def test_a_million_records_are_read_in_little_memory(tmp_path, run):
    """A tenth of a million here, in a process that may not grow by more than 64 MB."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, run)
    block = b"".join(line(number, **{f"m{i}": 0.5 for i in range(10)}) for number in range(1000))
    for _ in range(100):
        journal.append(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader, count = Reader(path), 0
    while records := reader.read(200):
        count += len(records)
    assert count == 100_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
