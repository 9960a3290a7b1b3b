"""Every test works in a folder of its own, on one thread, and leaves nothing behind."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="session")
def _on_one_thread():
    torch.set_num_threads(1)
