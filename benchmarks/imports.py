"""What an import costs: whole processes, one after the other, the fastest of each."""

from __future__ import annotations

import subprocess
import sys
import time

from timing import table


def process(source: str, rounds: int) -> float:
    """Milliseconds from the start to the end of `python -c source`."""
    fastest = float("inf")
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", source], check=True)
        fastest = min(fastest, time.perf_counter() - begin)
    return fastest * 1e3


def main() -> None:
    empty, ours = process("pass", 20), process("import trackside", 20)
    resolving = process("import trackside; trackside.resolve('tensorboard')", 10)
    callback = process("from transformers import TrainerCallback", 3)
    trainer = process("from transformers import Trainer", 3)
    table(
        "Import, whole process",
        "ms",
        [
            ("import of the callbacks", ours, callback, "at most 1/40"),
            ("resolve('tensorboard') / import Trainer", resolving, trainer, ""),
        ],
    )
    print(f"  import trackside / python -c pass: {ours:.1f} / {empty:.1f} ms = {ours / empty:.2f}  target: at most 4")


if __name__ == "__main__":
    main()
