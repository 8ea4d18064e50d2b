"""Which memories say the same, for one run of consolidation: found by their stored vectors, each in one cluster at most (D-52)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from struct import unpack

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.merging import Merge, merged, rank, space
from rookery.memory.models import Memory, Vector
from rookery.memory.ports import Comparing, VectorIndex
from rookery.memory.runs import BATCH
from rookery.memory.store import records

_FEW, _MANY = 32, 512
"""So many that are like a memory are asked for, of thousands at once; where there may be more, so many, of it alone."""

_AHEAD = 8
"""So many of those that are like a memory are read before it is its turn; only where there are more are some read later."""

_CLIMBS = 64
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


class Clusters:
    """
    Looks for them a stretch of memories at a time.

    What it gave out it does not give out again, whatever becomes of it: so a run does what its dry run told, and a memory
    that took others in is left alone by that run, though it now says more.

    Args:
        run: The id that the merges get.
        taken: Memories that are left alone from the start.
    """

    def __init__(
        self,
        *,
        db: Database,
        vectors: VectorIndex,
        comparing: Comparing,
        clock: Clock,
        model: str,
        workspace_id: int,
        threshold: float,
        run: str,
        taken: Collection[str],
    ) -> None:
        self._db = db
        self._vectors = vectors
        self._comparing = comparing
        self._clock = clock
        self._model = model
        self._workspace_id = workspace_id
        self._threshold = threshold
        self._run = run
        self._taken = set(taken)
        self._near: dict[str, Sequence[str]] = {}
        self._memories: dict[str, Memory | None] = {}
        self._chunks: dict[str, tuple[Vector, ...]] = {}
        comparing.leave_out(self._taken)

    async def candidates(self, ids: Sequence[str]) -> list[list[str]]:
        """Return those of *ids* that are like others, in batches for `read`; most memories are like none."""
        open_ids = [each for each in ids if each not in self._taken]
        self._near = dict(await self._comparing.alike(open_ids, above=self._threshold, most=_FEW))
        found = [each for each in open_ids if each in self._near]
        return [found[start : start + BATCH] for start in range(0, len(found), BATCH)]

    async def read(self, batch: Sequence[str]) -> None:
        """Read together what `of` will need of each of *batch*: one by one it would take many times as long."""
        self._memories, self._chunks = {}, {}
        await self._read({*batch, *(near for each in batch for near in self._near[each][:_AHEAD])})
        # The way from a memory leads to those more trusted than itself.
        ahead = set[str]()
        for memory in self._open(batch):
            mine = rank(memory)
            ahead |= {each.id for each in self._open(self._near[memory.id]) if each.id not in self._near and rank(each) < mine}
        if ahead:
            await self._look(ahead)
            await self._read({near for each in ahead for near in self._near[each][:_AHEAD]})

    async def of(self, memory_id: str) -> list[Cluster]:
        """Return the clusters to be made from *memory_id* on: that of the most trusted one like it, until it is in one itself."""
        found = list[Cluster]()
        for _ in range(_CLIMBS):
            start = self._open([memory_id])
            if not start:
                break
            cluster = await self._from(start[0])
            if cluster is None:
                break
            taken = {cluster.primary.id, *(each.id for each in cluster.others)}
            self._taken |= taken
            self._comparing.leave_out(taken)
            found.append(cluster)
        return found

    async def _from(self, top: Memory) -> Cluster | None:
        alike = await self._alike(top)
        for _ in range(_CLIMBS):
            best = min([top, *alike], key=rank)
            if best.id == top.id:
                break
            top, alike = best, await self._alike(best)
        others = sorted(alike, key=rank)
        merges = tuple(merged(top, others, run=self._run)[1])
        if not merges:
            return None
        gone = {each.memory_id for each in merges}
        return Cluster(primary=top, others=tuple(each for each in others if each.id in gone), merges=merges)

    async def _alike(self, memory: Memory) -> list[Memory]:
        """Return the memories of the same space that are like *memory*, chunk by chunk of theirs."""
        if memory.id not in self._near:
            await self._look([memory.id])
        near = self._near[memory.id]
        if len(near) >= _FEW:
            asked = await self._comparing.alike([memory.id], above=self._threshold, most=_MANY)
            near = asked.get(memory.id, ())
        await self._read({memory.id, *near})
        candidates = [each for each in self._open(near) if space(each) == space(memory)]
        mine = self._chunks.get(memory.id, ())
        return [each for each in candidates if _likeness(mine, self._chunks.get(each.id, ())) > self._threshold]

    async def _look(self, ids: Collection[str]) -> None:
        found = await self._comparing.alike(ids, above=self._threshold, most=_FEW)
        self._near |= {each: found.get(each, ()) for each in ids}

    async def _read(self, ids: Collection[str]) -> None:
        wanted = sorted(each for each in ids if each not in self._memories and each not in self._taken)
        for start in range(0, len(wanted), _MANY):
            some = wanted[start : start + _MANY]
            found = await self._db.read(lambda tx, some=some: records.by_ids(tx, self._workspace_id, some))
            self._memories |= dict.fromkeys(some) | {each.id: each for each in found}
            self._chunks |= await self._stored([each.id for each in found])

    async def _stored(self, ids: Sequence[str]) -> Mapping[str, tuple[Vector, ...]]:
        return await self._vectors.stored(self._workspace_id, ids) if ids else {}

    def _open(self, ids: Collection[str]) -> list[Memory]:
        """Return those of *ids* that this run may still merge, of what was read."""
        read = (self._memories.get(each) for each in ids if each not in self._taken)
        return [each for each in read if each is not None and is_open(each, self._model)]


def is_open(memory: Memory, model: str) -> bool:
    """Tell whether *memory* counts, for good, and its vectors are of what it says now."""
    is_indexed = memory.indexed_at is not None and memory.indexed_at >= memory.updated_at and memory.indexed_model == model
    return is_indexed and memory.archived_at is None and memory.expires_at is None


def _likeness(mine: Sequence[Vector], theirs: Sequence[Vector]) -> float:
    """Return how like to *mine* that of *theirs* is which is least so: all that they say must be like something here."""
    own = [_numbers(vector) for vector in mine]
    if not own or not theirs:
        return -1.0
    return min(max(sum(map(mul, one, _numbers(vector))) for one in own) for vector in theirs)


def _numbers(vector: Vector) -> tuple[float, ...]:
    return unpack(f"<{len(vector) // 4}f", vector)
