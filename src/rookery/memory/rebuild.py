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
from rookery.memory.models import Document, Memory, Passage, Vectored
from rookery.memory.ports import Behind, Embedder, Generation, Generations, VectorIndex

_ANYTHING = "the heron stands still"

_log = structlog.stdlib.get_logger("rookery.memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """An embedder and the index of its vectors; *is_former*: of the model before."""

    embedder: Embedder
    vectors: VectorIndex
    is_former: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A workspace that is behind, and whether its former embedder can still be asked."""

    behind: Behind
    is_answered: bool


class Rebuild:
    """
    Tells which side answers, and switches.

    Args:
        former: Returns the side of a former generation, opened when it is first asked for; None: nobody knows its embedder any more.
        release: Lets go of the sides that *former* opened; they are opened again when they are asked for.
    """

    def __init__(
        self,
        *,
        now: Side,
        generations: Generations,
        former: Callable[[Generation], Side | None] = lambda _: None,
        release: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._now = now
        self._ours = Generation(model=now.embedder.model, dimension=now.embedder.dimension)
        self._generations = generations
        self._former = former
        self._release = release
        self._was_behind = True
        self._said = set[Generation]()
        self._woken = set[Generation]()

    async def side(self, workspace_id: int) -> Side | None:
        """
        Return who answers questions of meaning in the workspace; None: nobody can, until it is rebuilt.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        serving = await self._generations.serving(workspace_id)
        if serving is None or serving == self._ours:
            return self._now
        return self._side_of(serving)

    async def answering(self, workspace_id: int) -> Side | None:
        """
        Do as `side`; None also while the index is being got ready for the workspace, so that nobody waits for minutes.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        side = await self.side(workspace_id)
        return None if side is None or not await side.vectors.is_ready(workspace_id) else side

    async def keep_up(self, pairs: Sequence[tuple[Memory, Document, Passage]]) -> None:
        """
        Give the former generation, where it still answers, what it does not have: new and changed memories.

        That it cannot be embedded so is no failure: such a memory is found by words until the switch.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        workspaces = {memory.workspace_id for memory, _, _ in pairs}
        for workspace_id in sorted(workspaces):
            side = await self.side(workspace_id)
            if side is None or not side.is_former:
                continue
            model = side.embedder.model
            theirs = [pair for pair in pairs if pair[0].workspace_id == workspace_id and not _has(pair[0], model)]
            if not theirs:
                continue
            try:
                vectors = await side.embedder.embed_passages([passage for _, _, passage in theirs])
            except (EngineUnavailable, NotEmbeddable) as error:
                _log.warning("memory.former_embedder_failed", model=model, memories=len(theirs), reason=error.message)
                continue
            put = [Vectored(document=document, vectors=chunks) for (_, document, _), chunks in zip(theirs, vectors, strict=True)]
            await side.vectors.put(put)

    async def settle(self, *, without: Collection[str] = ()) -> int:
        """
        Let the model of now answer in the workspaces that have all of its vectors, and return in how many that is new.

        What the former ones had is cleared away by a later call, after the questions that were on their way.

        Args:
            without: Memories that failed; they are not waited for.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        await self._generations.clear()
        switched = await self._generations.switch(without=without)
        if switched:
            _log.info("memory.switched", model=self._ours.model, workspaces=switched)
        return switched

    async def tend(self) -> int:
        """Do as `settle`, now and then; get a former embedder ready ahead of the first question, and let go of it when none needs it."""
        switched = await self.settle()
        behind = await self._generations.behind()
        if not (behind or self._was_behind or self._release is None):
            await self._release()
        self._was_behind = bool(behind)
        for generation in {each.serving for each in behind} - self._woken:
            self._woken.add(generation)
            side = self._side_of(generation)
            if side is not None:
                with contextlib.suppress(EngineUnavailable):  # the next question meets it itself
                    await side.embedder.embed_query(_ANYTHING)
        return switched

    async def lags(self) -> list[Lag]:
        """
        Return the workspaces in which the model of now does not answer yet.

        Raises:
            EngineUnavailable: The vector index is down.
        """
        return [Lag(behind=each, is_answered=self._side_of(each.serving) is not None) for each in await self._generations.behind()]

    def _side_of(self, serving: Generation) -> Side | None:
        side = self._former(serving)
        if side is None and serving not in self._said:
            self._said.add(serving)
            _log.warning("memory.former_embedder_unknown", model=serving.model, dimension=serving.dimension)
        return side


def _has(memory: Memory, model: str) -> bool:
    """Tell whether the index of *model* has the memory as it is now."""
    return memory.indexed_model == model and memory.indexed_at is not None and memory.indexed_at >= memory.updated_at
