"""
Select the rare words of a query.

FTS5 scores each document that has any of the words, at about a microsecond each. With words that occur in a tenth of 100,000 memories,
scoring takes most of a recall. Such words contribute least, so they are skipped if rarer ones find enough documents.
"""

from __future__ import annotations

import sqlite3
import time

from rookery.engines.texts.fts_query import FtsQuery, any_term_expression

MAX_SCORED_DOCUMENTS = 2_000
"""
Maximum number of scored documents per query; below it no word is skipped.

SciFact (5,183 long documents): nDCG@10 of hybrid recall is 75.0 without a limit, 74.9 with this one, 74.4 with 500, and 73.5 with 260,
which is proportional to 5,000 of 100,000; the floor there is 70.2.
"""

MIN_DOCUMENTS_FACTOR = 5
"""Minimum number of candidates per requested result. With fewer, common words are used as well."""

_CACHE_TTL_S = 60.0
_MAX_CACHED = 20_000


class DocumentFrequencies:
    """Cached numbers of documents per expression, up to a minute old. Good enough to select words, but not to return as a count."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def select_rare_terms(self, connection: sqlite3.Connection, query: FtsQuery, *, min_documents: int) -> tuple[str, ...]:
        """
        Return the rarest terms of *query* that together match at least *min_documents* times `MIN_DOCUMENTS_FACTOR` documents.

        Further terms are added as long as at most `MAX_SCORED_DOCUMENTS` are scored. All terms are returned if they stay below that limit.
        """
        share = self.compute_share(connection, query.visible_expression)
        if sum(self._count(connection, any_term_expression([word])) for word in query.words) * share <= MAX_SCORED_DOCUMENTS:
            return query.terms
        matched_weight, selected = 0.0, list[str]()
        for number, term in sorted((self._count(connection, any_term_expression([term])), term) for term in query.terms):
            if matched_weight >= MIN_DOCUMENTS_FACTOR * min_documents and matched_weight + number * share > MAX_SCORED_DOCUMENTS:
                break
            selected.append(term)
            matched_weight += number * share
        return tuple(selected)

    def compute_share(self, connection: sqlite3.Connection, expression: str) -> float:
        """Return the fraction of all documents that match *expression*."""
        total = self._count(connection, None)
        return self._count(connection, expression) / total if total else 1.0

    def _count(self, connection: sqlite3.Connection, expression: str | None) -> int:
        now_s, key = time.monotonic(), expression or ""
        at_s, number = self._counts.get(key, (0.0, -1))
        if number >= 0 and now_s - at_s < _CACHE_TTL_S:
            return number
        if expression is None:
            (number,) = connection.execute("SELECT count(*) FROM document").fetchone()
        else:
            (number,) = connection.execute("SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)).fetchone()
        if len(self._counts) >= _MAX_CACHED:
            self._counts.clear()
        self._counts[key] = (now_s, number)
        return number
