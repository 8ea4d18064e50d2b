"""
Change of the embedding model under load.

The vectors of the new model are built beside the old ones. The old ones serve recall until the new ones are complete. In each
workspace, one model serves at a time. Memories stored meanwhile are embedded by both models. If the previous embedder is no longer
available, recall falls back to keywords and reports so.

All state is in rows of the record store, so every vector engine supports the change, and any process continues it after a crash. Two
tables hold the active model of each workspace and the models that have vectors in it. A memory is pending while its record does not name
the new model in `indexed_model`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import EmbeddedDocument, IndexDocument, Memory, Passage
from rookery.memory.passages import embed_memories
from rookery.memory.ports import Embedder, ModelVersion, VectorIndex
from rookery.memory.store import vector_sets as store
from rookery.memory.store.tables import ACTIVE_MODELS

_WARMUP_TEXT = "the heron stands still"

_CURRENT_VALIDITY_S, _MAX_CACHED_WORKSPACES = 1.0, 10_000

_log = structlog.stdlib.get_logger("rookery.memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVersion:
    """An embedder and the index of its vectors. *is_previous* marks the model before the current one."""

    embedder: Embedder
    vectors: VectorIndex
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """
    The progress of a workspace that is served by another model version than the current one.

    Attributes:
        total: The number of memories with vectors of the active version.
        pending: The number of those that have no vectors of the current version yet.
        has_embedder: The embedder of the active version is available.
    """

    workspace_id: int
    active_version: ModelVersion
    total: int
    pending: int
    has_embedder: bool


class EmbeddingMigration:
    """
    The choice of the index that serves a workspace, and the switch to the current model.

    Args:
        find_previous: Returns the index of a previous model version, loaded on first use. None if its embedder is unknown.
        close_previous: Closes the indexes that *find_previous* loaded. They are loaded again on the next use.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        current: IndexVersion,
        find_previous: Callable[[ModelVersion], IndexVersion | None] = lambda _: None,
        close_previous: Callable[[], Awaitable[None]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._clock = clock
        self._current = current
        self._current_version = ModelVersion(model=current.embedder.model, dimension=current.embedder.dimension)
        self._find_previous = find_previous
        self._close_previous = close_previous
        self._monotonic = monotonic
        self._is_current_until_s: dict[int, float] = {}
        self._was_outdated = True
        self._logged_unknown = set[ModelVersion]()
        self._warmed_up = set[ModelVersion]()

    async def get_active_version(self, workspace_id: int) -> ModelVersion | None:
        """
        Return the model version that serves semantic recall in the workspace. None if it never had vectors.

        Raises:
            EngineUnavailable: The record store is down.
        """
        return await self._db.lookup(lambda tx: ACTIVE_MODELS.find(tx, workspace_id))

    async def get_active_index(self, workspace_id: int) -> IndexVersion | None:
        """
        Return the index that serves semantic recall in the workspace. None if no embedder fits until the index is rebuilt.

        That it is the current one is not asked again for a second. In that second after another process has switched to a newer model,
        recall uses the vectors of this one, or only words if they are deleted already.

        Raises:
            EngineUnavailable: The record store is down.
        """
        now_s = self._monotonic()
        if self._is_current_until_s.get(workspace_id, now_s) > now_s:
            return self._current
        active = await self.get_active_version(workspace_id)
        if active == self._current_version:
            if len(self._is_current_until_s) >= _MAX_CACHED_WORKSPACES:
                self._is_current_until_s.clear()
            self._is_current_until_s[workspace_id] = now_s + _CURRENT_VALIDITY_S
        return self._get_index(active)

    async def prepare_writes(self, workspace_ids: Collection[int]) -> None:
        """
        Record that the current model is about to have vectors in *workspace_ids*. The first model of a workspace becomes active.

        Vectors that the model has from an earlier time, and that are being deleted, are deleted first.

        Raises:
            EngineUnavailable: The record store or the vector index is down.
        """
        version = self._current_version
        sets = await self._db.lookup(lambda tx: store.list_of_version(tx, version, workspace_ids))
        new_ids = set(workspace_ids) - {vector_set.workspace_id for vector_set in sets if not vector_set.is_retired}
        for vector_set in sets:
            if vector_set.is_retired:
                await self._current.vectors.drop_version(vector_set.workspace_id, version)
        if new_ids:

            def begin(tx: Tx) -> None:
                for workspace_id in sorted(new_ids):
                    store.begin(tx, workspace_id, version)

            await self._db.write(begin)

    async def update_previous_index(self, pairs: Sequence[tuple[Memory, IndexDocument, Passage]]) -> None:
        """
        Add new and changed memories to the previous index in workspaces where it still serves.

        A memory that cannot be embedded there is skipped; keyword search finds it until the switch.

        Raises:
            EngineUnavailable: The record store or the vector index is down.
        """
        workspaces = {memory.workspace_id for memory, _, _ in pairs}
        for workspace_id in sorted(workspaces):
            index = self._get_index(await self.get_active_version(workspace_id))  # a write must not miss it for a second
            if index is None or not index.is_previous:
                continue
            model = index.embedder.model
            missing = [pair for pair in pairs if pair[0].workspace_id == workspace_id and not _is_indexed_by(pair[0], model)]
            if not missing:
                continue
            try:
                vectors = await embed_memories(index.embedder, [memory for memory, _, _ in missing], [passage for _, _, passage in missing])
            except EngineUnavailable as error:
                _log.warning("memory.previous_embedder_failed", model=model, memories=len(missing), reason=error.message)
                continue
            documents = [
                EmbeddedDocument(document=document, vectors=chunks)
                for (_, document, _), chunks in zip(missing, vectors, strict=True)
                if chunks is not None
            ]
            await index.vectors.put(documents)
            previous = ModelVersion(model=model, dimension=index.embedder.dimension)
            if await self.get_active_version(workspace_id) != previous:
                # Another process has switched meanwhile, and may have deleted the previous vectors already.
                await self._db.write(lambda tx, workspace_id=workspace_id, version=previous: store.retire(tx, workspace_id, version))

    async def activate_complete(self, *, ignored_ids: Collection[str] = ()) -> int:
        """
        Activate the current model in the workspaces that have all of its vectors. Return the number of workspaces switched.

        The vectors of previous models are deleted by a later call, when no running query uses them.

        Args:
            ignored_ids: Memories that failed; the switch does not wait for them.

        Raises:
            EngineUnavailable: The record store or the vector index is down.
        """
        await self._delete_retired()
        switched_count = 0
        for workspace_id, active in (await self._list_outdated()).items():
            if await self._is_complete(workspace_id, ignored_ids):
                switched_count += await self._db.write(
                    lambda tx, workspace_id=workspace_id, old=active: store.activate(tx, workspace_id, old=old, new=self._current_version)
                )
        if switched_count:
            _log.info("memory.embedding_model_switched", model=self._current_version.model, workspaces=switched_count)
        return switched_count

    async def run_periodic(self) -> int:
        """Run `activate_complete`. Load a previous embedder before its first query, and close it when no workspace needs it."""
        switched_count = await self.activate_complete()
        outdated = await self._list_outdated()
        if not (outdated or self._was_outdated or self._close_previous is None):
            await self._close_previous()
        self._was_outdated = bool(outdated)
        for version in set(outdated.values()) - self._warmed_up:
            self._warmed_up.add(version)
            index = self._find_index(version)
            if index is not None:
                with contextlib.suppress(EngineUnavailable):  # the next query raises it
                    await index.embedder.embed_query(_WARMUP_TEXT)
        return switched_count

    async def list_progress(self) -> list[MigrationProgress]:
        """
        Return the workspaces that are not yet served by the current model. Takes about a second for a million memories.

        Raises:
            EngineUnavailable: The record store is down.
        """
        model, at = self._current_version.model, self._clock()
        progress = list[MigrationProgress]()
        for workspace_id, active in (await self._list_outdated()).items():
            total, pending = await self._db.read(
                lambda tx, workspace_id=workspace_id: store.count_progress(tx, workspace_id, model=model, at=at)
            )
            progress.append(
                MigrationProgress(
                    workspace_id=workspace_id,
                    active_version=active,
                    total=total,
                    pending=pending,
                    has_embedder=self._find_index(active) is not None,
                )
            )
        return progress

    async def _list_outdated(self) -> dict[int, ModelVersion]:
        return await self._db.read(lambda tx: store.list_outdated(tx, self._current_version))

    async def _is_complete(self, workspace_id: int, ignored_ids: Collection[str]) -> bool:
        """Return whether the current model has vectors of every memory of the workspace that the active one serves."""
        model, at, limit = self._current_version.model, self._clock(), len(ignored_ids) + 1
        pending_ids = await self._db.read(lambda tx: store.list_pending_ids(tx, workspace_id, model=model, at=at, limit=limit))
        return all(memory_id in ignored_ids for memory_id in pending_ids)

    async def _delete_retired(self) -> None:
        """Delete the vectors of retired sets. A set that is in use again by then stays."""
        for vector_set in await self._db.read(store.list_retired):
            if vector_set in await self._db.lookup(store.list_retired):
                await self._current.vectors.drop_version(vector_set.workspace_id, vector_set.version)
                await self._db.write(lambda tx, vector_set=vector_set: store.delete_retired(tx, vector_set))

    def _get_index(self, active: ModelVersion | None) -> IndexVersion | None:
        """Return the index of the active version. None, before the first vectors: the current one."""
        return self._current if active is None or active == self._current_version else self._find_index(active)

    def _find_index(self, version: ModelVersion) -> IndexVersion | None:
        index = self._find_previous(version)
        if index is None and version not in self._logged_unknown:
            self._logged_unknown.add(version)
            _log.warning("memory.previous_embedder_unknown", model=version.model, dimension=version.dimension)
        return index


def _is_indexed_by(memory: Memory, model: str) -> bool:
    """Return whether the index of *model* has the current version of the memory."""
    return memory.indexed_model == model and memory.indexed_at is not None and memory.indexed_at >= memory.updated_at
