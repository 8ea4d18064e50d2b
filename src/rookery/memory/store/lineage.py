"""Which memory replaced which, and which was merged into which (D-41, D-52)."""

from __future__ import annotations

from rookery.kernel.db import Tx
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store import merges
from rookery.memory.store.records import get_memory, get_tombstone

_MAX_STEPS = 1_000
"""So many steps each way are followed; nobody replaces a memory that often, but no loop is without a bound."""


def get_lineage(tx: Tx, workspace_id: int, memory_id: str) -> list[Memory | Tombstone]:
    """Return the memory, or what stayed of it, between those that it replaced or took in and those that replaced it, oldest first."""
    here = _get_version(tx, workspace_id, memory_id)
    if here is None:
        return []
    chain: list[Memory | Tombstone] = [here]
    while len(chain) < _MAX_STEPS and (before := chain[0].supersedes_id) is not None:
        grave = get_tombstone(tx, workspace_id, before)
        if grave is None or any(each.id == grave.id for each in chain):
            break
        chain.insert(0, grave)
    known = {each.id for each in chain}
    while len(known) < _MAX_STEPS and (after := chain[-1].superseded_by) is not None and after not in known:
        following = _get_version(tx, workspace_id, after)
        if following is None:
            break
        known.add(after)
        chain.append(following)
    return _insert_merged(tx, workspace_id, chain)


def _insert_merged(tx: Tx, workspace_id: int, chain: list[Memory | Tombstone]) -> list[Memory | Tombstone]:
    """Return *chain* with what was merged into its memories, each before the one that it is a part of now."""
    known = {each.id for each in chain}
    place = len(chain) - 1
    while place >= 0 and len(chain) < _MAX_STEPS:
        sources = [merge.memory_id for merge in merges.list_merged_into(tx, workspace_id, chain[place].id) if merge.is_done]
        fresh = [one for each in sources if each not in known and (one := _get_version(tx, workspace_id, each)) is not None]
        known |= {each.id for each in fresh}
        chain[place:place] = fresh
        # What was inserted comes next, from its end, as it may have sources of its own.
        place += len(fresh) - 1
    return chain


def _get_version(tx: Tx, workspace_id: int, memory_id: str) -> Memory | Tombstone | None:
    return get_memory(tx, workspace_id, memory_id) or get_tombstone(tx, workspace_id, memory_id)
