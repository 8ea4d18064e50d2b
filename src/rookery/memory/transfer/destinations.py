"""Where an export is written to: JSON lines into a stream."""

from __future__ import annotations

from typing import BinaryIO

from rookery.kernel.clock import Clock
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer import jsonl


class JsonlDestination:
    """A `Target` that is a stream of JSON lines."""

    def __init__(self, stream: BinaryIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._writer = jsonl.JsonlWriter()

    def write_header(self) -> None:
        self._stream.write(self._writer.header_line(at=self._clock()))

    def write_memory(self, record: TransferRecord) -> None:
        self._stream.write(self._writer.memory_line(record))

    def write_tombstone(self, tombstone: Tombstone) -> None:
        self._stream.write(self._writer.tombstone_line(tombstone))

    def write_merge(self, merge: Merge) -> None:
        self._stream.write(self._writer.merge_line(merge))

    def write_end(self) -> None:
        self._stream.write(self._writer.end_line())
