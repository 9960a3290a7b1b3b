"""The contract of a reporter, read back from the event files by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path

from board import RunOnDisk

from trackside.values import flatten
from trackside_tensorboard import TensorBoardCallback
from trackside_testkit import Reported, ReporterContract
from trackside_testkit.integration import declared_options, documented_options

README = Path(__file__).parents[1] / "README.md"


class TestTensorBoard(ReporterContract):
    reporter_class = TensorBoardCallback

    def read(self) -> list[Reported]:
        return [self.reported(RunOnDisk(folder)) for folder in self.folder.glob("out/runs/*")]

    def reported(self, run: RunOnDisk) -> Reported:
        described = [run.described(tag) for tag in ("model_config", "args") if tag in run.text_tags]
        return Reported(
            points={tag: run.scalars(tag) for tag in run.tags},
            params=flatten({key: value for source in described for key, value in source.items()}),
            texts={tag: run.texts(tag) for tag in run.text_tags},
            status=run.texts("status")[-1][1] if "status" in run.text_tags else "running",
        )


def test_the_table_of_options_in_the_readme_is_that_of_the_class():
    assert documented_options(README) == declared_options(TensorBoardCallback)
