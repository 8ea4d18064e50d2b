"""The memories that relate to the work of a coding agent, which gets them without asking."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import MemoryFilter, RecallMode
from rookery.memory.ranking import RecallHit
from rookery.memory.recall import Recall
from rookery.memory.recall_models import RecallRequest, RecallResult
from rookery.memory.sessions import READ_SCOPE


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedMemory:
    """A memory as another domain shows it. *author* is its agent, or else its source."""

    id: str
    content: str
    type: str
    author: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedMemories:
    """A finder of memories, which the agents domain uses. *mode* is the search method of recall."""

    recall: Recall
    mode: RecallMode

    async def find_related(
        self,
        caller: Caller,
        queries: Sequence[str],
        *,
        org: str | None,
        project: str,
        session_id: str | None,
        without: Collection[str],
        limit: int,
        min_relevance: float,
    ) -> list[RelatedMemory]:
        """
        Return the memories that *caller* may recall for one of *queries*, most relevant first. Nothing without the scope to read memories.

        Without *org*, memories that are shared in an org are left out, because recall finds those of every org then.

        Args:
            session_id: A session whose memories are included.
            without: Ids of memories that are left out.
            min_relevance: The lowest relevance of a memory, 0..1.

        Raises:
            EngineUnavailable, PermissionDenied: As for `Recall.find`.
        """
        if not caller.has_scope(READ_SCOPE):
            return []
        best = dict[str, RecallHit]()
        for query in queries:
            request = RecallRequest(
                query=query,
                filters=MemoryFilter(org=org, project=project, session_id=session_id),
                top_k=limit + len(without),
                mode=self.mode,
                min_relevance=min_relevance,
            )
            for hit in (await self._find(caller, request)).hits:
                previous_hit = best.get(hit.memory.id)
                if org is None and hit.memory.project is None and hit.memory.org is not None:
                    continue
                if hit.memory.id not in without and (previous_hit is None or previous_hit.score.relevance < hit.score.relevance):
                    best[hit.memory.id] = hit
        ranked = sorted(best.values(), key=lambda hit: hit.score.relevance, reverse=True)
        return [_to_related(hit) for hit in ranked[:limit]]

    async def _find(self, caller: Caller, request: RecallRequest) -> RecallResult:
        """Find by words if the query has no vector: the mode is a setting, and the caller cannot choose another."""
        try:
            return await self.recall.find(caller, request)
        except NotEmbeddable:
            return await self.recall.find(caller, replace(request, mode="keyword"))


def _to_related(hit: RecallHit) -> RelatedMemory:
    memory = hit.memory
    return RelatedMemory(
        id=memory.id,
        content=memory.content,
        type=memory.type,
        author=memory.agent_id or memory.source,
        created_at=memory.created_at,
    )
