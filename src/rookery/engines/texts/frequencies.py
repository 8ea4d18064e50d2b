"""
Which words of a question are worth looking for.

FTS5 scores every document that has any of the words, at about a microsecond each: with words that a tenth of 100,000
memories have, that is most of a recall. Such words tell least of all, so they are passed over when rarer ones find enough.
"""

from __future__ import annotations

import sqlite3
import time

from rookery.engines.texts.fts_query import FtsQuery, any_term_expression

MAX_SCORED_DOCUMENTS = 2_000
"""
So many documents a question may have scored; below that no word is passed over.

SciFact (5,183 long documents): nDCG@10 of hybrid recall is 75.0 without a limit, 74.9 with this one, 74.4 with 500, and
73.5 with 260, which is to its documents as 5,000 to 100,000; the floor there is 70.2.
"""

MIN_DOCUMENTS_FACTOR = 5
"""Times the results wanted: fewer documents than these are too few to choose from, so commoner words count as well."""

_CACHE_TTL_S = 60.0
_MAX_CACHED = 20_000


class DocumentFrequencies:
    """How many documents match an expression, as it was within the last minute: right enough to choose by, never to answer by."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def select_rare_terms(self, connection: sqlite3.Connection, query: FtsQuery, *, min_documents: int) -> tuple[str, ...]:
        """Return the rarest terms of *query* that together find at least *min_documents* documents, if there are, and not many more."""
        share = self.compute_share(connection, query.visible_expression)
        if sum(self._count(connection, any_term_expression([word])) for word in query.words) * share <= MAX_SCORED_DOCUMENTS:
            return query.terms
        found, chosen = 0.0, list[str]()
        for number, term in sorted((self._count(connection, any_term_expression([term])), term) for term in query.terms):
            if found >= MIN_DOCUMENTS_FACTOR * min_documents and found + number * share > MAX_SCORED_DOCUMENTS:
                break
            chosen.append(term)
            found += number * share
        return tuple(chosen)

    def compute_share(self, connection: sqlite3.Connection, expression: str) -> float:
        """Return the share of all documents that match *expression*."""
        everything = self._count(connection, None)
        return self._count(connection, expression) / everything if everything else 1.0

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
