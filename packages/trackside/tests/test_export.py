"""The points of runs as a table that other programs read."""

import csv
import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BEGAN, COMMAND
from pyarrow import parquet

FIRST, SECOND = {"loss": 0.5, "epoch": 0.1}, {"loss": math.nan, "note": 'two\nlines, "quoted" ü'}


@pytest.fixture
def exported(typed):
    def exported(*words):
        code, output = typed("export", "out", *words)
        assert code == 0, output
        return output

    return exported


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_each_log_is_a_row_and_each_metric_a_column(exported, write_run):
    write_run((1, FIRST), (2, SECOND))
    first, second = rows_of(exported())
    assert first == {
        "run": "baseline",
        "run_id": "0123456789ab",
        "step": "1",
        "epoch": "0.1",
        "time": str(BEGAN + 1),
        "loss": "0.5",
        "note": "",
    }
    assert (second["loss"], second["note"]) == ("NaN", SECOND["note"])


def test_json_is_an_array_that_any_parser_reads(exported, write_run):
    write_run((1, FIRST), (2, SECOND))
    first, second = json.loads(exported("--format", "json"), parse_constant=pytest.fail)
    assert first == {
        "run": "baseline",
        "run_id": "0123456789ab",
        "step": 1,
        "epoch": 0.1,
        "time": BEGAN + 1,
        "loss": 0.5,
    }
    assert (second["loss"], second["note"]) == ("NaN", SECOND["note"])


def test_parquet_has_columns_of_one_type(exported, write_run):
    write_run(
        (1, {"loss": 1, "count": 1, "is_warm": True, "mixed": 1}),
        (2, {"loss": math.nan, "count": 2, "mixed": "two"}),
        (3, {"count": 3, "huge": 10**30, "many": list(range(100))}),
    )
    exported("-o", "points.parquet")
    table = parquet.read_table("points.parquet")
    types = {field.name: str(field.type) for field in table.schema}
    assert types == {
        "run": "string",
        "run_id": "string",
        "step": "int64",
        "epoch": "double",
        "time": "double",
        "loss": "double",
        "count": "int64",
        "is_warm": "bool",
        "mixed": "string",
        "huge": "double",
        "many": "string",
    }
    columns = table.to_pydict()
    assert columns["loss"][0] == 1.0
    assert math.isnan(columns["loss"][1])
    assert columns["loss"][2] is None
    assert columns["mixed"] == ["1", "two", None]
    assert columns["huge"][2] == 1e30
    assert json.loads(columns["many"][2]) == list(range(100))


def test_parquet_holds_more_rows_than_are_read_at_once(exported, write_run):
    write_run(*((step, {"loss": step / 2}) for step in range(25_000)))
    exported("-o", "points.parquet")
    assert parquet.read_table("points.parquet")["loss"].to_pylist() == [step / 2 for step in range(25_000)]


def test_several_runs_are_one_table_with_the_columns_of_all(exported, write_run):
    write_run((1, {"loss": 1.0}), run_id="a" * 12)
    write_run((1, {"reward": 2.0}), run_id="b" * 12)
    assert [(row["run_id"], row["loss"], row["reward"]) for row in rows_of(exported())] == [
        ("a" * 12, "1.0", ""),
        ("b" * 12, "", "2.0"),
    ]


def test_what_a_resume_has_made_void_is_left_out(exported, write_run):
    resumed = {"kind": "resumed", "first": 2, "step": 1}
    write_run((1, {"loss": 4.0}), (2, {"loss": 3.0}), resumed, (2, {"loss": 2.0}))
    assert [(row["step"], row["loss"]) for row in rows_of(exported())] == [("1", "4.0"), ("2", "2.0")]


def test_a_metric_that_is_called_like_a_key_keeps_its_values(exported, write_run):
    write_run((1, {"time": 7.5, "run": "fast"}))
    (row,) = rows_of(exported())
    assert (row["time"], row["time_"], row["run_"]) == (str(BEGAN + 1), "7.5", "fast")


@pytest.mark.parametrize(
    ("words", "begins"),
    [(["-o", "points.json"], b"[\n"), (["-o", "points.txt"], b"run,"), (["-o", "a.csv", "--format", "json"], b"[\n")],
)
def test_the_name_of_the_file_says_the_format_unless_it_is_told(exported, write_run, words, begins):
    write_run((1, FIRST))
    exported(*words)
    assert Path(words[1]).read_bytes().startswith(begins)


@pytest.mark.parametrize(("name", "empty"), [("csv", "run,run_id,step,epoch,time\n"), ("json", "[]\n")])
def test_a_run_without_values_is_an_empty_table(exported, write_run, name, empty):
    write_run()
    assert exported("--format", name) == empty


def test_a_file_is_replaced_whole_or_not_at_all(typed, write_run, monkeypatch):
    write_run((1, FIRST))
    Path("points.parquet").write_text("what was there")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, output = typed("export", "out", "-o", "points.parquet")
    assert code == 1
    assert output.endswith('type: pip install "trackside[parquet]"\n')
    assert output.count("\n") == 1
    assert Path("points.parquet").read_text() == "what was there"
    assert not list(Path().glob("*.partial"))


def test_a_terminal_is_spared_parquet(typed_at_a_terminal, write_run):
    write_run((1, FIRST))
    output = typed_at_a_terminal(80, "export", "out", "--format", "parquet")
    assert "Parquet is not for terminals; type --output FILE." in output


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--format", "xml"], 2, "Invalid value for '--format'"),
        (["-o", "nowhere/points.csv"], 1, "nowhere/points.csv.partial: No such file or directory."),
    ],
)
def test_what_cannot_be_written_is_one_sentence(typed, write_run, words, code, said):
    write_run((1, FIRST))
    done, output = typed("export", "out", *words)
    assert done == code
    assert said in output.splitlines()[-1]


def test_a_journal_that_cannot_be_read_is_said_and_the_others_are_written(typed, write_run):
    write_run((1, FIRST))
    write_run(run_id="c" * 12).journal.write_text("hello\n")
    code, output = typed("export", "out", "-o", "points.csv")
    assert code == 1
    assert "is no journal of a run." in output
    assert len(rows_of(Path("points.csv").read_text())) == 1


def test_who_reads_only_the_beginning_gets_no_traceback(write_run):
    write_run(*((step, {"loss": step / 3}) for step in range(5_000)))
    with subprocess.Popen([*COMMAND, "export", "out"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as export:
        assert export.stdout.readline().startswith(b"run,")
        export.stdout.close()
        assert export.stderr.read() == b""
