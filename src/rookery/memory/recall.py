"""Recall: candidates from the indexes, records from the store, order from `ranking` (spec 4.3, D-42 to D-46)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import Bus, MemoryRecalled
from rookery.kernel.ids import Ids
from rookery.kernel.tracing import span
from rookery.memory.both import both
from rookery.memory.journal import Journal
from rookery.memory.models import SHOWN_DIGITS, Hit, Matched, Memory, Mode, Near, Question, Recalled, Vector, Why, Within, Words
from rookery.memory.past import PastQuestion, PastRecall
from rookery.memory.ports import TextIndex
from rookery.memory.ranking import HALF_LIVES_DAYS, Candidate, Ranked, band, fuse, place, remaining, with_keywords
from rookery.memory.reach import within
from rookery.memory.rebuild import Rebuild, Side
from rookery.memory.store import records
from rookery.memory.visibility import sees
from rookery.memory.words import asked, found, of_keywords

_ROUNDS = 4
_MORE = 4
"""A round that did not settle the answer is followed by one with four times the candidates: 64 times at most."""

_HYBRID_LEAST = 100
_BUDGET_CHOICE = 3
"""With a budget of tokens, so many times top_k are ranked, to choose from what fits."""

_CHARACTERS_A_TOKEN = 4

_REBUILDING = "Found by words alone: the vectors of this workspace are being rebuilt, and cannot be searched until then."
_NO_EMBEDDER = "Found by words alone: the embedder is unavailable: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """
    What the indexes found for a question.

    Attributes:
        relevances: Of all that was found, by memory; without keywords.
        is_all: They have no more.
        similarities: As far as they are known.
        text_scores: Shares of the best word score, best first.
        ceiling: The highest relevance, without keywords, that a memory which is not among them can have.
    """

    relevances: Mapping[str, float]
    is_all: bool
    ceiling: float
    similarities: Mapping[str, float] = field(default_factory=dict[str, float])
    text_scores: Mapping[str, float] = field(default_factory=dict[str, float])
    semantic_ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    keyword_ranks: Mapping[str, int] = field(default_factory=dict[str, int])

    def candidate(self, memory_id: str) -> Candidate:
        """Return what is known of one of them."""
        return Candidate(
            memory_id=memory_id,
            relevance=self.relevances[memory_id],
            similarity=self.similarities.get(memory_id),
            text_score=self.text_scores.get(memory_id),
            semantic_rank=self.semantic_ranks.get(memory_id),
            keyword_rank=self.keyword_ranks.get(memory_id),
        )


@dataclass(slots=True)
class _Asked:
    """
    A question on its way: what is asked, and what was read for it so far.

    Attributes:
        mode: As asked, or `keyword` while vectors cannot be searched, or the embedder cannot be asked (D-54).
        side: Who knows of meaning; None: nobody is asked.
        notice: Why the mode is not as asked.
    """

    question: Question
    inside: Within
    mode: Mode
    side: Side | None = None
    vector: Vector | None = None
    notice: str | None = None
    read: dict[str, Memory] = field(default_factory=dict[str, Memory])
    looked_for: set[str] = field(default_factory=set[str])


class Recall:
    """
    Answers questions from memory.

    Args:
        half_lives_days: By type, over `ranking.HALF_LIVES_DAYS` (settings, D-40).
        timer: Seconds of a clock that never goes back; tests pass their own.
    """

    def __init__(
        self,
        *,
        db: Database,
        rebuild: Rebuild,
        texts: TextIndex,
        journal: Journal,
        bus: Bus,
        clock: Clock,
        ids: Ids,
        half_lives_days: Mapping[str, int | None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._rebuild = rebuild
        self._texts = texts
        self._journal = journal
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}
        self._timer = timer

    async def ask(self, caller: Caller, question: Question) -> Recalled:
        """
        Return the memories that answer *question* best, in order.

        Raises:
            PermissionDenied: It names another agent than the key's own.
            EngineUnavailable: An index that its mode needs is down. Without an embedder it goes by words, and says so.
            NotEmbeddable: The embedder gives no vector for the question.
        """
        started_s = self._timer()
        at = self._clock()
        state = _Asked(question, within(caller, question.filters, at=at), question.mode)
        await self._choose(state)
        ranked = await self._rank(state)
        chosen = _fitting(ranked, question)
        hits = tuple(_hit(each, number) for number, each in enumerate(chosen, start=1))
        recall_id = self._ids()
        memory_ids = tuple(hit.memory.id for hit in hits)
        await self._journal.note(
            PastRecall(
                id=recall_id,
                workspace_id=caller.workspace_id,
                key_id=caller.key_id,
                memory_ids=memory_ids,
                created_at=at,
                asked=PastQuestion(
                    query=question.query,
                    mode=state.mode,
                    semantic_ranks=tuple(hit.why.semantic_rank for hit in hits),
                    keyword_ranks=tuple(hit.why.keyword_rank for hit in hits),
                ),
            )
        )
        took_ms = (self._timer() - started_s) * 1000
        self._bus.publish(
            MemoryRecalled(
                workspace_id=caller.workspace_id,
                recall_id=recall_id,
                query=question.query,
                results=memory_ids,
                duration_ms=took_ms,
                mode=state.mode,
            )
        )
        return Recalled(recall_id=recall_id, hits=hits, took_ms=took_ms, notice=state.notice)

    async def _choose(self, state: _Asked) -> None:
        """Choose who is asked of meaning: the model of now, or the former one until its vectors are rebuilt, or, if it is gone, nobody."""
        if state.mode == "keyword":
            return
        state.side = await self._rebuild.answering(state.inside.workspace_id)
        if state.side is not None and state.side.is_former:
            try:
                with span("embedding"):
                    state.vector = await state.side.embedder.embed_query(state.question.query)
            except EngineUnavailable:
                state.side = None
        if state.side is None:
            state.mode, state.notice = "keyword", _REBUILDING

    async def _rank(self, state: _Asked) -> list[Ranked]:
        """Return the best of what can be seen, in order; more candidates are fetched while records drop too many (D-46)."""
        question = state.question
        wanted = question.top_k * (_BUDGET_CHOICE if question.max_tokens is not None else 1)
        limit = max(_HYBRID_LEAST, 10 * question.top_k) if state.mode == "hybrid" else 2 * wanted + 20
        least = question.min_relevance
        ranked = list[Ranked]()
        for _ in range(_ROUNDS):
            arms = await self._arms_or_words(state, limit)
            ranked, is_settled = await self._settle(state, arms, wanted)
            if is_settled or arms.is_all or (least is not None and self._boosted(state, arms.ceiling) < least):
                break
            limit *= _MORE
        return ranked if least is None else [each for each in ranked if _shown(each.relevance) >= least]

    async def _arms_or_words(self, state: _Asked, limit: int) -> Arms:
        """Do as `_arms`; go by words alone, from here on, where there is no embedder."""
        try:
            return await self._arms(state, limit)
        except EngineUnavailable as error:
            if error.engine != "embedder" or state.side is None:
                raise
            state.side, state.mode, state.notice = None, "keyword", _NO_EMBEDDER.format(reason=error.reason)
        return await self._arms(state, limit)

    def _boosted(self, state: _Asked, relevance: float) -> float:
        """Return the relevance of a memory with all of the keywords."""
        question = state.question
        return with_keywords(relevance, share=1.0, boost=question.boost if question.keywords else 0.0, is_bounded=state.mode != "semantic")

    async def _arms(self, state: _Asked, limit: int) -> Arms:
        """Ask the indexes that the mode needs, at once where one does not need the other's answer (D-44)."""
        question, inside = state.question, state.inside
        words = of_keywords(question.keywords)
        side = state.side
        if side is None:
            matched, extra = await both(self._match(asked(question.query), inside, limit), self._match(words, inside, limit))
            return _by_words(matched, extra, limit)
        if state.mode == "semantic":
            near, extra = await both(self._near(side, state, limit), self._match(words, inside, limit))
            similarities = await self._similarities(side, state, near, extra)
            return _by_meaning(near, similarities, extra, is_all=len(near) < limit and len(extra) < limit)
        (near, matched), extra = await both(
            both(self._near(side, state, limit), self._match(asked(question.query), inside, limit)), self._match(words, inside, limit)
        )
        similarities = await self._similarities(side, state, near, [*matched, *extra])
        return _byboth(near, similarities, matched, extra, is_all=len(near) < limit and len(matched) < limit)

    async def _near(self, side: Side, state: _Asked, limit: int) -> list[Near]:
        if state.vector is None:
            with span("embedding"):
                state.vector = await side.embedder.embed_query(state.question.query)
        with span("vector search"):
            return await side.vectors.near(state.vector, within=state.inside, limit=limit)

    async def _match(self, words: Words, inside: Within, limit: int) -> list[Matched]:
        if not words.any_of:
            return []
        with span("text search"):
            return await self._texts.match(words, within=inside, limit=limit)

    async def _similarities(self, side: Side, state: _Asked, near: Sequence[Near], matched: Sequence[Matched]) -> dict[str, float]:
        """Return the similarities of *near*, and of what was found by words alone, as far as they are known."""
        similarities = {each.memory_id: each.similarity for each in near}
        others = [each.memory_id for each in matched if each.memory_id not in similarities]
        if others and state.vector is not None:
            similarities |= await side.vectors.similarities(state.vector, workspace_id=state.inside.workspace_id, ids=others)
        return similarities

    async def _settle(self, state: _Asked, arms: Arms, wanted: int) -> tuple[list[Ranked], bool]:
        """
        Read records, best candidates first, until no unread one can be among the best *wanted*.

        Returns the ranked, and whether candidates beyond these could not change the answer.
        """
        question = state.question
        is_bounded = state.mode != "semantic"
        boost = question.boost if question.keywords else 0.0
        relevances = arms.relevances
        candidates = sorted(relevances, key=lambda memory_id: (-relevances[memory_id], memory_id))
        ranked = list[Ranked]()
        at, step = 0, wanted + 5
        while at < len(candidates):
            batch = candidates[at : at + step]
            await self._read(state, batch)
            ranked.extend(self._ranked(state, arms.candidate(each), boost, is_bounded=is_bounded) for each in batch if each in state.read)
            at += len(batch)
            ranked.sort(key=place)
            del ranked[wanted:]  # of thousands that are as relevant, all are read: to sort them over and over would take a second
            if len(ranked) >= wanted:
                following = relevances[candidates[min(at, len(candidates) - 1)]]
                ceiling = with_keywords(following, share=1.0, boost=boost, is_bounded=is_bounded)
                if band(ranked[wanted - 1].relevance) > band(ceiling):
                    return ranked, True
            await asyncio.sleep(0)  # reading does not wait, and others are to be answered in between
        # A hybrid's relevance is relative to its candidates, so that further ones have no ceiling to compare with.
        return ranked, state.mode == "hybrid" and len(ranked) >= wanted

    async def _read(self, state: _Asked, ids: Sequence[str]) -> None:
        """Read the records of *ids* that were not looked for yet, and keep those that the question may see now (D-46)."""
        unread = [each for each in ids if each not in state.looked_for]
        if not unread:
            return
        state.looked_for.update(unread)
        inside = state.inside
        for memory in await self._db.quick(lambda tx: records.by_ids(tx, inside.workspace_id, unread)):
            if memory.archived_at is None and sees(inside, memory):
                state.read[memory.id] = memory

    def _ranked(self, state: _Asked, candidate: Candidate, boost: float, *, is_bounded: bool) -> Ranked:
        memory, keywords = state.read[candidate.memory_id], state.question.keywords
        matched = found(keywords, memory.content, *memory.tags) if keywords else ()
        share = len(matched) / len(keywords) if keywords else 0.0
        return Ranked(
            candidate=candidate,
            memory=memory,
            relevance=with_keywords(candidate.relevance, share=share, boost=boost, is_bounded=is_bounded),
            matched=matched,
            keyword_share=share,
            decay=remaining(memory, at=state.inside.at, half_lives_days=self._half_lives_days),
        )


def _by_meaning(near: Sequence[Near], similarities: Mapping[str, float], extra: Sequence[Matched], *, is_all: bool) -> Arms:
    relevances = {each.memory_id: 0.0 for each in extra} | dict(similarities)
    ceiling = near[-1].similarity if near else 0.0
    return Arms(relevances=relevances, similarities=similarities, semantic_ranks=_ranks(near), is_all=is_all, ceiling=ceiling)


def _by_words(matched: Sequence[Matched], extra: Sequence[Matched], limit: int) -> Arms:
    shares = _shares(matched)
    return Arms(
        relevances={each.memory_id: 0.0 for each in extra} | shares,
        text_scores=shares,
        keyword_ranks=_ranks(matched),
        is_all=len(matched) < limit and len(extra) < limit,
        ceiling=min(shares.values(), default=0.0),
    )


def _byboth(
    near: Sequence[Near], similarities: Mapping[str, float], matched: Sequence[Matched], extra: Sequence[Matched], *, is_all: bool
) -> Arms:
    shares = _shares(matched)
    last = {"": min(shares.values(), default=0.0)}
    return Arms(
        relevances={each.memory_id: 0.0 for each in extra} | fuse(similarities, {each.memory_id: each.score for each in matched}),
        ceiling=fuse({"": near[-1].similarity if near else 0.0}, last if last[""] > 0 else {}, best=1.0)[""],
        similarities=similarities,
        text_scores=shares,
        semantic_ranks=_ranks(near),
        keyword_ranks=_ranks(matched),
        is_all=is_all,
    )


def _shown(relevance: float) -> float:
    """Return *relevance* as answers show it, so that what is left out is what would have been shown below the limit."""
    return round(relevance, SHOWN_DIGITS)


def _ranks(hits: Sequence[Near] | Sequence[Matched]) -> dict[str, int]:
    return {each.memory_id: rank for rank, each in enumerate(hits, start=1)}


def _shares(matched: Sequence[Matched]) -> dict[str, float]:
    best = max((each.score for each in matched), default=1.0)
    return {each.memory_id: each.score / best for each in matched}


def tokens(memory: Memory) -> int:
    """Return about how many tokens the content of *memory* has, at four characters each."""
    return -(-len(memory.content) // _CHARACTERS_A_TOKEN)


def _fitting(ranked: Sequence[Ranked], question: Question) -> list[Ranked]:
    """Return the first `top_k` of *ranked* that fit the budget; one that does not fit is skipped (D-42)."""
    if question.max_tokens is None:
        return list(ranked[: question.top_k])
    left, chosen = question.max_tokens, list[Ranked]()
    for each in ranked:
        size = tokens(each.memory)
        if size <= left and len(chosen) < question.top_k:
            chosen.append(each)
            left -= size
    return chosen


def _hit(ranked: Ranked, number: int) -> Hit:
    candidate = ranked.candidate
    return Hit(
        memory=ranked.memory,
        score=ranked.relevance,
        similarity=candidate.similarity,
        effective_confidence=ranked.effective_confidence,
        why=Why(
            semantic_rank=candidate.semantic_rank,
            keyword_rank=candidate.keyword_rank,
            similarity=candidate.similarity,
            text_score=candidate.text_score,
            matched=ranked.matched,
            keyword_share=ranked.keyword_share,
            relevance=ranked.relevance,
            decay=ranked.decay,
            place=number,
        ),
    )
