"""What the README says of a journal is what is written and read."""

import json
import math
import re
from pathlib import Path

import pytest

from trackside_spool.folder import run_folders
from trackside_spool.journal import Notes, Reader, decode_record, encode_record, read_run
from trackside_testkit import FakeLoop, RecordingReporter

README = (Path(__file__).parents[1] / "README.md").read_text()
EXAMPLE = re.search(r"```json\n(.*?)```", README, re.S).group(1)
CODE = re.findall(r"```python\n(.*?)```", README, re.S)
NOTES = ("skip", "resumed")


@pytest.fixture
def journal():
    path = Path("out/_trackside/baseline-0123456789ab/journal.jsonl")
    path.parent.mkdir(parents=True)
    path.write_text(EXAMPLE)
    return path


def lines(text):
    _, *others = map(json.loads, text.splitlines())
    return others


def test_the_example_is_read_as_it_says(journal):
    run, notes = read_run(journal), Notes.of(journal)
    assert (run.id, run.name, run.params) == ("0123456789ab", "baseline", {"learning_rate": 0.1})
    records = Reader(journal).read(100)
    assert [(number, record.kind, record.step) for number, record in records] == [
        (0, "log", 10), (1, "evaluate", 10), (2, "artifact", 10), (3, "log", 20), (4, "finished", 10),
    ]  # fmt: skip
    assert math.isnan(records[0][1].values["grad_norm"])
    assert [number for number, record in records if notes.is_for("mlflow", number, record)] == [0, 1, 2, 4]
    assert [number for number, record in records if notes.is_for("wandb", number, record)] == [0, 1, 2, 4]
    assert notes.skipped == {"mlflow": {3}}
    assert notes.params == {"learning_rate": 0.5}


def test_the_records_of_the_example_are_written_just_so():
    records = [line for line in lines(EXAMPLE) if line["kind"] not in NOTES]
    written = b"".join(encode_record(decode_record(line)) for line in records)
    assert written.decode().splitlines() == [line for line in EXAMPLE.splitlines() if json.loads(line) in records]


def test_a_run_writes_the_fields_that_the_example_has():
    late = RecordingReporter()
    FakeLoop([RecordingReporter()], output_dir="out", num_train_epochs=1).train()
    loop = FakeLoop([RecordingReporter()], output_dir="out", learning_rate=0.5)
    loop.train(resume_from="out/checkpoint-4")
    loop.handler.add_callback(late)
    loop.log({"loss": 1.0})
    loop.handler.remove_callback(late)
    loop.log({"loss": 1.0})
    loop.handler.add_callback(late)
    loop.log({"loss": 1.0})
    late.close()
    (folder,) = run_folders(Path("out"))
    fields = {line["kind"]: set(line) for line in lines(EXAMPLE)}
    assert {line["kind"]: set(line) for line in lines(folder.journal.read_text())} == fields
    header, documented = (json.loads(text.splitlines()[0]) for text in (folder.journal.read_text(), EXAMPLE))
    assert header.keys() == documented.keys()
    assert documented["run"].keys() <= header["run"].keys()


def test_the_files_of_a_run_are_those_of_the_table():
    FakeLoop([RecordingReporter()], output_dir="out").train()
    (folder,) = run_folders(Path("out"))
    table = README.partition("| file | what it is |")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`([\w<>.]+)`", "".join(row.split("|")[1] for row in table.splitlines()[2:])))
    written = {path.name.replace("recording", "<tracker>") for path in folder.path.iterdir()}
    assert written == documented - {"marks", "couriers.log"}  # those of a courier process


@pytest.mark.parametrize("code", CODE)
def test_the_code_runs(code, journal):
    names = {}
    exec(code, names)
    if "table" in names:
        assert list(names["table"]["kind"])[1:] == [line["kind"] for line in lines(EXAMPLE)]
