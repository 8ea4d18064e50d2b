"""
Change of the embedding model under load (D-54).

The vectors of the new model are built beside the old ones. The old ones serve recall until the new ones are complete. In each
workspace, one model serves at a time. Memories stored meanwhile are embedded by both models. If the previous embedder is no longer
available, recall falls back to keywords and reports so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

import structlog

from rookery.kernel.errors import EngineUnavailable
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import EmbeddedDocument, IndexDocument, Memory, Passage
from rookery.memory.ports import Embedder, ModelVersion, ModelVersions, OutdatedWorkspace, VectorIndex

_WARMUP_TEXT = "the heron stands still"

_log = structlog.stdlib.get_logger("rookery.memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexVersion:
    """An embedder and the index of its vectors. *is_previous* marks the model before the current one."""

    embedder: Embedder
    vectors: VectorIndex
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """An outdated workspace. *has_embedder* states whether its previous embedder is still available."""

    workspace: OutdatedWorkspace
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
        current: IndexVersion,
        model_versions: ModelVersions,
        find_previous: Callable[[ModelVersion], IndexVersion | None] = lambda _: None,
        close_previous: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._current = current
        self._current_version = ModelVersion(model=current.embedder.model, dimension=current.embedder.dimension)
        self._model_versions = model_versions
        self._find_previous = find_previous
        self._close_previous = close_previous
        self._was_outdated = True
        self._logged_unknown = set[ModelVersion]()
        self._warmed_up = set[ModelVersion]()

    async def get_active_index(self, workspace_id: int) -> IndexVersion | None:
        """
        Return the index that serves semantic recall in the workspace. None if no embedder fits until the index is rebuilt.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        active = await self._model_versions.get_active_version(workspace_id)
        if active is None or active == self._current_version:
            return self._current
        return self._find_index(active)

    async def get_ready_index(self, workspace_id: int) -> IndexVersion | None:
        """
        Return the active index if it is loaded for the workspace. None while it loads, so that no request waits for minutes.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        index = await self.get_active_index(workspace_id)
        return None if index is None or not await index.vectors.is_ready(workspace_id) else index

    async def update_previous_index(self, pairs: Sequence[tuple[Memory, IndexDocument, Passage]]) -> None:
        """
        Add new and changed memories to the previous index in workspaces where it still serves.

        A memory that cannot be embedded there is skipped; keyword search finds it until the switch.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        workspaces = {memory.workspace_id for memory, _, _ in pairs}
        for workspace_id in sorted(workspaces):
            index = await self.get_active_index(workspace_id)
            if index is None or not index.is_previous:
                continue
            model = index.embedder.model
            missing = [pair for pair in pairs if pair[0].workspace_id == workspace_id and not _is_indexed_by(pair[0], model)]
            if not missing:
                continue
            try:
                vectors = await index.embedder.embed_passages([passage for _, _, passage in missing])
            except (EngineUnavailable, NotEmbeddable) as error:
                _log.warning("memory.previous_embedder_failed", model=model, memories=len(missing), reason=error.message)
                continue
            documents = [
                EmbeddedDocument(document=document, vectors=chunks) for (_, document, _), chunks in zip(missing, vectors, strict=True)
            ]
            await index.vectors.put(documents)

    async def activate_complete(self, *, ignored_ids: Collection[str] = ()) -> int:
        """
        Activate the current model in the workspaces that have all of its vectors. Return the number of workspaces switched.

        The vectors of previous models are deleted by a later call, when no running query uses them.

        Args:
            ignored_ids: Memories that failed; the switch does not wait for them.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        await self._model_versions.delete_retired()
        switched_count = await self._model_versions.activate(ignored_ids=ignored_ids)
        if switched_count:
            _log.info("memory.embedding_model_switched", model=self._current_version.model, workspaces=switched_count)
        return switched_count

    async def run_periodic(self) -> int:
        """Run `activate_complete`. Load a previous embedder before its first query, and close it when no workspace needs it."""
        switched_count = await self.activate_complete()
        outdated = await self._model_versions.list_outdated()
        if not (outdated or self._was_outdated or self._close_previous is None):
            await self._close_previous()
        self._was_outdated = bool(outdated)
        for version in {workspace.active_version for workspace in outdated} - self._warmed_up:
            self._warmed_up.add(version)
            index = self._find_index(version)
            if index is not None:
                with contextlib.suppress(EngineUnavailable):  # the next query raises it
                    await index.embedder.embed_query(_WARMUP_TEXT)
        return switched_count

    async def list_progress(self) -> list[MigrationProgress]:
        """
        Return the workspaces that are not yet served by the current model.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        return [
            MigrationProgress(workspace=workspace, has_embedder=self._find_index(workspace.active_version) is not None)
            for workspace in await self._model_versions.list_outdated()
        ]

    def _find_index(self, version: ModelVersion) -> IndexVersion | None:
        index = self._find_previous(version)
        if index is None and version not in self._logged_unknown:
            self._logged_unknown.add(version)
            _log.warning("memory.previous_embedder_unknown", model=version.model, dimension=version.dimension)
        return index


def _is_indexed_by(memory: Memory, model: str) -> bool:
    """Return whether the index of *model* has the current version of the memory."""
    return memory.indexed_model == model and memory.indexed_at is not None and memory.indexed_at >= memory.updated_at
