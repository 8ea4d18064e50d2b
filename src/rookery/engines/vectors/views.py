"""One query over all the rows of a workspace, wherever they lie: piece by piece, by several threads, and the best of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rookery.engines.vectors.blocks import NO_SCORES, Floats, Page, Rows, Scored, Span
from rookery.engines.vectors.masks import Sieve
from rookery.memory.models import Near


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """Threads that help a query with a large slab, if they have nothing else to do."""

    pool: ThreadPoolExecutor
    size: int


class Scores(Protocol):
    """Some rows that a query sees, with their scores, wherever they lie."""

    @property
    def scores(self) -> Floats:
        """One for each row."""
        ...

    def ids(self, places: Rows) -> list[str]:
        """Return whose the rows at *places* are."""
        ...


class Piece(Protocol):
    """A piece of work for one thread."""

    def score(self, vector: Floats) -> Scores:
        """Score what may be seen of it."""
        ...


class Search(Protocol):
    """What else is scored, a round after the other, until it is enough."""

    def first(self) -> Sequence[Piece]:
        """Return what is to be scored at once."""
        ...

    def further(self, scored: int, *, is_enough: bool) -> Sequence[Piece]:
        """
        Return what is to be scored next; nothing: that was all, or will do.

        Args:
            scored: How many rows of the last round were seen.
            is_enough: They are as many memories as were asked for.
        """
        ...


class Probing(Protocol):
    """Rows elsewhere, as a query may see them."""

    def search(self, vector: Floats, *, limit: int) -> Search:
        """Begin to look for the *limit* rows nearest to *vector*."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sieved:
    """A span that knows what may be seen."""

    span: Span
    sieve: Sieve

    def score(self, vector: Floats) -> Scored:
        return self.span.score(vector, self.sieve)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """
    A slab at one moment, as far as a query may see it; any thread may use it while the slab goes on changing.

    Attributes:
        beside: What the slab only has the news of.
    """

    pages: tuple[Page, ...]
    sieve: Sieve
    beside: Probing | None = None

    def nearest(self, vector: Floats, *, limit: int, crew: Crew | None) -> list[Near]:
        """Return at most *limit* memories by their best row, most similar first, ties by id."""
        pieces: list[Piece] = [_Sieved(span=span, sieve=self.sieve) for page in self.pages for span in page.spans()]
        if self.beside is None:
            best = _best(_score(pieces, vector, crew), limit)
        else:
            search = self.beside.search(vector, limit=limit)
            scored = _score(pieces, vector, crew)
            pieces, best = list(search.first()), {}
            while pieces:
                fresh = _score(pieces, vector, None)  # too small for help: what is saved is lost to the interpreter's lock
                scored += fresh
                best = _best(scored, limit)
                pieces = list(search.further(sum(len(one.scores) for one in fresh), is_enough=len(best) >= limit))
            best = best or _best(scored, limit)
        order = sorted(best.items(), key=lambda item: (-item[1], item[0]))
        return [Near(memory_id=memory_id, similarity=clamped(score)) for memory_id, score in order[:limit]]


def _score(pieces: Sequence[Piece], vector: Floats, crew: Crew | None) -> list[Scores]:
    """Score *pieces* in this thread, and in others as far as they come to it; numpy releases the interpreter's lock."""
    todo = list(pieces)
    done: list[Scores] = []

    def work() -> None:
        while True:
            try:
                piece = todo.pop()
            except IndexError:
                return
            done.append(piece.score(vector))

    helping = [crew.pool.submit(work) for _ in range(min(crew.size, len(pieces) - 1))] if crew else []
    work()
    for helper in helping:
        if not helper.cancel():
            helper.result()
    return done


def _best(scored: Sequence[Scores], limit: int) -> dict[str, float]:
    """Return the best score of at least *limit* memories, the best among them, or of all that there are."""
    scores = np.concatenate([one.scores for one in scored]) if scored else NO_SCORES
    wanted = limit
    while wanted < len(scores):
        cutoff = np.partition(scores, -wanted)[-wanted]
        best = _best_of(scored, cutoff)
        if len(best) >= limit:
            return best
        wanted *= 4  # some memories took several places with their chunks
    return _best_of(scored, np.float32(-np.inf))


def _best_of(scored: Sequence[Scores], cutoff: np.float32) -> dict[str, float]:
    best: dict[str, float] = {}
    for one in scored:
        places = np.flatnonzero(one.scores >= cutoff)
        if len(places) == 0:
            continue
        for memory_id, score in zip(one.ids(places), one.scores[places].tolist(), strict=True):
            if score > best.get(memory_id, -2.0):
                best[memory_id] = score
    return best


def clamped(similarity: float) -> float:
    """Return what rounding left a little above 1 as 1."""
    return max(-1.0, min(1.0, similarity))
