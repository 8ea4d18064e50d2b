"""Which memory replaced which (D-41)."""

from __future__ import annotations

from rookery.kernel.db import Tx
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store.records import by_id, tombstone

_LONGEST = 1_000
"""So many steps each way are followed; nobody replaces a memory that often, but no loop is without a bound."""


def lineage(tx: Tx, workspace_id: int, memory_id: str) -> list[Memory | Tombstone]:
    """Return the memory, or what stayed of it, between those that it replaced and those that replaced it, oldest first."""
    here = _one(tx, workspace_id, memory_id)
    if here is None:
        return []
    chain: list[Memory | Tombstone] = [here]
    while len(chain) < _LONGEST and (before := chain[0].supersedes_id) is not None:
        grave = tombstone(tx, workspace_id, before)
        if grave is None:
            break
        chain.insert(0, grave)
    for _ in range(_LONGEST):
        last = chain[-1]
        following = None if isinstance(last, Memory) or last.superseded_by is None else _one(tx, workspace_id, last.superseded_by)
        if following is None:
            break
        chain.append(following)
    return chain


def _one(tx: Tx, workspace_id: int, memory_id: str) -> Memory | Tombstone | None:
    return by_id(tx, workspace_id, memory_id) or tombstone(tx, workspace_id, memory_id)
