"""Both ways together, for the command line."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.memory.transfer.exporting import Export
from rookery.memory.transfer.importing import Import


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """The operators' verbs that move memories out of the store and into it."""

    exporting: Export
    importing: Import
