"""Detection of clusters of similar memories for one consolidation run, by stored vectors. Each memory is in one cluster at most."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from struct import unpack
from typing import NamedTuple

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.batch_runs import BATCH_SIZE
from rookery.memory.merging import Merge, find_memory_distinction, merge_memories, merge_sort_key, space_key
from rookery.memory.models import Memory, Vector
from rookery.memory.ports import VectorComparison, VectorIndex
from rookery.memory.statements import Distinction
from rookery.memory.store import records

_NEIGHBOUR_LIMIT, _MAX_NEIGHBOURS = 32, 512
"""Neighbours per memory in a bulk query, and in a second query for one memory whose bulk result is full."""

_PRELOADED_NEIGHBOURS = 8
"""Neighbours per memory that are loaded in bulk; any further ones are loaded when needed."""

_MAX_CLIMB_STEPS = 64
"""Maximum steps from a memory to a more trusted similar one. In practice it takes fewer."""


class KeptApart(NamedTuple):
    """A memory that is similar to a more trusted one and states something else."""

    memory_id: str
    primary_id: str
    distinction: Distinction


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A primary memory, the memories to merge into it, as they were read, and the merges."""

    primary: Memory
    others: tuple[Memory, ...]
    merges: tuple[Merge, ...]

    @property
    def size(self) -> int:
        """The number of memories in the cluster."""
        return 1 + len(self.others)


class ClusterFinder:
    """
    A finder of clusters, one batch of memories at a time.

    A memory is returned in one cluster at most, even if that cluster is not merged. So a run does the same as its dry run, and a memory
    that others were merged into is not changed again by that run. Memories that state different things are never in one cluster.

    Args:
        run: The run id of the merges.
        excluded_ids: Memories that are never returned.
    """

    def __init__(
        self,
        *,
        db: Database,
        vectors: VectorIndex,
        comparison: VectorComparison,
        clock: Clock,
        model: str,
        workspace_id: int,
        threshold: float,
        run: str,
        excluded_ids: Collection[str],
    ) -> None:
        self._db = db
        self._vectors = vectors
        self._comparison = comparison
        self._clock = clock
        self._model = model
        self._workspace_id = workspace_id
        self._threshold = threshold
        self._run = run
        self._excluded_ids = set(excluded_ids)
        self._neighbours: dict[str, Sequence[str]] = {}
        self._memories: dict[str, Memory | None] = {}
        self._vectors_by_id: dict[str, tuple[Vector, ...]] = {}
        self._kept_apart: dict[str, KeptApart] = {}
        comparison.exclude(self._excluded_ids)

    async def find_candidates(self, ids: Sequence[str]) -> list[list[str]]:
        """Return those of *ids* that have similar memories, in batches for `preload`. Most memories have none."""
        open_ids = [memory_id for memory_id in ids if memory_id not in self._excluded_ids]
        self._neighbours = dict(await self._comparison.find_similar(open_ids, threshold=self._threshold, limit=_NEIGHBOUR_LIMIT))
        compared_ids = [memory_id for memory_id in open_ids if memory_id in self._neighbours]
        return [compared_ids[start : start + BATCH_SIZE] for start in range(0, len(compared_ids), BATCH_SIZE)]

    async def preload(self, batch: Sequence[str]) -> None:
        """Load in bulk what `find_clusters` needs for *batch*. Single reads would take many times as long."""
        self._memories, self._vectors_by_id = {}, {}
        await self._load_memories(
            {*batch, *(neighbour_id for memory_id in batch for neighbour_id in self._neighbours[memory_id][:_PRELOADED_NEIGHBOURS])}
        )
        # The search goes from a memory to the more trusted ones.
        next_ids = set[str]()
        for memory in self._list_mergeable(batch):
            sort_key = merge_sort_key(memory)
            next_ids |= {
                other.id
                for other in self._list_mergeable(self._neighbours[memory.id])
                if other.id not in self._neighbours and merge_sort_key(other) < sort_key
            }
        if next_ids:
            await self._load_neighbours(next_ids)
            await self._load_memories(
                {neighbour_id for memory_id in next_ids for neighbour_id in self._neighbours[memory_id][:_PRELOADED_NEIGHBOURS]}
            )

    async def find_clusters(self, memory_id: str) -> list[Cluster]:
        """
        Return the clusters around *memory_id*, until it is in a cluster itself.

        Each cluster is built on the most trusted similar memory.
        """
        clusters = list[Cluster]()
        for _ in range(_MAX_CLIMB_STEPS):
            start = self._list_mergeable([memory_id])
            if not start:
                break
            cluster = await self._build_cluster(start[0])
            if cluster is None:
                break
            member_ids = {cluster.primary.id, *(other.id for other in cluster.others)}
            self._excluded_ids |= member_ids
            self._comparison.exclude(member_ids)
            clusters.append(cluster)
        return clusters

    def list_kept_apart(self) -> list[KeptApart]:
        """Return the memories that were in no cluster, although they are similar to another one, each with the first such."""
        return [item for item in self._kept_apart.values() if item.memory_id not in self._excluded_ids]

    async def _build_cluster(self, top: Memory) -> Cluster | None:
        similar = await self._find_similar(top)
        for _ in range(_MAX_CLIMB_STEPS):
            best = min([top, *similar], key=merge_sort_key)
            if best.id == top.id:
                break
            top, similar = best, await self._find_similar(best)
        others = self._select_same(top, sorted(similar, key=merge_sort_key))
        merges = tuple(merge_memories(top, others, run=self._run)[1])
        if not merges:
            return None
        merged_ids = {other.memory_id for other in merges}
        return Cluster(primary=top, others=tuple(other for other in others if other.id in merged_ids), merges=merges)

    async def _find_similar(self, memory: Memory) -> list[Memory]:
        """Return the memories of the same space of which every chunk is similar to a chunk of *memory*."""
        if memory.id not in self._neighbours:
            await self._load_neighbours([memory.id])
        neighbours = self._neighbours[memory.id]
        if len(neighbours) >= _NEIGHBOUR_LIMIT:
            wider = await self._comparison.find_similar([memory.id], threshold=self._threshold, limit=_MAX_NEIGHBOURS)
            neighbours = wider.get(memory.id, ())
        await self._load_memories({memory.id, *neighbours})
        candidates = [other for other in self._list_mergeable(neighbours) if space_key(other) == space_key(memory)]
        vectors = self._vectors_by_id.get(memory.id, ())
        similar = [other for other in candidates if _min_similarity(vectors, self._vectors_by_id.get(other.id, ())) > self._threshold]
        return [other for other in similar if not self._is_kept_apart(memory, other)]

    def _select_same(self, top: Memory, others: Sequence[Memory]) -> list[Memory]:
        """Return those of *others* that state nothing else than each other: two additions to *top* may contradict."""
        same, contents = list[Memory](), {(top.content, top.tags)}
        for other in others:  # each of them states the same as *top*, also by its metadata
            is_copy = (other.content, other.tags) in contents
            if is_copy or not any(self._is_kept_apart(member, other) for member in same):
                same.append(other)
                contents.add((other.content, other.tags))
        return same

    def _is_kept_apart(self, memory: Memory, other: Memory) -> bool:
        distinction = find_memory_distinction(memory, other)
        if distinction is not None:
            primary, less_trusted = sorted((memory, other), key=merge_sort_key)
            ordered = distinction if primary is memory else distinction.reverse()
            self._kept_apart.setdefault(less_trusted.id, KeptApart(less_trusted.id, primary.id, ordered))
        return distinction is not None

    async def _load_neighbours(self, ids: Collection[str]) -> None:
        similar_ids = await self._comparison.find_similar(ids, threshold=self._threshold, limit=_NEIGHBOUR_LIMIT)
        self._neighbours |= {memory_id: similar_ids.get(memory_id, ()) for memory_id in ids}

    async def _load_memories(self, ids: Collection[str]) -> None:
        missing = sorted(memory_id for memory_id in ids if memory_id not in self._memories and memory_id not in self._excluded_ids)
        for start in range(0, len(missing), _MAX_NEIGHBOURS):
            batch = missing[start : start + _MAX_NEIGHBOURS]
            memories = await self._db.read(lambda tx, batch=batch: records.get_memories(tx, self._workspace_id, batch))
            self._memories |= dict.fromkeys(batch) | {other.id: other for other in memories}
            self._vectors_by_id |= await self._load_vectors([other.id for other in memories])

    async def _load_vectors(self, ids: Sequence[str]) -> Mapping[str, tuple[Vector, ...]]:
        return await self._vectors.fetch(self._workspace_id, ids) if ids else {}

    def _list_mergeable(self, ids: Collection[str]) -> list[Memory]:
        """Return those of *ids* that are loaded and that this run may still merge."""
        loaded = (self._memories.get(memory_id) for memory_id in ids if memory_id not in self._excluded_ids)
        return [other for other in loaded if other is not None and is_mergeable(other, self._model)]


def is_mergeable(memory: Memory, model: str) -> bool:
    """Return whether *memory* is live, never expires, and has vectors of its current content."""
    is_indexed = memory.indexed_at is not None and memory.indexed_at >= memory.updated_at and memory.indexed_model == model
    return is_indexed and memory.archived_at is None and memory.expires_at is None


def _min_similarity(vectors: Sequence[Vector], other_vectors: Sequence[Vector]) -> float:
    """Return the similarity of the least similar vector of *other_vectors*. Compare each of them with its best match in *vectors*."""
    unpacked_vectors = [_unpack_vector(vector) for vector in vectors]
    if not unpacked_vectors or not other_vectors:
        return -1.0
    return min(max(sum(map(mul, unpacked, _unpack_vector(vector))) for unpacked in unpacked_vectors) for vector in other_vectors)


def _unpack_vector(vector: Vector) -> tuple[float, ...]:
    return unpack(f"<{len(vector) // 4}f", vector)
