"""Where an export is written to: JSON lines into a stream."""

from __future__ import annotations

from typing import BinaryIO

from rookery.kernel.clock import Clock
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import Kept
from rookery.memory.transfer import jsonl


class Lines:
    """A `Target` that is a stream of JSON lines."""

    def __init__(self, stream: BinaryIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._writer = jsonl.Writer()

    def begin(self) -> None:
        self._stream.write(self._writer.header(at=self._clock()))

    def memory(self, kept: Kept) -> None:
        self._stream.write(self._writer.memory(kept))

    def tombstone(self, grave: Tombstone) -> None:
        self._stream.write(self._writer.tombstone(grave))

    def merge(self, merge: Merge) -> None:
        self._stream.write(self._writer.merge(merge))

    def end(self) -> None:
        self._stream.write(self._writer.end())
