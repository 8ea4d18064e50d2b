"""Score all rows of a workspace for one query, in tasks for several threads, and select the best."""

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
    """Threads that help a query with a large segment when they are idle."""

    pool: ThreadPoolExecutor
    size: int


class ScoredRows(Protocol):
    """Rows with their scores."""

    @property
    def scores(self) -> Floats:
        """The score of each row."""
        ...

    def ids(self, places: Rows) -> list[str]:
        """Return the memory ids of *places*, which are indexes into the rows."""
        ...


class ScoringTask(Protocol):
    """A task for one thread."""

    def score(self, vector: Floats) -> ScoredRows:
        """Score the visible rows of the task."""
        ...


class VectorSearch(Protocol):
    """A search in rounds, until enough rows are scored."""

    def first_tasks(self) -> Sequence[ScoringTask]:
        """Return the tasks of the first round."""
        ...

    def next_tasks(self, scored_count: int, *, is_enough: bool) -> Sequence[ScoringTask]:
        """
        Return the tasks of the next round; empty when the search is complete.

        Args:
            scored_count: Visible rows of the last round.
            is_enough: There are as many memories as requested.
        """
        ...


class SearchableSnapshot(Protocol):
    """Rows of another source at one moment."""

    def start_search(self, vector: Floats, *, limit: int) -> VectorSearch:
        """Start a search for the *limit* rows nearest to *vector*."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _MaskedSpan:
    """A span with the filters of the query."""

    span: RowSpan
    mask: FilterMask

    def score(self, vector: Floats) -> ScoredSpan:
        return self.span.score(vector, self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceSnapshot:
    """
    A segment at one moment, for one query. Any thread may use it while the segment changes.

    Attributes:
        ivf_snapshot: Older rows in an IVF file, of which the segment has only the later changes.
    """

    blocks: tuple[BlockSnapshot, ...]
    mask: FilterMask
    ivf_snapshot: SearchableSnapshot | None = None

    def find_nearest(self, vector: Floats, *, limit: int, helpers: HelperThreads | None) -> list[VectorHit]:
        """Return at most *limit* memories by their best row, most similar first, ties ordered by id."""
        tasks: list[ScoringTask] = [_MaskedSpan(span=span, mask=self.mask) for block in self.blocks for span in block.iter_spans()]
        if self.ivf_snapshot is None:
            best = _select_best(_score_tasks(tasks, vector, helpers), limit)
        else:
            search = self.ivf_snapshot.start_search(vector, limit=limit)
            scored_parts = _score_tasks(tasks, vector, helpers)
            tasks, best = list(search.first_tasks()), {}
            while tasks:
                new = _score_tasks(tasks, vector, None)  # too small for helper threads: the GIL costs what they save
                scored_parts += new
                best = _select_best(scored_parts, limit)
                tasks = list(search.next_tasks(sum(len(part.scores) for part in new), is_enough=len(best) >= limit))
            best = best or _select_best(scored_parts, limit)
        order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return [VectorHit(memory_id=memory_id, similarity=clamp_similarity(score)) for memory_id, score in order[:limit]]


def _score_tasks(tasks: Sequence[ScoringTask], vector: Floats, helpers: HelperThreads | None) -> list[ScoredRows]:
    """Score *tasks* in this thread and in idle helper threads. numpy releases the GIL."""
    pending = list(tasks)
    scored_parts: list[ScoredRows] = []

    def work() -> None:
        while True:
            try:
                task = pending.pop()
            except IndexError:
                return
            scored_parts.append(task.score(vector))

    helping = [helpers.pool.submit(work) for _ in range(min(helpers.size, len(tasks) - 1))] if helpers else []
    work()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return scored_parts


def _select_best(scored_parts: Sequence[ScoredRows], limit: int) -> dict[str, float]:
    """Return the best scores of memories: at least *limit*, the best among them, or all."""
    scores = np.concatenate([part.scores for part in scored_parts]) if scored_parts else NO_SCORES
    row_count = limit
    while row_count < len(scores):
        cutoff = np.partition(scores, -row_count)[-row_count]
        best = _best_above(scored_parts, cutoff)
        if len(best) >= limit:
            return best
        row_count *= 4  # some memories have several rows among the best
    return _best_above(scored_parts, np.float32(-np.inf))


def _best_above(scored_parts: Sequence[ScoredRows], cutoff: np.float32) -> dict[str, float]:
    best: dict[str, float] = {}
    for part in scored_parts:
        places = np.flatnonzero(part.scores >= cutoff)
        if len(places) == 0:
            continue
        for memory_id, score in zip(part.ids(places), part.scores[places].tolist(), strict=True):
            if score > best.get(memory_id, -2.0):
                best[memory_id] = score
    return best


def clamp_similarity(similarity: float) -> float:
    """Limit rounding errors: return a value from -1 to 1."""
    return max(-1.0, min(1.0, similarity))
