"""The log of recalls: what was asked, what was returned, and the same recall again with its explanation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Actor, Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.pages import ListPage, PageSlice
from rookery.memory.access_filter import ADMIN_SCOPE, can_read, resolve_access_filter
from rookery.memory.feedback import RecallBuffer
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.models import SCORE_DECIMALS, AccessFilter, Memory, MemoryScope
from rookery.memory.ports import SessionLookup
from rookery.memory.ranking import RecallHit, round_for_ranking
from rookery.memory.recall import Recall
from rookery.memory.recall_explanation import find_failed_filters, remove_filters
from rookery.memory.recall_models import (
    AbsenceReason,
    LoggedRecall,
    MemoryVerdict,
    RecallLogFilter,
    RecallRecord,
    RecallReplay,
    RecallRequest,
    RecallResult,
    RecallViewer,
)
from rookery.memory.store import recalls
from rookery.memory.store.tables import MEMORIES, RECALL_LOG_EXCLUSIONS
from rookery.memory.visibility import is_readable

AUDIT_SCOPE = "audit:read"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallLog:
    """
    A reader of the log of recalls.

    A key sees its own recalls. With `audit:read` it also sees those of other keys, within its orgs, its projects and its agent.
    """

    db: Database
    buffer: RecallBuffer
    recall: Recall
    clock: Clock
    audit: MemoryAudit
    sessions: SessionLookup

    async def list_page(self, caller: Caller, filters: RecallLogFilter, *, page: PageSlice) -> ListPage[LoggedRecall]:
        """
        Return a page of recalls, newest first.

        Raises:
            NotInAllowList: The filter names an org or a project outside the key's lists.
        """
        caller.require_in_allow_lists(org=filters.org, project=filters.project)
        await self.buffer.flush()

        def read(tx: Tx) -> ListPage[LoggedRecall]:
            record_page = recalls.list_recalls(tx, _to_viewer(caller), filters, page=page)
            return record_page.with_items(_add_feedback(tx, record_page.items))

        return await self.db.read(read)

    async def get(self, caller: Caller, recall_id: str) -> LoggedRecall:
        """
        Return one recall.

        Raises:
            NotFound: The recall does not exist, is not logged, or *caller* may not see it.
        """
        await self.buffer.flush()

        def read(tx: Tx) -> list[LoggedRecall]:
            record = recalls.get_recall(tx, _to_viewer(caller), recall_id)
            return [] if record is None else _add_feedback(tx, [record])

        logged = await self.db.read(read)
        if not logged:
            raise NotFound("recall", recall_id)
        return logged[0]

    async def explain(self, caller: Caller, recall_id: str, memory_id: str | None) -> RecallReplay:
        """
        Run a logged recall again, as its key and within the rights of *caller*, and say where *memory_id* leaves it.

        Nothing is recorded: the replay is not in the log, and changes neither training examples nor the time of the last recall.

        Raises:
            NotFound: As for `get`.
            PermissionDenied: *caller* may no longer read what the recall read.
            EngineUnavailable, NotEmbeddable: As for `Recall.find`.
        """
        logged = await self.get(caller, recall_id)
        now, request = self.clock(), logged.request.request
        filters = replace(request.filters, agent_id=logged.record.agent_id)
        access_filter = await resolve_access_filter(self.sessions, caller, filters, at=now)
        asked_filter = replace(
            access_filter,
            agent_id=logged.record.agent_id,
            orgs=_intersect(caller.orgs, logged.request.orgs),
            projects=_intersect(caller.projects, logged.request.projects),
        )
        result, compared = await self.recall.replay(asked_filter, request, recall_id=recall_id)
        verdict = None
        if memory_id is not None:
            memory = await self.db.lookup(lambda tx: MEMORIES.find(tx, caller.workspace_id, id=memory_id))
            is_known = memory is not None and can_read(caller, memory, at=now)
            verdict = _judge(memory if is_known else None, memory_id, logged, access=asked_filter, result=result, compared=compared)
        return RecallReplay(logged=logged, result=result, verdict=verdict)

    async def get_disabled_since(self, workspace_id: int) -> datetime | None:
        """Return the time since when the workspace keeps no log. None if it keeps one."""
        exclusion = await self.db.read(lambda tx: RECALL_LOG_EXCLUSIONS.find(tx, workspace_id))
        return None if exclusion is None else exclusion.since

    async def set_enabled(self, workspace_id: int, *, is_enabled: bool, by: Actor) -> int:
        """Start the log of a workspace, or stop it and clear what it has. Return the number of entries cleared."""
        now = self.clock()
        await self.buffer.flush()

        def write(tx: Tx) -> int:
            cleared = 0
            if is_enabled:
                RECALL_LOG_EXCLUSIONS.delete(tx, workspace_id)
            else:
                cleared = recalls.exclude(tx, workspace_id, at=now)
            action = "recall_log.enabled" if is_enabled else "recall_log.disabled"
            self.audit.record_setting(tx, by, workspace_id, action, {"cleared": cleared})
            return cleared

        return await self.db.write(write)


def _to_viewer(caller: Caller) -> RecallViewer:
    return RecallViewer(
        workspace_id=caller.workspace_id,
        key_id=caller.key_id,
        sees_other_keys=caller.has_scope(AUDIT_SCOPE),
        orgs=caller.orgs,
        projects=caller.projects,
        agent_id=None if caller.has_scope(ADMIN_SCOPE) else caller.agent_id,
    )


def _add_feedback(tx: Tx, rows: Sequence[RecallRecord]) -> list[LoggedRecall]:
    feedback = recalls.get_feedback(tx, rows[0].workspace_id, [row.id for row in rows]) if rows else {}
    return [
        LoggedRecall(record=row, request=row.request, feedback=tuple(feedback.get((row.id, memory_id)) for memory_id in row.memory_ids))
        for row in rows
        if row.request is not None
    ]


def _intersect(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _judge(
    memory: Memory | None,
    memory_id: str,
    logged: LoggedRecall,
    *,
    access: AccessFilter,
    result: RecallResult,
    compared: list[RecallHit],
) -> MemoryVerdict:
    """Return the step at which *memory* leaves the recall. None stands for one that the caller may not read."""
    ids = logged.record.memory_ids
    verdict = MemoryVerdict(memory_id=memory_id, reason="not_visible", logged_rank=ids.index(memory_id) + 1 if memory_id in ids else None)
    if memory is None:
        return verdict
    if memory.archived_at is not None:
        return replace(verdict, reason="archived")
    filters = _find_failed(access, memory)
    if filters is None:
        return verdict
    if filters:
        return replace(verdict, reason="filter", filters=filters)
    rank = next((rank for rank, ranked in enumerate(compared, start=1) if ranked.memory.id == memory_id), None)
    if rank is not None:
        ranked = compared[rank - 1]
        verdict = replace(verdict, rank=rank, score=ranked.score.total, relevance=ranked.score.relevance)
    if memory.created_at > logged.record.created_at:
        return replace(verdict, reason="stored_later")
    if rank is None:
        return replace(verdict, reason="not_indexed" if memory.indexed_at is None else "not_candidate")
    place = next((place for place, hit in enumerate(result.hits, start=1) if hit.memory.id == memory_id), None)
    if place is not None:
        return replace(verdict, reason="returned", rank=place)
    return replace(verdict, reason=_find_lost_place(compared, rank, logged.request.request, result))


def _find_lost_place(compared: list[RecallHit], rank: int, request: RecallRequest, result: RecallResult) -> AbsenceReason:
    """Return why the memory of *rank* among those that were compared is not returned."""
    ranked = compared[rank - 1]
    if request.min_relevance is not None and round(ranked.score.relevance, SCORE_DECIMALS) < request.min_relevance:
        return "min_relevance"
    has_room = len(result.hits) < request.top_k or (bool(result.hits) and rank < _last_rank(compared, result))
    if request.max_tokens is not None and has_room:
        return "max_tokens"
    last_score = round_for_ranking(result.hits[-1].score.total) if result.hits else math.inf
    is_outranked = ranked.is_repeated and round_for_ranking(ranked.score.total) > last_score
    return "similar" if is_outranked else "top_k"


def _last_rank(compared: list[RecallHit], result: RecallResult) -> int:
    """Return the rank of the last returned memory among the compared ones."""
    last_id = result.hits[-1].memory.id
    return next((rank for rank, ranked in enumerate(compared, start=1) if ranked.memory.id == last_id), 0)


def _find_failed(access: AccessFilter, memory: Memory) -> tuple[str, ...] | None:
    """Return the names of the filters that reject *memory*, and None if the keys may not read it whatever the filters are."""
    unfiltered = replace(remove_filters(access), continued_session_ids=access.continued_session_ids)
    of_owner = replace(unfiltered, agent_id=memory.agent_id, session_id=memory.session_id)
    if not is_readable(of_owner, memory):
        return None
    if not is_readable(unfiltered, memory):
        return ("agent_id",) if memory.memory_scope is MemoryScope.AGENT else ("session_id",)
    return find_failed_filters(access, memory)
