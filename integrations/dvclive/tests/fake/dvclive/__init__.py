"""A stand-in for dvclive: the files that DVCLive writes, and the refusals that it has."""

from dvclive.live import Live

__all__ = ["Live"]
