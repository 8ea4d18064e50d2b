"""Recall: candidates from the indexes, records from the store, order from `ranking`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.engine_breakers import EngineWrites
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.money import CHARS_PER_TOKEN
from rookery.kernel.questions import extract_question
from rookery.kernel.workspace_shares import MAX_QUERY_HOLD_S, WorkspaceShares
from rookery.memory.access_filter import resolve_access_filter
from rookery.memory.candidates import Candidates, CandidateSearch, SearchPlan
from rookery.memory.events import MemoryRecalled
from rookery.memory.feedback import RecallBuffer
from rookery.memory.models import SCORE_DECIMALS, AccessFilter, Memory
from rookery.memory.ports import SessionLookup
from rookery.memory.ranking import (
    HALF_LIVES_DAYS,
    RecallContext,
    RecallHit,
    Series,
    are_confident,
    boost_score,
    find_series,
    find_values,
    get_confident_relevance,
    memory_decay_factor,
    round_for_ranking,
    sort_hits,
)
from rookery.memory.recall_explanation import MAX_DROPPED, has_filters, list_dropped, list_filtered, remove_filters
from rookery.memory.recall_models import (
    DroppedMemory,
    LoggedRequest,
    RecallExplanation,
    RecallQueryRecord,
    RecallRecord,
    RecallRequest,
    RecallResult,
)
from rookery.memory.store import records
from rookery.memory.store.neighbours import Neighbour, find_neighbours
from rookery.memory.text_queries import highlight, match_keywords, parse_question
from rookery.memory.visibility import is_readable, is_visible

_LIMIT_GROWTH, _MAX_GROWTH = 4, 64
"""Growth of the number of candidates if the result is not final: per search, and at most."""

_MIN_HYBRID_CANDIDATES, _HYBRID_CANDIDATES_PER_RESULT = 60, 3
"""
Hits of each index that hybrid recall compares. With 200, frac@10 of single turns was 0.8 points lower than with 60 and nDCG@10 of SciFact
equal; with 40, nDCG@10 was 0.2 points lower. All are within the 95 % intervals. 100 take 0.5 ms more than 60 (`benchmarks.recall_latency`).
"""

_RECORDS_AHEAD = 5
"""Records that are read in one statement beside those needed."""

_MAX_CROWDED_CANDIDATES = 200
"""Candidates up to which hybrid recall looks for further ones if those of one series take more than one place."""

_BUDGET_OVERFETCH = 3
"""Over-fetch factor of top_k with a token budget, to choose memories that fit."""

_UNEXPLAINED_NOTICE = "The memories that filters dropped are not listed: an index failed during the explanation."


@dataclass(frozen=True, slots=True)
class _Records:
    """
    The records that a recall has read: those it may show, and the ids of all.

    Attributes:
        asked_values: The numbers and dates of the question.
        series_by_id: The series of the memories that were ranked.
        series_counts: The number of memories of each series among those that were ranked.
    """

    access_filter: AccessFilter
    asked_values: frozenset[str]
    series_by_id: dict[str, Series] = field(default_factory=dict[str, Series])
    series_counts: Counter[Series | None] = field(default_factory=Counter[Series | None])
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    fetched_ids: set[str] = field(default_factory=set[str])


class Recall:
    """
    The recall service.

    Args:
        writes: Knows which indexes accept only reads.
        sessions: A lookup of the sessions that a session continues. None: sessions continue none.
        half_lives_days: Half-lives by type; they override `ranking.HALF_LIVES_DAYS` (settings).
        timer: A clock in seconds that never goes back; tests pass their own.
    """

    def __init__(
        self,
        *,
        db: Database,
        candidates: CandidateSearch,
        writes: EngineWrites,
        buffer: RecallBuffer,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        shares: WorkspaceShares,
        sessions: SessionLookup | None = None,
        half_lives_days: Mapping[str, int | None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._candidates = candidates
        self._writes = writes
        self._buffer = buffer
        self._bus = bus
        self._shares = shares
        self._sessions = sessions
        self._clock = clock
        self._ids = ids
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}
        self._timer = timer

    async def find(self, caller: Caller, request: RecallRequest) -> RecallResult:
        """
        Return the memories that match *request* best, in order.

        Raises:
            PermissionDenied: The request names an agent other than the key's own.
            EngineUnavailable: An index that the mode needs is down. Hybrid recall needs only one of them; a notice names the other. Without
                an embedder, each mode falls back to keywords, with a notice.
            NotEmbeddable: The embedder returns no vector for the query, and the mode is `semantic`. Hybrid recall falls back to keywords,
                with a notice.
        """
        async with self._shares.take(caller.workspace_id, max_hold_s=MAX_QUERY_HOLD_S):
            return await self._find(caller, request)

    async def _find(self, caller: Caller, request: RecallRequest) -> RecallResult:
        started_s = self._timer()
        at = self._clock()
        access = await resolve_access_filter(self._sessions, caller, request.filters, at=at)
        read = _Records(access, find_values(request.query))
        ranked, candidates = await self._rank(await self._candidates.plan_search(request, access), read)
        hits = await self._select(ranked, read, request)
        result = RecallResult(recall_id=self._ids(), hits=hits, is_confident=are_confident(hits))
        plan, memory_ids = candidates.plan, tuple(hit.memory.id for hit in hits)
        await self._buffer.add(
            RecallRecord(
                id=result.recall_id,
                workspace_id=caller.workspace_id,
                key_id=caller.key_id,
                memory_ids=memory_ids,
                created_at=at,
                query_record=RecallQueryRecord(
                    query=request.query,
                    mode=plan.mode,
                    semantic_ranks=tuple(hit.score.semantic_rank for hit in hits),
                    keyword_ranks=tuple(hit.score.keyword_rank for hit in hits),
                ),
                request=LoggedRequest(
                    request=request, key_name=caller.key_name, orgs=caller.orgs, projects=caller.projects, is_confident=result.is_confident
                ),
                org=access.org,
                project=access.project,
                agent_id=access.agent_id,
                session_id=access.session_id,
            )
        )
        explanation = await self._explain(read, candidates, ranked, memory_ids) if request.explains else None
        notice = _join_notices(plan.notice, explanation and explanation.notice, plan.describe_refusals(self._writes))
        took_ms = (self._timer() - started_s) * 1000
        self._bus.publish(
            MemoryRecalled(
                workspace_id=caller.workspace_id,
                recall_id=result.recall_id,
                query=request.query,
                results=memory_ids,
                duration_ms=took_ms,
                mode=plan.mode,
                is_degraded=notice is not None,
            )
        )
        return replace(result, took_ms=took_ms, notice=notice, explanation=explanation)

    async def replay(self, access_filter: AccessFilter, request: RecallRequest, *, recall_id: str) -> tuple[RecallResult, list[RecallHit]]:
        """
        Run *request* again with its explanation, and record nothing. Return the result, and all memories that were compared, in order.

        Raises:
            EngineUnavailable, NotEmbeddable: As for `find`.
        """
        started_s = self._timer()
        request = replace(request, explains=True)
        read = _Records(access_filter, find_values(request.query))
        ranked, candidates = await self._rank(await self._candidates.plan_search(request, access_filter), read)
        hits = await self._select(ranked, read, request)
        explanation = await self._explain(read, candidates, ranked, [hit.memory.id for hit in hits])
        result = RecallResult(
            recall_id=recall_id,
            hits=hits,
            is_confident=are_confident(hits),
            took_ms=(self._timer() - started_s) * 1000,
            notice=_join_notices(candidates.plan.notice, explanation.notice),
            explanation=explanation,
        )
        return result, await self._compare(read, candidates, list(candidates.bases))

    async def _explain(
        self, read: _Records, candidates: Candidates, ranked: Sequence[RecallHit], returned_ids: Sequence[str]
    ) -> RecallExplanation:
        """Return what a recall compared, and the best memories that it dropped. Only memories that the caller may read are among them."""
        plan = candidates.plan
        skipped_ids = _list_skipped_ids(ranked, returned_ids, plan.request)
        best_ids = _select_relevant(candidates, None)[: len(returned_ids) + len(skipped_ids) + MAX_DROPPED]
        compared = await self._compare(read, candidates, best_ids)
        filtered = await self._find_filtered(plan) if has_filters(plan.access_filter) else []
        dropped = list_dropped(
            compared,
            request=plan.request,
            returned_ids=returned_ids,
            skipped_ids=skipped_ids,
            limit=MAX_DROPPED - len(filtered or ()),
        )
        return RecallExplanation(
            mode=plan.mode,
            candidate_count=len(candidates.bases),
            confident_relevance=get_confident_relevance(plan.mode),
            dropped=(*dropped, *(filtered or ())),
            notice=_UNEXPLAINED_NOTICE if filtered is None else None,
        )

    async def _find_filtered(self, plan: SearchPlan) -> list[DroppedMemory] | None:
        """Return the best memories that the filters dropped. None if an index fails meanwhile."""
        candidates = None
        wide_plan = replace(plan, access_filter=remove_filters(plan.access_filter))
        read = _Records(wide_plan.access_filter, find_values(plan.request.query))
        with suppress(EngineUnavailable):
            candidates = await self._candidates.find(
                wide_plan, _MIN_HYBRID_CANDIDATES, read_ahead=lambda ids: self._load_records(read, ids)
            )
        if candidates is None or candidates.plan.mode != plan.mode:
            return None
        others = await self._compare(read, candidates, _select_relevant(candidates, None))
        return list_filtered(others, plan.access_filter, limit=MAX_DROPPED // 2)

    async def _compare(self, read: _Records, candidates: Candidates, ids: Sequence[str]) -> list[RecallHit]:
        """Return the visible ones of the candidates *ids*, in order."""
        await self._load_records(read, ids)
        return sort_hits(self._build_hit(read, candidates, memory_id) for memory_id in ids if memory_id in read.memories)

    async def _rank(self, plan: SearchPlan, read: _Records) -> tuple[list[RecallHit], Candidates]:
        """
        Return the best visible memories, in order, and all candidates.

        More candidates are fetched while the records drop too many.
        """
        request = plan.request
        needed_count = request.top_k * (_BUDGET_OVERFETCH if request.max_tokens is not None else 1)
        limit = 2 * needed_count + 20
        if plan.mode == "hybrid":
            limit = max(_MIN_HYBRID_CANDIDATES, _HYBRID_CANDIDATES_PER_RESULT * needed_count)
        max_limit = _MAX_GROWTH * limit
        while True:
            candidates = await self._candidates.find(
                plan, limit, read_ahead=lambda ids: self._load_records(read, ids[: needed_count + _RECORDS_AHEAD])
            )
            ranked, is_settled = await self._rank_candidates(read, candidates, needed_count)
            if is_settled or candidates.is_complete or limit >= max_limit:
                return ranked, candidates
            plan, limit = candidates.plan, limit * _LIMIT_GROWTH

    async def _rank_candidates(self, read: _Records, candidates: Candidates, limit: int) -> tuple[list[RecallHit], bool]:
        """
        Read records, best candidates first, until no unread one can be among the best *limit*.

        Return the ranked memories, and whether the result is final: further candidates could not change it.
        """
        mode, request, bases = candidates.plan.mode, candidates.plan.request, candidates.bases
        ids = _select_relevant(candidates, request.min_relevance)
        read.series_counts.clear()
        ranked = list[RecallHit]()
        position, step = 0, limit + _RECORDS_AHEAD
        first_count = step if request.keyword_boost else _count_ties(bases, ids, limit)
        while position < len(ids):
            batch = ids[position : position + step] if position else ids[:first_count]
            await self._load_records(read, batch)
            ranked.extend(self._build_hit(read, candidates, memory_id) for memory_id in batch if memory_id in read.memories)
            position += len(batch)
            step = 2 * (limit + _RECORDS_AHEAD)  # a long series is read in few statements, each short enough for other tasks
            ranked = sort_hits(ranked, limit)  # thousands of ties are all read; sorting them in each round would take a second
            if len(ranked) >= limit:
                following = bases[ids[min(position, len(ids) - 1)]]
                ceiling = boost_score(following, share=1.0, boost=request.keyword_boost, is_bounded=mode != "semantic")
                if ranked[limit - 1].ranking > round_for_ranking(ceiling):
                    return ranked, True
            await asyncio.sleep(0)  # the read may not yield to the event loop; let other requests run
        # A hybrid score is relative to the candidates, so further candidates have no upper bound to compare with. If some of these are not
        # relevant enough, further ones are not either.
        is_enough = mode == "hybrid" and len(ranked) >= limit
        is_crowded = len(bases) < _MAX_CROWDED_CANDIDATES and any(hit.is_repeated for hit in ranked[: request.top_k])
        return ranked, (is_enough and not is_crowded) or len(ids) < len(bases)

    async def _load_records(self, read: _Records, ids: Sequence[str]) -> None:
        """Read the records of *ids* that were not read yet, and keep those that are visible."""
        unread = [memory_id for memory_id in ids if memory_id not in read.fetched_ids]
        if not unread:
            return
        access = read.access_filter
        memories = await self._db.lookup(lambda tx: records.get_memories(tx, access.workspace_id, unread))
        read.fetched_ids.update(unread)
        for memory in memories:
            if memory.archived_at is None and is_visible(access, memory):
                read.memories[memory.id] = memory

    def _build_hit(self, read: _Records, candidates: Candidates, memory_id: str) -> RecallHit:
        memory, request = read.memories[memory_id], candidates.plan.request
        matched_keywords = match_keywords(request.keywords, memory.content, *memory.tags) if request.keywords else ()
        share = len(matched_keywords) / len(request.keywords) if request.keywords else 0.0
        series = read.series_by_id.get(memory_id)
        if series is None:
            series = read.series_by_id[memory_id] = find_series(memory.content, read.asked_values)
        read.series_counts[series] += 1
        score = candidates.get_score(
            memory_id,
            boost=request.keyword_boost,
            matched_keywords=matched_keywords,
            keyword_share=share,
            decay=memory_decay_factor(memory, at=read.access_filter.at, half_lives_days=self._half_lives_days),
        )
        return RecallHit(memory=memory, score=score, series=series)

    async def _select(self, ranked: Sequence[RecallHit], read: _Records, request: RecallRequest) -> tuple[RecallHit, ...]:
        """Return those of *ranked* that the recall returns, as it returns them."""
        contexts = await self._find_contexts(read, ranked, distance=request.context)
        return _present_hits(_select_within_budget(ranked, contexts, request), request, read.series_counts)

    async def _find_contexts(self, read: _Records, ranked: Sequence[RecallHit], *, distance: int) -> Mapping[str, RecallContext] | None:
        """Return the readable neighbours, at most *distance* places away, of the memories that have any. None for a distance of 0."""
        if distance == 0:
            return None
        access = read.access_filter
        ids = [hit.memory.id for hit in ranked]

        def load(tx: Tx) -> tuple[dict[str, tuple[Neighbour, ...]], dict[str, Memory]]:
            neighbours = {
                memory_id: tuple(neighbour for neighbour in pairs if abs(neighbour.distance) <= distance)
                for memory_id, pairs in find_neighbours(tx, access, ids).items()
            }
            others = {neighbour.memory_id for pairs in neighbours.values() for neighbour in pairs}
            return neighbours, {memory.id: memory for memory in records.get_memories(tx, access.workspace_id, sorted(others))}

        neighbours, memories = await self._db.lookup(load)
        # Each statement may see a newer state, so a record decides for itself whether it is shown.
        readable = {
            memory_id: memory for memory_id, memory in memories.items() if memory.archived_at is None and is_readable(access, memory)
        }
        return {memory_id: _build_context(pairs, readable) for memory_id, pairs in neighbours.items()}


def _join_notices(*notices: str | None) -> str | None:
    """Return *notices* as one text, or None."""
    return " ".join(filter(None, notices)) or None


def count_tokens(memory: Memory) -> int:
    """Return the approximate number of tokens in the content of *memory*, at four characters per token."""
    return -(-len(memory.content) // CHARS_PER_TOKEN)


def _select_relevant(candidates: Candidates, min_relevance: float | None) -> list[str]:
    """Return the ids of the candidates with at least *min_relevance*, as it is shown, highest score first."""
    ids = [memory_id for _, memory_id in sorted((-score, memory_id) for memory_id, score in candidates.bases.items())]
    if min_relevance is None:
        return ids
    return [memory_id for memory_id in ids if round(candidates.get_score(memory_id).relevance, SCORE_DECIMALS) >= min_relevance]


def _count_ties(scores: Mapping[str, float], candidates: Sequence[str], limit: int) -> int:
    """
    Return the number of the first *candidates* that must be read if all of them are visible: *limit*, and those that tie with the last.

    At most three times *limit*. Each record takes 20 µs, and most recalls need one or two more than *limit*.
    """
    if len(candidates) <= limit:
        return limit
    last, count = round_for_ranking(scores[candidates[limit - 1]]), limit
    while count < min(len(candidates), 3 * limit) and round_for_ranking(scores[candidates[count]]) >= last:
        count += 1
    return count


def _build_context(neighbours: Sequence[Neighbour], memories: Mapping[str, Memory]) -> RecallContext:
    return RecallContext(
        before=tuple(memories[item.memory_id] for item in neighbours if item.distance < 0 and item.memory_id in memories),
        after=tuple(memories[item.memory_id] for item in neighbours if item.distance > 0 and item.memory_id in memories),
    )


def _select_within_budget(
    ranked: Sequence[RecallHit], contexts: Mapping[str, RecallContext] | None, request: RecallRequest
) -> list[RecallHit]:
    """
    Return the first `top_k` of *ranked* that fit the budget, with their contexts.

    Memories that do not fit are skipped. One that fits only without its context is returned without it.
    """
    selection = list[RecallHit]()
    remaining_tokens = request.max_tokens
    for hit in ranked:
        if len(selection) == request.top_k:
            break
        context = None if contexts is None else contexts.get(hit.memory.id, RecallContext())
        if remaining_tokens is not None:
            size = count_tokens(hit.memory)
            if size > remaining_tokens:
                continue
            remaining_tokens -= size
            context_size = 0 if context is None else sum(map(count_tokens, (*context.before, *context.after)))
            if context_size > remaining_tokens:
                context = RecallContext()
            else:
                remaining_tokens -= context_size
        selection.append(replace(hit, context=context))
    return selection


def _list_skipped_ids(ranked: Sequence[RecallHit], returned_ids: Sequence[str], request: RecallRequest) -> set[str]:
    """Return the ids of the memories that did not fit the token budget: those before the last place that were not returned."""
    if request.max_tokens is None:
        return set()
    ids = [hit.memory.id for hit in ranked]
    end = ids.index(returned_ids[-1]) if len(returned_ids) == request.top_k else len(ids)
    return set(ids[:end]) - set(returned_ids)


def _present_hits(
    selection: Sequence[RecallHit], request: RecallRequest, series_counts: Mapping[Series | None, int]
) -> tuple[RecallHit, ...]:
    """
    Return *selection* with what depends on the others: no repeated memory of a series has a higher score than the one before it.

    The words of the question are marked if the request wants explanations.
    """
    returned_counts = Counter(hit.series for hit in selection)
    question = parse_question(extract_question(request.query)) if request.explains else None
    hits = list[RecallHit]()
    for hit in selection:
        score = hit.score
        if hit.is_repeated and hits and round_for_ranking(score.total) > round_for_ranking(hits[-1].score.total):
            score = replace(score, total=hits[-1].score.total, reduction=hits[-1].score.total - score.total)
        hits.append(
            replace(
                hit,
                score=score,
                similar_count=0 if hit.is_repeated else series_counts[hit.series] - returned_counts[hit.series],
                highlight=None if question is None else highlight(hit.memory.content, question),
            )
        )
    return tuple(hits)
