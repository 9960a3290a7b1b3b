import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("two_processes.py")


def run(scenario, world_size=2):
    """What each of the processes saw; they are started as `torchrun` starts them, and talk over loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", SCRIPT, scenario],
            env={
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world_size)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * world_size, [errors for _, errors in outputs]
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def test_each_process_knows_its_place_from_the_constructor_on():
    first, second = run("place")
    assert first == {"flags": [True, True], "args": [0, 2], "reported": 1}
    assert second == {"flags": [False, False], "args": [1, 2], "reported": 0}


def test_two_processes_train_and_evaluate_as_one_with_the_same_global_batches():
    (alone,) = run("trainings", world_size=1)
    first, second = run("trainings")
    assert first == second
    for kind, single in alone.items():
        together = first[kind]
        assert len(together["history"]) == len(single["history"]), kind
        for entry, expected in zip(together["history"], single["history"], strict=True):
            assert entry == pytest.approx(expected, rel=1e-3, abs=1e-5), kind
        assert together["weights"] == pytest.approx(single["weights"], rel=1e-3, abs=1e-5), kind


def test_what_a_callback_asks_for_in_one_process_happens_in_all():
    expected = {"step": 4, "saves": [2], "evaluations": 1}
    assert run("flags") == [expected, expected]


def test_all_processes_go_on_where_they_were():
    for seen in run("resume"):
        assert seen["same_losses"]
        assert seen["same_weights"]
        assert {"rng_state_0.pth", "rng_state_1.pth"} <= set(seen["files"])
        assert seen["flos"] == [16, 16]
