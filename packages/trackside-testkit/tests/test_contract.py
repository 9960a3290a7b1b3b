"""The contract holds for a complete reporter, and each of its tests fails for one that breaks its promise."""

from in_memory import InMemoryContract


class TestInMemory(InMemoryContract):
    pass
