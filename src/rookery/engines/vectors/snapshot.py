"""One query over all the rows of a workspace, wherever they lie: piece by piece, by several threads, and the best of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rookery.engines.vectors.blocks import NO_SCORES, BlockSnapshot, Floats, Rows, RowSpan, ScoredSpan
from rookery.engines.vectors.filter_mask import FilterMask
from rookery.memory.models import VectorHit


@dataclass(frozen=True, slots=True, kw_only=True)
class HelperThreads:
    """Threads that help a query with a large slab, if they have nothing else to do."""

    pool: ThreadPoolExecutor
    size: int


class ScoredRows(Protocol):
    """Some rows that a query sees, with their scores, wherever they lie."""

    @property
    def scores(self) -> Floats:
        """One for each row."""
        ...

    def ids(self, places: Rows) -> list[str]:
        """Return whose the rows at *places* are."""
        ...


class ScoringTask(Protocol):
    """A piece of work for one thread."""

    def score(self, vector: Floats) -> ScoredRows:
        """Score what may be seen of it."""
        ...


class VectorSearch(Protocol):
    """What else is scored, a round after the other, until it is enough."""

    def first_tasks(self) -> Sequence[ScoringTask]:
        """Return what is to be scored at once."""
        ...

    def next_tasks(self, scored_count: int, *, is_enough: bool) -> Sequence[ScoringTask]:
        """
        Return what is to be scored next; nothing: that was all, or will do.

        Args:
            scored_count: How many rows of the last round were seen.
            is_enough: They are as many memories as were asked for.
        """
        ...


class SearchableSnapshot(Protocol):
    """Rows elsewhere, as a query may see them."""

    def start_search(self, vector: Floats, *, limit: int) -> VectorSearch:
        """Begin to look for the *limit* rows nearest to *vector*."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _MaskedSpan:
    """A span that knows what may be seen."""

    span: RowSpan
    mask: FilterMask

    def score(self, vector: Floats) -> ScoredSpan:
        return self.span.score(vector, self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSnapshot:
    """
    A slab at one moment, as far as a query may see it; any thread may use it while the slab goes on changing.

    Attributes:
        ivf_snapshot: What the slab only has the news of.
    """

    blocks: tuple[BlockSnapshot, ...]
    mask: FilterMask
    ivf_snapshot: SearchableSnapshot | None = None

    def find_nearest(self, vector: Floats, *, limit: int, helpers: HelperThreads | None) -> list[VectorHit]:
        """Return at most *limit* memories by their best row, most similar first, ties by id."""
        pieces: list[ScoringTask] = [_MaskedSpan(span=span, mask=self.mask) for page in self.blocks for span in page.iter_spans()]
        if self.ivf_snapshot is None:
            best = _select_best(_score_tasks(pieces, vector, helpers), limit)
        else:
            search = self.ivf_snapshot.start_search(vector, limit=limit)
            scored = _score_tasks(pieces, vector, helpers)
            pieces, best = list(search.first_tasks()), {}
            while pieces:
                fresh = _score_tasks(pieces, vector, None)  # too small for help: what is saved is lost to the interpreter's lock
                scored += fresh
                best = _select_best(scored, limit)
                pieces = list(search.next_tasks(sum(len(one.scores) for one in fresh), is_enough=len(best) >= limit))
            best = best or _select_best(scored, limit)
        order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return [VectorHit(memory_id=memory_id, similarity=clamp_similarity(score)) for memory_id, score in order[:limit]]


def _score_tasks(tasks: Sequence[ScoringTask], vector: Floats, helpers: HelperThreads | None) -> list[ScoredRows]:
    """Score *tasks* in this thread, and in others as far as they come to it; numpy releases the interpreter's lock."""
    todo = list(tasks)
    done: list[ScoredRows] = []

    def work() -> None:
        while True:
            try:
                piece = todo.pop()
            except IndexError:
                return
            done.append(piece.score(vector))

    helping = [helpers.pool.submit(work) for _ in range(min(helpers.size, len(tasks) - 1))] if helpers else []
    work()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return done


def _select_best(scored: Sequence[ScoredRows], limit: int) -> dict[str, float]:
    """Return the best score of at least *limit* memories, the best among them, or of all that there are."""
    scores = np.concatenate([one.scores for one in scored]) if scored else NO_SCORES
    wanted = limit
    while wanted < len(scores):
        cutoff = np.partition(scores, -wanted)[-wanted]
        best = _best_above(scored, cutoff)
        if len(best) >= limit:
            return best
        wanted *= 4  # some memories took several places with their chunks
    return _best_above(scored, np.float32(-np.inf))


def _best_above(scored: Sequence[ScoredRows], cutoff: np.float32) -> dict[str, float]:
    best: dict[str, float] = {}
    for one in scored:
        places = np.flatnonzero(one.scores >= cutoff)
        if len(places) == 0:
            continue
        for memory_id, score in zip(one.ids(places), one.scores[places].tolist(), strict=True):
            if score > best.get(memory_id, -2.0):
                best[memory_id] = score
    return best


def clamp_similarity(similarity: float) -> float:
    """Return what rounding left a little above 1 as 1."""
    return max(-1.0, min(1.0, similarity))
