"""Stored texts are cleaned: marks for personal data, one form for white space (spec 4.4, D-45, D-52)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import Bus, MemoryStripped
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.cleaning import finders
from rookery.memory.maintenance.cleaning.marks import Finder, strip
from rookery.memory.maintenance.cleaning.normal import normal_tags, normal_text
from rookery.memory.maintenance.erasing import CLEANED, Erasing
from rookery.memory.maintenance.rounds import Course, Rounds, batches
from rookery.memory.metadata import Metadata
from rookery.memory.models import Memory
from rookery.memory.runs import Item, Report, Watch, unwatched
from rookery.memory.store import records
from rookery.memory.store.tidying import Range

_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to clean of which workspace; at least one of *strip_pii* and *normalise*."""

    workspace_id: int
    strip_pii: bool = False
    normalise: bool = False
    dry_run: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """A memory as it would be, and what made the difference, by name."""

    memory: Memory
    counts: Counter[str]


class Scrubbing:
    """
    Cleans each memory, archived ones too, in place; what is clean is left alone, so a second run changes nothing.

    A memory that was changed is found by its new words alone as soon as the full-text index can be written, and is Stale until
    `brain:reindex --stale` (D-45): until then its meaning is that of the old ones. What is stripped leaves no traces in files.
    """

    def __init__(self, *, db: Database, indexer: Indexer, bus: Bus, clock: Clock, rounds: Rounds, erasing: Erasing) -> None:
        self._db = db
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._rounds = rounds
        self._erasing = erasing

    async def run(self, wanted: Wanted, *, watch: Watch | None = None) -> Report:
        """Clean, or tell what would be cleaned."""
        watch = watch or unwatched()
        known = finders() if wanted.strip_pii else ()
        counts: Counter[str] = Counter({"changed": 0})

        def cleaned(memory: Memory) -> Cleaned:
            return clean(memory, known, normalise=wanted.normalise)

        async def work(stretch: Sequence[Memory]) -> None:
            unclean = [(memory, result) for memory in stretch if (result := cleaned(memory)).memory != memory]
            if not unclean:
                return
            done = [result for _, result in unclean]
            if not wanted.dry_run:
                done = await self._db.write(lambda tx: self._write(tx, unclean, cleaned, is_stripped=wanted.strip_pii))
                with contextlib.suppress(*OUTAGES):  # then the re-index brings the words too
                    alive = [each.memory for each in done if each.memory.archived_at is None]
                    await self._indexer.index(alive, words_only=True)
            for each in done:
                counts.update(each.counts)
                counts["changed"] += 1
                watch.item(Item(id=each.memory.id, action="change", why=_said(each.counts)))

        within = Range(workspace_id=wanted.workspace_id)
        name = f"clean {wanted.workspace_id}{' strip-pii' * wanted.strip_pii}{' normalise' * wanted.normalise}"
        course = Course(name=name, of=within, resume=wanted.resume, is_kept=not wanted.dry_run)
        left: str | None = None

        async def last() -> None:
            nonlocal left
            left = await self._erasing.settle() if wanted.strip_pii and not wanted.dry_run else None

        gone = await self._rounds.through(course, batches(within), work, watch=watch, last=last)
        return Report(
            total=gone.total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped or left
        )

    def _write(
        self, tx: Tx, unclean: Sequence[tuple[Memory, Cleaned]], cleaned: Callable[[Memory], Cleaned], *, is_stripped: bool
    ) -> list[Cleaned]:
        """Clean them as they are now, under their locks: what somebody wrote meanwhile is not undone."""
        now, done = self._clock(), list[Cleaned]()
        for read, result_of_read in unclean:
            was = records.locked(tx, read.workspace_id, read.id)
            if was is None:
                continue
            result = result_of_read if was == read else cleaned(was)
            if result.memory == was:
                continue
            memory = replace(result.memory, updated_at=max(now, was.updated_at + _TICK), index_failed_at=None)
            records.change(tx, was, memory)
            if is_stripped:
                self._erasing.owe(tx, CLEANED)
                self._bus.announce(tx, MemoryStripped(workspace_id=was.workspace_id, memory_id=was.id, at=now))
            done.append(replace(result, memory=memory))
        return done


def clean(memory: Memory, known: Sequence[Finder], *, normalise: bool) -> Cleaned:
    """Return *memory* clean in its content, source, tags and metadata: what *known* find marked, and if asked for normalised."""
    counts = Counter[str]()
    content, source, tags, metadata = memory.content, memory.source, memory.tags, memory.metadata
    if normalise:
        content, tags = normal_text(content) or content, normal_tags(tags)
        counts["white space"] += content != memory.content
        counts["tags"] += tags != memory.tags
    if known:
        texts = [strip(text, known) for text in (content, source, *tags)]
        for each in texts:
            counts.update({kind.value: number for kind, number in each.counts.items()})
        content, source, tags = texts[0].text, texts[1].text, tuple(dict.fromkeys(each.text for each in texts[2:]))
        metadata = cast("Metadata", _stripped(metadata, known, counts))
    return Cleaned(memory=replace(memory, content=content, source=source, tags=tags, metadata=metadata), counts=+counts)


def _stripped(value: object, known: Sequence[Finder], counts: Counter[str]) -> object:
    """Return a JSON *value* with marks in its texts; keys stay."""
    if isinstance(value, str):
        each = strip(value, known)
        counts.update({kind.value: number for kind, number in each.counts.items()})
        return each.text
    if isinstance(value, list):
        return [_stripped(item, known, counts) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _stripped(item, known, counts) for key, item in cast("dict[str, object]", value).items()}
    return value


def _said(counts: Counter[str]) -> str:
    return ", ".join(f"{name} × {number}" if number > 1 else name for name, number in counts.items())
