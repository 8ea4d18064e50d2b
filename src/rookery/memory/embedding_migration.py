"""
A changed embedder: the vectors of its model are built beside the old ones, which answer until all are there (D-54).

In each workspace one model's vectors answer. Whatever is remembered meanwhile is embedded by both, so that what answers is whole.
When the former embedder cannot be asked any more, recall goes by words, and says so.
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
    """An embedder and the index of its vectors; *is_previous*: of the model before."""

    embedder: Embedder
    vectors: VectorIndex
    is_previous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationProgress:
    """A workspace that is behind, and whether its former embedder can still be asked."""

    workspace: OutdatedWorkspace
    has_embedder: bool


class EmbeddingMigration:
    """
    Tells which side answers, and switches.

    Args:
        find_previous: Returns the side of a former generation, opened when it is first asked for; None: nobody knows its embedder any more.
        close_previous: Lets go of the sides that *find_previous* opened; they are opened again when they are asked for.
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
        Return who answers questions of meaning in the workspace; None: nobody can, until it is rebuilt.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        serving = await self._model_versions.get_active_version(workspace_id)
        if serving is None or serving == self._current_version:
            return self._current
        return self._find_index(serving)

    async def get_ready_index(self, workspace_id: int) -> IndexVersion | None:
        """
        Do as `get_active_index`; None also while the index is being got ready for the workspace, so that nobody waits for minutes.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        side = await self.get_active_index(workspace_id)
        return None if side is None or not await side.vectors.is_ready(workspace_id) else side

    async def update_previous_index(self, pairs: Sequence[tuple[Memory, IndexDocument, Passage]]) -> None:
        """
        Give the former generation, where it still answers, what it does not have: new and changed memories.

        That it cannot be embedded so is no failure: such a memory is found by words until the switch.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        workspaces = {memory.workspace_id for memory, _, _ in pairs}
        for workspace_id in sorted(workspaces):
            side = await self.get_active_index(workspace_id)
            if side is None or not side.is_previous:
                continue
            model = side.embedder.model
            theirs = [pair for pair in pairs if pair[0].workspace_id == workspace_id and not _is_indexed_by(pair[0], model)]
            if not theirs:
                continue
            try:
                vectors = await side.embedder.embed_passages([passage for _, _, passage in theirs])
            except (EngineUnavailable, NotEmbeddable) as error:
                _log.warning("memory.former_embedder_failed", model=model, memories=len(theirs), reason=error.message)
                continue
            put = [EmbeddedDocument(document=document, vectors=chunks) for (_, document, _), chunks in zip(theirs, vectors, strict=True)]
            await side.vectors.put(put)

    async def activate_complete(self, *, ignored_ids: Collection[str] = ()) -> int:
        """
        Let the model of now answer in the workspaces that have all of its vectors, and return in how many that is new.

        What the former ones had is cleared away by a later call, after the questions that were on their way.

        Args:
            ignored_ids: Memories that failed; they are not waited for.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        await self._model_versions.delete_retired()
        switched = await self._model_versions.activate(ignored_ids=ignored_ids)
        if switched:
            _log.info("memory.switched", model=self._current_version.model, workspaces=switched)
        return switched

    async def run_periodic(self) -> int:
        """Run `activate_complete` repeatedly; load a previous embedder before the first query, and close it when no workspace needs it."""
        switched = await self.activate_complete()
        behind = await self._model_versions.list_outdated()
        if not (behind or self._was_outdated or self._close_previous is None):
            await self._close_previous()
        self._was_outdated = bool(behind)
        for generation in {each.active_version for each in behind} - self._warmed_up:
            self._warmed_up.add(generation)
            side = self._find_index(generation)
            if side is not None:
                with contextlib.suppress(EngineUnavailable):  # the next question meets it itself
                    await side.embedder.embed_query(_WARMUP_TEXT)
        return switched

    async def list_progress(self) -> list[MigrationProgress]:
        """
        Return the workspaces in which the model of now does not answer yet.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        return [
            MigrationProgress(workspace=each, has_embedder=self._find_index(each.active_version) is not None)
            for each in await self._model_versions.list_outdated()
        ]

    def _find_index(self, version: ModelVersion) -> IndexVersion | None:
        side = self._find_previous(version)
        if side is None and version not in self._logged_unknown:
            self._logged_unknown.add(version)
            _log.warning("memory.former_embedder_unknown", model=version.model, dimension=version.dimension)
        return side


def _is_indexed_by(memory: Memory, model: str) -> bool:
    """Tell whether the index of *model* has the memory as it is now."""
    return memory.indexed_model == model and memory.indexed_at is not None and memory.indexed_at >= memory.updated_at
