# ruff: noqa: A001 - the names are those of the real one
"""What the SDK says on the terminal."""

import sys


class Console:
    quiet = False

    def print(self, *args, **kwargs):
        if not self.quiet:
            sys.stdout.write(" ".join(map(str, args)) + "\n")


c = Console()


def print(*args, **kwargs):
    c.print(*args, **kwargs)


def info(*args, color="blue", **kwargs):
    c.print("swanlab:", *args)


def warning(*args, **kwargs):
    c.print("swanlab WARNING", *args)


def error(*args, write_to_file=True, write_to_tty=True, **kwargs):
    c.print("swanlab ERROR", *args)
