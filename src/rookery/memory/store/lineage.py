"""The lineage of memories: replacements and merges."""

from __future__ import annotations

from rookery.kernel.db import Tx
from rookery.memory.models import Memory, Tombstone
from rookery.memory.store import merges
from rookery.memory.store.records import get_memory, get_tombstone

_MAX_STEPS = 1_000
"""Maximum steps in each direction, as a guard against cycles."""


def get_lineage(tx: Tx, workspace_id: int, memory_id: str) -> list[Memory | Tombstone]:
    """Return the lineage of the memory, oldest first: the memories that it replaced or absorbed, itself, and those that replaced it."""
    current = _get_version(tx, workspace_id, memory_id)
    if current is None:
        return []
    chain: list[Memory | Tombstone] = [current]
    while len(chain) < _MAX_STEPS and (before := chain[0].supersedes_id) is not None:
        previous = _get_version(tx, workspace_id, before)  # an imported version keeps its text, archived
        if previous is None or any(memory.id == previous.id for memory in chain):
            break
        chain.insert(0, previous)
    known_ids = {memory.id for memory in chain}
    while len(known_ids) < _MAX_STEPS and (after := chain[-1].superseded_by) is not None and after not in known_ids:
        following = _get_version(tx, workspace_id, after)
        if following is None:
            break
        known_ids.add(after)
        chain.append(following)
    return _insert_merged(tx, workspace_id, chain)


def _insert_merged(tx: Tx, workspace_id: int, chain: list[Memory | Tombstone]) -> list[Memory | Tombstone]:
    """Return *chain* with the merged memories, each before the one that it was merged into."""
    known_ids = {memory.id for memory in chain}
    position = len(chain) - 1
    while position >= 0 and len(chain) < _MAX_STEPS:
        sources = [merge.memory_id for merge in merges.list_merged_into(tx, workspace_id, chain[position].id) if merge.is_done]
        merged_versions = [
            version
            for memory_id in sources
            if memory_id not in known_ids and (version := _get_version(tx, workspace_id, memory_id)) is not None
        ]
        known_ids |= {memory.id for memory in merged_versions}
        chain[position:position] = merged_versions
        # The inserted memories are processed next, from the end, because others may have been merged into them.
        position += len(merged_versions) - 1
    return chain


def _get_version(tx: Tx, workspace_id: int, memory_id: str) -> Memory | Tombstone | None:
    return get_memory(tx, workspace_id, memory_id) or get_tombstone(tx, workspace_id, memory_id)
