"""Writes the records of a run down before it delivers them, behind the loop's back."""

from trackside_spool.journal import JournalError
from trackside_spool.recorder import SpoolRecorder

__all__ = ["JournalError", "SpoolRecorder"]
