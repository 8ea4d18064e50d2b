"""Both ways together, for the command line."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferServices:
    """The operators' verbs that move memories out of the store and into it."""

    exporter: MemoryExport
    importer: MemoryImport
