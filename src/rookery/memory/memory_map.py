"""A map of memories: their vectors on a plane, with clusters named by their words."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from rookery.access.models import Caller
from rookery.kernel.cancellation import run_to_end
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreaker
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.tokenization import STOP_WORDS, split_words
from rookery.kernel.workspace_shares import WorkspaceTurns
from rookery.memory.access_filter import resolve_access_filter
from rookery.memory.embedding_migration import EmbeddingMigration
from rookery.memory.models import MapGrouping, MemoryFilter, NameCount, Vector
from rookery.memory.ports import MapProjection, ProjectVectors, SessionLookup
from rookery.memory.store import samples
from rookery.memory.store.samples import MapRow

MAX_POINTS = 5_000
"""Memories on a map. Of more, a sample is placed that has the same shares of each group and of each time."""

MAX_GROUPS = 8
"""The largest groups, which have a name. All others are one group more."""

_FETCHED_VECTORS = 256
_MAX_CACHED_LAYOUTS = 16
_MAX_WORDS = 4
_SHOWN_WORDS = 3
"""Words of a cluster that are its name. No two clusters have the same name."""

_MIN_WORD_CHARS = 3
_MIN_NAMED_SIZE = 4
"""Clusters from this size on are named by words that at least two of their memories have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCluster:
    """Points that lie together: the centre of most of them, their number, and the words that set them apart, most telling first."""

    x: int
    y: int
    count: int
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMapResult:
    """
    A map. The lists `ids`, `coordinates`, `point_groups` and `point_clusters` have one entry for each point, in the same order.

    Attributes:
        total: The memories that match. If more than the points and *unplaced_count*, the points are a sample.
        unplaced_count: Memories of the sample that have no vector yet.
        coordinates: x and y, each in -32767..32767.
        groups: The groups by size. A point of the group after the last one belongs to a smaller group.
    """

    total: int
    unplaced_count: int
    ids: Sequence[str]
    coordinates: Sequence[tuple[int, int]]
    point_groups: Sequence[int]
    point_clusters: Sequence[int]
    groups: Sequence[NameCount]
    clusters: Sequence[MapCluster]


_Layout = tuple[Sequence[str], MapProjection]
"""The ids of memories that have vectors, and their places."""


@dataclass(slots=True)
class MapLayouts:
    """The latest layouts, by a digest of the memories that they place. They hold numbers, no text of a memory."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    turns: WorkspaceTurns = field(default_factory=WorkspaceTurns)
    _by_digest: OrderedDict[bytes, _Layout] = field(default_factory=OrderedDict[bytes, _Layout])

    def get(self, digest: bytes) -> _Layout | None:
        if digest in self._by_digest:
            self._by_digest.move_to_end(digest)
        return self._by_digest.get(digest)

    def add(self, digest: bytes, layout: _Layout) -> None:
        """Store a layout in place of the one that was used least recently."""
        self._by_digest[digest] = layout
        while len(self._by_digest) > _MAX_CACHED_LAYOUTS:
            self._by_digest.popitem(last=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryMap:
    """
    The service that draws maps.

    A layout is computed in a thread, one at a time, with turns of the workspaces. It is used again until one of its memories or the model
    changes. The words are computed from the present contents each time, so that nothing of a deleted memory stays.
    """

    db: Database
    migration: EmbeddingMigration
    breaker: EngineBreaker
    project_vectors: ProjectVectors
    sessions: SessionLookup
    clock: Clock
    layouts: MapLayouts = field(default_factory=MapLayouts)

    async def draw(self, caller: Caller, memory_filter: MemoryFilter, *, by: MapGrouping, limit: int = MAX_POINTS) -> MemoryMapResult:
        """
        Return a map of the memories that *caller* may see and that *memory_filter* matches.

        Raises:
            PermissionDenied: The filter names an agent other than the key's own.
            EngineUnavailable: The vectors are down, or are being rebuilt.
        """
        access = await resolve_access_filter(self.sessions, caller, memory_filter, at=self.clock(), is_list=True)
        total, rows = await self.db.read_from_replica(lambda tx: samples.sample_map(tx, access, by=by, size=limit))
        ids, projection = await self._lay_out(caller.workspace_id, rows)
        return await asyncio.to_thread(_describe, total, rows, ids, projection)

    async def _lay_out(self, workspace_id: int, rows: Sequence[MapRow]) -> _Layout:
        if not rows:
            return (), MapProjection(coordinates=(), clusters=())
        index = await self.migration.get_active_index(workspace_id)
        if index is None:
            raise EngineUnavailable("vectors", "the vectors of this workspace are being rebuilt and cannot be read yet")
        hashed = blake2b(f"{workspace_id}\0{index.embedder.model}".encode(), digest_size=16)
        for row in rows:
            hashed.update(f"\0{row.id}{row.updated_at}{row.indexed_at}".encode())
        digest = hashed.digest()
        if (layout := self.layouts.get(digest)) is not None:
            return layout
        async with self.layouts.turns.take(workspace_id, self.layouts.lock):
            if (layout := self.layouts.get(digest)) is not None:  # another request has computed it meanwhile
                return layout
            chunks = dict[str, tuple[Vector, ...]]()
            for start in range(0, len(rows), _FETCHED_VECTORS):
                batch = [row.id for row in rows[start : start + _FETCHED_VECTORS]]
                chunks |= await self.breaker.call(lambda batch=batch: index.vectors.fetch(workspace_id, batch))
            ids = [row.id for row in rows if row.id in chunks]
            return await run_to_end(self._project(digest, ids, [chunks[memory_id] for memory_id in ids]))

    async def _project(self, digest: bytes, ids: Sequence[str], vectors: Sequence[Sequence[Vector]]) -> _Layout:
        """Compute and store a layout. A cancelled request waits for it, as its thread cannot be stopped."""
        layout = ids, await asyncio.to_thread(self.project_vectors, vectors)
        self.layouts.add(digest, layout)
        return layout


def _describe(total: int, rows: Sequence[MapRow], ids: Sequence[str], projection: MapProjection) -> MemoryMapResult:
    row_by_id = {row.id: row for row in rows}
    counts = Counter(row_by_id[memory_id].group or "" for memory_id in ids)
    groups = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MAX_GROUPS]
    numbers = {name: number for number, (name, _) in enumerate(groups)}
    clusters, point_clusters = _name_clusters([row_by_id[memory_id].excerpt for memory_id in ids], projection)
    return MemoryMapResult(
        total=total,
        unplaced_count=len(rows) - len(ids),
        ids=ids,
        coordinates=projection.coordinates,
        point_groups=[numbers.get(row_by_id[memory_id].group or "", len(groups)) for memory_id in ids],
        point_clusters=point_clusters,
        groups=[NameCount(name=name, count=count) for name, count in groups],
        clusters=clusters,
    )


@dataclass(slots=True)
class _Group:
    """The positions of the points of a cluster, and of its largest part, at whose centre its name stands."""

    positions: list[int]
    largest_part: list[int]
    words: tuple[str, ...] = ()


def _name_clusters(excerpts: Sequence[str], projection: MapProjection) -> tuple[list[MapCluster], list[int]]:
    """
    Return the clusters with the words that set them apart, from the largest one on, and the cluster of each point.

    Clusters with the same words are parts of one topic, so they become one.
    """
    words = [_list_words(excerpt) for excerpt in excerpts]
    total_counts = Counter(word for row in words for word in row)
    parts = dict[int, list[int]]()
    for position, number in enumerate(projection.clusters):
        parts.setdefault(number, []).append(position)
    groups = [_Group(positions, positions) for _, positions in sorted(parts.items())]
    while True:
        group_by_name = dict[object, _Group]()
        for number, group in enumerate(groups):
            group.words = _find_telling_words([words[position] for position in group.positions], total_counts, len(excerpts))
            first = group_by_name.setdefault(frozenset(group.words[:_SHOWN_WORDS]) or number, group)
            if first is not group:
                first.positions = sorted((*first.positions, *group.positions))
        if len(group_by_name) == len(groups):
            break
        groups = list(group_by_name.values())
    groups.sort(key=lambda group: -len(group.positions))
    point_clusters = {position: number for number, group in enumerate(groups) for position in group.positions}
    return [_describe_cluster(group, projection) for group in groups], [point_clusters[position] for position in range(len(excerpts))]


def _find_telling_words(rows: Sequence[set[str]], total_counts: Counter[str], total: int) -> tuple[str, ...]:
    """Return the words that more of these rows have than all rows do, most telling first."""
    counts = Counter(word for row in rows for word in row)
    size = len(rows)
    scores = {
        word: count / size * math.log((count / size + 0.001) / (total_counts[word] / total + 0.001) + 1)
        for word, count in counts.items()
        if (count > 1 or size < _MIN_NAMED_SIZE) and count / size >= total_counts[word] / total
    }
    return tuple(sorted(scores, key=lambda word: (-scores[word], word))[:_MAX_WORDS])


def _describe_cluster(group: _Group, projection: MapProjection) -> MapCluster:
    part = group.largest_part
    x, y = (round(sum(projection.coordinates[position][axis] for position in part) / len(part)) for axis in (0, 1))
    return MapCluster(x=x, y=y, count=len(group.positions), words=group.words)


def _list_words(text: str) -> set[str]:
    words = (word.casefold() for word in split_words(text))
    return {word for word in words if len(word) >= _MIN_WORD_CHARS and word not in STOP_WORDS and not word.isdigit()}
