"""
Which words of a question are worth looking for.

FTS5 scores every document that has any of the words, at about a microsecond each: with words that a tenth of 100,000
memories have, that is most of a recall. Such words tell least of all, so they are passed over when rarer ones find enough.
"""

from __future__ import annotations

import sqlite3
import time

from rookery.engines.texts.grammar import Asked, look_for

MOST_DOCUMENTS = 2_000
"""
So many documents a question may have scored; below that no word is passed over.

SciFact (5,183 long documents): nDCG@10 of hybrid recall is 75.0 without a limit, 74.9 with this one, 74.4 with 500, and
73.5 with 260, which is to its documents as 5,000 to 100,000; the floor there is 70.2.
"""

ENOUGH = 5
"""Times the results wanted: fewer documents than these are too few to choose from, so commoner words count as well."""

_KEPT_S = 60.0
_KEPT = 20_000


class Frequencies:
    """How many documents match an expression, as it was within the last minute: right enough to choose by, never to answer by."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[float, int]] = {}

    def telling(self, connection: sqlite3.Connection, asked: Asked, *, least: int) -> tuple[str, ...]:
        """Return the rarest terms of *asked* that together find at least *least* documents, if there are, and not many more."""
        share = self.share(connection, asked.seen)
        if sum(self._count(connection, look_for([word])) for word in asked.words) * share <= MOST_DOCUMENTS:
            return asked.terms
        found, chosen = 0.0, list[str]()
        for number, term in sorted((self._count(connection, look_for([term])), term) for term in asked.terms):
            if found >= ENOUGH * least and found + number * share > MOST_DOCUMENTS:
                break
            chosen.append(term)
            found += number * share
        return tuple(chosen)

    def share(self, connection: sqlite3.Connection, expression: str) -> float:
        """Return the share of all documents that match *expression*."""
        everything = self._count(connection, None)
        return self._count(connection, expression) / everything if everything else 1.0

    def _count(self, connection: sqlite3.Connection, expression: str | None) -> int:
        now_s, key = time.monotonic(), expression or ""
        at_s, number = self._counted.get(key, (0.0, -1))
        if number >= 0 and now_s - at_s < _KEPT_S:
            return number
        if expression is None:
            (number,) = connection.execute("SELECT count(*) FROM document").fetchone()
        else:
            (number,) = connection.execute("SELECT count(*) FROM fts WHERE fts MATCH ?", (expression,)).fetchone()
        if len(self._counted) >= _KEPT:
            self._counted.clear()
        self._counted[key] = (now_s, number)
        return number
