"""The part of a common limit that one of several processes enforces on its own."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """
    The place of a process among those that share a limit.

    Attributes:
        number: From 1 to *count*, a different one for each process.
    """

    number: int = 1
    count: int = 1

    def part_of(self, limit: int) -> int:
        """Return the part of *limit*, at least 1. The parts of all processes add up to a limit that is not below their number."""
        return max(1, (limit + self.count - self.number) // self.count)
