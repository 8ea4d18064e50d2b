"""Which memories say the same, for one run of consolidation: found by their stored vectors, each in one cluster at most (D-52)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from struct import unpack

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.batch_runs import BATCH_SIZE
from rookery.memory.merging import Merge, merge_memories, merge_sort_key, space_key
from rookery.memory.models import Memory, Vector
from rookery.memory.ports import VectorComparison, VectorIndex
from rookery.memory.store import records

_NEIGHBOUR_LIMIT, _MAX_NEIGHBOURS = 32, 512
"""So many that are like a memory are asked for, of thousands at once; where there may be more, so many, of it alone."""

_PRELOADED_NEIGHBOURS = 8
"""So many of those that are like a memory are read before it is its turn; only where there are more are some read later."""

_MAX_CLIMB_STEPS = 64
"""A bound on the way from a memory to a more trusted one like it, and to the next: each step ends sooner in practice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A memory and those that go into it, as they were read, and what it takes from each."""

    primary: Memory
    others: tuple[Memory, ...]
    merges: tuple[Merge, ...]

    @property
    def size(self) -> int:
        """How many memories it is about."""
        return 1 + len(self.others)


class ClusterFinder:
    """
    Looks for them a stretch of memories at a time.

    What it gave out it does not give out again, whatever becomes of it: so a run does what its dry run told, and a memory
    that took others in is left alone by that run, though it now says more.

    Args:
        run: The id that the merges get.
        excluded_ids: Memories that are left alone from the start.
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
        comparison.exclude(self._excluded_ids)

    async def find_candidates(self, ids: Sequence[str]) -> list[list[str]]:
        """Return those of *ids* that are like others, in batches for `preload`; most memories are like none."""
        open_ids = [each for each in ids if each not in self._excluded_ids]
        self._neighbours = dict(await self._comparison.find_similar(open_ids, threshold=self._threshold, limit=_NEIGHBOUR_LIMIT))
        found = [each for each in open_ids if each in self._neighbours]
        return [found[start : start + BATCH_SIZE] for start in range(0, len(found), BATCH_SIZE)]

    async def preload(self, batch: Sequence[str]) -> None:
        """Read together what `find_clusters` will need of each of *batch*: one by one it would take many times as long."""
        self._memories, self._vectors_by_id = {}, {}
        await self._load_memories({*batch, *(near for each in batch for near in self._neighbours[each][:_PRELOADED_NEIGHBOURS])})
        # The way from a memory leads to those more trusted than itself.
        ahead = set[str]()
        for memory in self._list_mergeable(batch):
            mine = merge_sort_key(memory)
            ahead |= {
                each.id
                for each in self._list_mergeable(self._neighbours[memory.id])
                if each.id not in self._neighbours and merge_sort_key(each) < mine
            }
        if ahead:
            await self._load_neighbours(ahead)
            await self._load_memories({near for each in ahead for near in self._neighbours[each][:_PRELOADED_NEIGHBOURS]})

    async def find_clusters(self, memory_id: str) -> list[Cluster]:
        """Return the clusters to be made from *memory_id* on: that of the most trusted one like it, until it is in one itself."""
        found = list[Cluster]()
        for _ in range(_MAX_CLIMB_STEPS):
            start = self._list_mergeable([memory_id])
            if not start:
                break
            cluster = await self._build_cluster(start[0])
            if cluster is None:
                break
            taken = {cluster.primary.id, *(each.id for each in cluster.others)}
            self._excluded_ids |= taken
            self._comparison.exclude(taken)
            found.append(cluster)
        return found

    async def _build_cluster(self, top: Memory) -> Cluster | None:
        alike = await self._find_similar(top)
        for _ in range(_MAX_CLIMB_STEPS):
            best = min([top, *alike], key=merge_sort_key)
            if best.id == top.id:
                break
            top, alike = best, await self._find_similar(best)
        others = sorted(alike, key=merge_sort_key)
        merges = tuple(merge_memories(top, others, run=self._run)[1])
        if not merges:
            return None
        gone = {each.memory_id for each in merges}
        return Cluster(primary=top, others=tuple(each for each in others if each.id in gone), merges=merges)

    async def _find_similar(self, memory: Memory) -> list[Memory]:
        """Return the memories of the same space that are like *memory*, chunk by chunk of theirs."""
        if memory.id not in self._neighbours:
            await self._load_neighbours([memory.id])
        near = self._neighbours[memory.id]
        if len(near) >= _NEIGHBOUR_LIMIT:
            asked = await self._comparison.find_similar([memory.id], threshold=self._threshold, limit=_MAX_NEIGHBOURS)
            near = asked.get(memory.id, ())
        await self._load_memories({memory.id, *near})
        candidates = [each for each in self._list_mergeable(near) if space_key(each) == space_key(memory)]
        mine = self._vectors_by_id.get(memory.id, ())
        return [each for each in candidates if _min_similarity(mine, self._vectors_by_id.get(each.id, ())) > self._threshold]

    async def _load_neighbours(self, ids: Collection[str]) -> None:
        found = await self._comparison.find_similar(ids, threshold=self._threshold, limit=_NEIGHBOUR_LIMIT)
        self._neighbours |= {each: found.get(each, ()) for each in ids}

    async def _load_memories(self, ids: Collection[str]) -> None:
        wanted = sorted(each for each in ids if each not in self._memories and each not in self._excluded_ids)
        for start in range(0, len(wanted), _MAX_NEIGHBOURS):
            some = wanted[start : start + _MAX_NEIGHBOURS]
            found = await self._db.read(lambda tx, some=some: records.get_memories(tx, self._workspace_id, some))
            self._memories |= dict.fromkeys(some) | {each.id: each for each in found}
            self._vectors_by_id |= await self._load_vectors([each.id for each in found])

    async def _load_vectors(self, ids: Sequence[str]) -> Mapping[str, tuple[Vector, ...]]:
        return await self._vectors.get_vectors(self._workspace_id, ids) if ids else {}

    def _list_mergeable(self, ids: Collection[str]) -> list[Memory]:
        """Return those of *ids* that this run may still merge, of what was read."""
        read = (self._memories.get(each) for each in ids if each not in self._excluded_ids)
        return [each for each in read if each is not None and is_mergeable(each, self._model)]


def is_mergeable(memory: Memory, model: str) -> bool:
    """Tell whether *memory* counts, for good, and its vectors are of what it says now."""
    is_indexed = memory.indexed_at is not None and memory.indexed_at >= memory.updated_at and memory.indexed_model == model
    return is_indexed and memory.archived_at is None and memory.expires_at is None


def _min_similarity(mine: Sequence[Vector], theirs: Sequence[Vector]) -> float:
    """Return how like to *mine* that of *theirs* is which is least so: all that they say must be like something here."""
    own = [_unpack_vector(vector) for vector in mine]
    if not own or not theirs:
        return -1.0
    return min(max(sum(map(mul, one, _unpack_vector(vector))) for one in own) for vector in theirs)


def _unpack_vector(vector: Vector) -> tuple[float, ...]:
    return unpack(f"<{len(vector) // 4}f", vector)
