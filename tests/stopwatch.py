"""Elapsed time relative to the present speed of the machine, for promises about time."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

_LOOPS = 6_000_000
_REFERENCE_S = 0.05
"""The time of the loops on the machine for which the bounds of the tests are written, when it has nothing else to do."""


def measure_slowness() -> float:
    """Return how many times slower this machine is at the moment than the reference, at least 1."""
    started = time.perf_counter()
    for _ in range(_LOOPS):
        pass
    return max(1.0, (time.perf_counter() - started) / _REFERENCE_S)


class Stopwatch:
    """
    A measurement of a block, which it is the context manager of, or of the time between `start` and `stop`.

    Attributes:
        elapsed_s: The time by the clock.
        slowness: How many times slower than the reference the machine was, before or after, whichever is greater.
    """

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.slowness = 1.0
        self._started = 0.0

    def start(self) -> Self:
        """Start the measurement."""
        self.slowness = measure_slowness()
        self._started = time.perf_counter()
        return self

    def stop(self) -> None:
        """End the measurement."""
        self.elapsed_s = time.perf_counter() - self._started
        self.slowness = max(self.slowness, measure_slowness())

    @property
    def reference_s(self) -> float:
        """The time that the reference would have taken."""
        return self.elapsed_s / self.slowness

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()
