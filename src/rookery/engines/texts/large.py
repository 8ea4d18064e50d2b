"""
Questions to a large store: answered from the cache (`terms`), and from `texts.db` for what came since.

SQLite scores every document that has a word, at about a microsecond each: with a million of them, and words that one in ten has, a
question takes a second. Passing over common words (`frequencies`) makes that bearable and loses some of the best; the cache scores
all of them in milliseconds. Its order is as good, not the same: stems are a newer Porter's, and how rare two words side by side are
is reckoned from each. On the development half of LoCoMo's turns, by keywords alone: MRR 50.0, and 49.3 by SQLite; hybrid 50.4 and 50.6.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import structlog
import tantivy

from rookery.engines.texts.grammar import Asked
from rookery.engines.texts.rows import numbers, seen
from rookery.engines.texts.terms import CacheError, Row, Snapshot, Terms
from rookery.memory.models import Within

T = TypeVar("T")

FROM = 20_000
"""So many documents were written before there is a cache: below, SQLite is quick enough."""

MOST_NEW = 1_000
"""More documents than these that the cache does not have yet are not looked through one by one: SQLite answers then."""

_EXACT = 2_000
"""A question whose words fewer documents have is SQLite's, which scores each as it is."""

_MOSTLY = 0.5
_CHOICE, _SPARE, _MORE, _PAIRED = 1.1, 10, 4, 1
"""
So many times the wanted are taken, and some, and so many times more if too few of them may be seen; in so many pairs of words
are looked for.
"""

_READ = 6_000
"""Characters of a text in which pairs are looked for, and of a new one words."""

_LOOK_S = 0.25
_SOON, _SOON_S = 250, 5.0
"""The cache is brought up to date when so many documents came, or so long after the first one."""

_AT_ONCE, _COMMIT = 200, 50_000
_BREATH_S = 0.002
"""Between two lots of rows: adding them holds the interpreter lock."""

_SPARE_BYTES = 1024**3
"""So much of the disk is left free: D-17 refuses writes under half of it."""

_CLOSE_S = 10.0
_AGAIN_S = 60.0
"""After a failure, or where the disk is nearly full, the cache is tried again so much later."""

_LAST = "SELECT coalesce(max(id), 0) FROM document"
_EVER = "SELECT value FROM counter WHERE name = 'last_row'"
_COVERS = "UPDATE counter SET value = max(value, ?) WHERE name = 'covers'"
_ROWS = "SELECT id, content, context, tokens FROM document WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_NEWER = "SELECT rowid FROM fts WHERE fts MATCH ? AND rowid > ?"
_TEXTS = """
SELECT d.id, substr(d.content, 1, ?), d.context FROM json_each(?) AS found CROSS JOIN document AS d ON d.id = found.value
"""
_GONE = "SELECT row FROM gone ORDER BY row LIMIT 20000"
_FORGET = "DELETE FROM gone WHERE row IN (SELECT value FROM json_each(?))"

_log = structlog.stdlib.get_logger("rookery.texts")


class Large:
    """
    The cache of one `texts.db`, kept up to date by a thread of its own.

    Args:
        folder: Where it is; what else is there belongs to a `texts.db` that is no more.
        read: Runs work with a connection that only reads.
        write: Runs work in a transaction.
    """

    def __init__(
        self,
        folder: Path,
        *,
        context_weight: float,
        read: Callable[[Callable[[sqlite3.Connection], object]], object],
        write: Callable[[Callable[[sqlite3.Connection], object]], object],
    ) -> None:
        self._folder = folder
        self._context_weight = context_weight
        self._read = read
        self._write = write
        self._terms: Terms | None = None
        self._snapshot: Snapshot | None = None
        self._damaged: Snapshot | None = None
        self._seen_at_ns = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to keep it up to date, and open what there is: the first question may be next; twice is as once."""
        if self._thread is None:
            with contextlib.suppress(CacheError, sqlite3.Error):  # the thread meets it too, and mends it
                self._refresh()
            self._thread = threading.Thread(target=self._run, name="texts-cache", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End that; blocks until what was begun is committed, which takes a second or two of a very large store."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    @property
    def is_caught_up(self) -> bool:
        """Tell whether the cache has all that was put; also True of a store that is too small for one."""
        return self._new() == 0

    def match(self, connection: sqlite3.Connection, asked: Asked, within: Within, wanted: int) -> list[tuple[float, str]] | None:
        """Return scores, the lower the better, and memory ids of the best documents; None: ask SQLite."""
        snapshot = self._snapshot
        if snapshot is None or asked.is_wide or not asked.words:
            return None
        new = connection.execute(_LAST).fetchone()[0] - snapshot.upto
        if new > MOST_NEW:
            return None
        try:
            share = min(1.0, snapshot.share(asked.needed[0]))
            number = sum(map(snapshot.frequency, asked.words))
            if number <= _EXACT or number * share + new < wanted:
                return None
            return self._match(connection, snapshot, asked, within, wanted, share=share)
        except CacheError as error:
            _log.warning("texts.cache_failed", reason=str(error))
            self._snapshot, self._damaged = None, snapshot
            return None

    def _match(
        self, connection: sqlite3.Connection, snapshot: Snapshot, asked: Asked, within: Within, wanted: int, *, share: float
    ) -> list[tuple[float, str]] | None:
        by_owner = asked.is_open and share >= _MOSTLY
        needed = () if by_owner else asked.needed
        scores, ids = dict[int, float](), dict[int, str]()
        most = math.ceil(_CHOICE * wanted / (share if by_owner else 1.0)) + _SPARE
        for _ in range(2):
            scores = snapshot.best(asked.words, needed, most)
            ids = seen(connection, scores, within, by_owner=by_owner)
            if len(ids) >= wanted or len(scores) < most:
                break
            most *= _MORE
        new = self._new_texts(connection, snapshot, asked)
        newer = seen(connection, new, within, by_owner=False) if new else {}
        if len(ids) + len(newer) < wanted:
            return None
        scores = {row: scores[row] for row in ids} | snapshot.scores(asked.words, {row: new[row] for row in newer})
        ids |= newer
        # Scores come best first: further down no pair of words makes one of the best any more.
        near = sorted(scores, key=lambda row: -scores[row])[: _PAIRED * wanted] if asked.pairs else []
        together = snapshot.together(asked.pairs, {row: text for row, (text, _) in _texts(connection, near).items()})
        return [(-(scores[row] + together.get(row, 0.0)), memory_id) for row, memory_id in ids.items()]

    def _new_texts(self, connection: sqlite3.Connection, snapshot: Snapshot, asked: Asked) -> dict[int, tuple[str, str]]:
        """Return what the cache does not have yet of what *asked* finds."""
        if connection.execute(_LAST).fetchone()[0] <= snapshot.upto:
            return {}
        return _texts(connection, [row for (row,) in connection.execute(_NEWER, (asked.match(asked.words), snapshot.upto))])

    def _run(self) -> None:
        changed_s: float | None = None
        while not self._stop.wait(_LOOK_S):
            try:
                damaged, self._damaged = self._damaged, None
                if damaged is not None:
                    # It opens as if nothing were wrong, so that it would be taken for whole again.
                    raise CacheError("a question met damage in it")  # noqa: TRY301 - thrown away below, as all that is damaged
                self._refresh()
                new = self._new()
                changed_s = (changed_s or time.monotonic()) if new else None
                if changed_s is not None and (new >= _SOON or time.monotonic() - changed_s >= _SOON_S):
                    changed_s = None
                    if self._has_room():
                        self._catch_up()
                    else:
                        _log.warning("texts.cache_waits", reason=f"{_SPARE_BYTES:,} bytes of the disk must be free to go on with it")
                        self._stop.wait(_AGAIN_S)
            except Exception as error:  # noqa: BLE001 - it is a cache: whatever it was, SQLite answers, and it is tried again
                _log.warning("texts.cache_failed", reason=f"{type(error).__name__}: {error}")
                self._snapshot = self._terms = None
                self._seen_at_ns = 0
                if isinstance(error, CacheError):
                    shutil.rmtree(self._folder, ignore_errors=True)
                self._stop.wait(_AGAIN_S)

    def _new(self) -> int:
        """Return how many rows came or went since the cache was brought up to date; 0 also in a store too small for one."""
        upto = 0 if self._snapshot is None else self._snapshot.upto

        def count(connection: sqlite3.Connection) -> int:
            (ever,) = connection.execute(_EVER).fetchone()
            (last,) = connection.execute(_LAST).fetchone()
            (gone,) = connection.execute("SELECT count(*) FROM gone").fetchone()
            return max(0, int(last) - upto) + int(gone) if ever >= FROM else 0

        return self._reading(count)

    def _refresh(self) -> None:
        """Look at what this or another process added meanwhile, or whether it was deleted, as `erasing` does."""
        if self._terms is not None and not (self._folder / "meta.json").exists():
            self._snapshot = self._terms = None
            self._seen_at_ns = 0
        with contextlib.suppress(OSError):
            at_ns = (self._folder / "meta.json").stat().st_mtime_ns
            if at_ns != self._seen_at_ns:
                snapshot = self._opened().snapshot()
                if snapshot.upto > self._reading(lambda connection: int(connection.execute(_EVER).fetchone()[0])):
                    raise CacheError("it is newer than texts.db, which was put back as it once was")
                self._snapshot, self._seen_at_ns = snapshot, at_ns

    def _opened(self) -> Terms:
        if self._terms is None:
            for other in self._folder.parent.glob("*"):
                if other != self._folder:
                    shutil.rmtree(other, ignore_errors=True)
            self._terms = Terms(self._folder, context_weight=self._context_weight)
        return self._terms

    def _has_room(self) -> bool:
        folder = next(each for each in self._folder.parents if each.exists())
        return shutil.disk_usage(folder).free >= _SPARE_BYTES

    def _catch_up(self) -> None:
        terms = self._opened()
        writer = terms.writer()
        if writer is None:
            return
        started_s, upto = time.monotonic(), terms.snapshot().upto
        last = self._reading(lambda connection: int(connection.execute(_LAST).fetchone()[0]))
        # Said first: whoever takes out a row from now on leaves word of it.
        self._write(lambda connection: connection.execute(_COVERS, (last,)))
        uncommitted = added = 0
        for rows in self._rows(upto, last):
            for row in rows:
                terms.add(writer, row)
            added += len(rows)
            uncommitted += len(rows)
            if uncommitted >= _COMMIT:
                writer.commit()
                uncommitted = 0
            if self._stop.wait(_BREATH_S):
                break
        self._take_out(terms, writer)
        writer.wait_merging_threads()
        self._snapshot = terms.snapshot()
        if added >= _COMMIT:
            _log.info("texts.cache_built", documents=added, seconds=round(time.monotonic() - started_s, 1))

    def _take_out(self, terms: Terms, writer: tantivy.IndexWriter) -> None:
        gone = self._reading(lambda connection: [int(row) for (row,) in connection.execute(_GONE)])
        for row in gone:
            terms.take_out(writer, row)
        writer.commit()
        if gone:
            self._write(lambda connection: connection.execute(_FORGET, (numbers(gone),)))

    def _rows(self, upto: int, last: int) -> Iterator[list[Row]]:
        while True:
            found = self._reading(lambda connection, upto=upto: connection.execute(_ROWS, (upto, last, _AT_ONCE)).fetchall())
            if not found:
                return
            yield [Row(id=row, content=content, context=context, tokens=tokens) for row, content, context, tokens in found]
            upto = found[-1][0]

    def _reading(self, work: Callable[[sqlite3.Connection], T]) -> T:
        found = list[T]()
        self._read(lambda connection: found.append(work(connection)))
        return found[0]


def _texts(connection: sqlite3.Connection, rows: Iterable[int]) -> dict[int, tuple[str, str]]:
    found = connection.execute(_TEXTS, (_READ, numbers(rows))).fetchall()
    return {row: (content, context) for row, content, context in found}
