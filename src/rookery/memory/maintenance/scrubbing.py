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
from rookery.kernel.events import EventBus, MemoryRedacted
from rookery.memory.batch_runs import RunItem, RunObserver, RunReport, null_observer
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.normalization import clean_tags, normalize_text
from rookery.memory.maintenance.cleaning.redaction import PiiFinder, redact
from rookery.memory.maintenance.erasure import CLEANED_TEXT, Erasure
from rookery.memory.metadata import Metadata
from rookery.memory.models import Memory
from rookery.memory.store import records
from rookery.memory.store.maintenance import MemorySelection

_MIN_TIME_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """What to clean of which workspace; at least one of *strip_pii* and *normalise*."""

    workspace_id: int
    strip_pii: bool = False
    normalise: bool = False
    dry_run: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """A memory as it would be, and what made the difference, by name."""

    memory: Memory
    counts: Counter[str]


class Scrubbing:
    """
    Cleans each memory, archived ones too, in place; what is clean is left alone, so a second run changes nothing.

    A memory that was changed is found by its new words alone as soon as the full-text index can be written, and is Stale until
    `brain:reindex --stale` (D-45): until then its meaning is that of the old ones. What is stripped leaves no traces in files.
    """

    def __init__(self, *, db: Database, indexer: Indexer, bus: EventBus, clock: Clock, runner: BatchRunner, erasure: Erasure) -> None:
        self._db = db
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._runner = runner
        self._erasure = erasure

    async def run(self, request: CleanRequest, *, observer: RunObserver | None = None) -> RunReport:
        """Clean, or tell what would be cleaned."""
        observer = observer or null_observer()
        known = load_finders() if request.strip_pii else ()
        counts: Counter[str] = Counter({"changed": 0})

        def cleaned(memory: Memory) -> CleanResult:
            return clean_memory(memory, known, normalise=request.normalise)

        async def work(stretch: Sequence[Memory]) -> None:
            unclean = [(memory, result) for memory in stretch if (result := cleaned(memory)).memory != memory]
            if not unclean:
                return
            done = [result for _, result in unclean]
            if not request.dry_run:
                done = await self._db.write(lambda tx: self._write(tx, unclean, cleaned, is_stripped=request.strip_pii))
                with contextlib.suppress(*OUTAGES):  # then the re-index brings the words too
                    alive = [each.memory for each in done if each.memory.archived_at is None]
                    await self._indexer.index(alive, words_only=True)
            for each in done:
                counts.update(each.counts)
                counts["changed"] += 1
                observer.on_item(RunItem(id=each.memory.id, action="change", why=_format_counts(each.counts)))

        within = MemorySelection(workspace_id=request.workspace_id)
        name = f"clean {request.workspace_id}{' strip-pii' * request.strip_pii}{' normalise' * request.normalise}"
        course = BatchRun(name=name, selection=within, resume=request.resume, is_resumable=not request.dry_run)
        left: str | None = None

        async def last() -> None:
            nonlocal left
            left = await self._erasure.run() if request.strip_pii and not request.dry_run else None

        gone = await self._runner.run(course, batch_reader(within), work, observer=observer, after_all=last)
        return RunReport(
            total=gone.total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped or left
        )

    def _write(
        self,
        tx: Tx,
        unclean: Sequence[tuple[Memory, CleanResult]],
        clean_memory_again: Callable[[Memory], CleanResult],
        *,
        is_stripped: bool,
    ) -> list[CleanResult]:
        """Clean them as they are now, under their locks: what somebody wrote meanwhile is not undone."""
        now, done = self._clock(), list[CleanResult]()
        for read, result_of_read in unclean:
            was = records.lock_memory(tx, read.workspace_id, read.id)
            if was is None:
                continue
            result = result_of_read if was == read else clean_memory_again(was)
            if result.memory == was:
                continue
            memory = replace(result.memory, updated_at=max(now, was.updated_at + _MIN_TIME_STEP), index_failed_at=None)
            records.update_memory(tx, was, memory)
            if is_stripped:
                self._erasure.add_pending(tx, CLEANED_TEXT)
                self._bus.publish_on_commit(tx, MemoryRedacted(workspace_id=was.workspace_id, memory_id=was.id, at=now))
            done.append(replace(result, memory=memory))
        return done


def clean_memory(memory: Memory, finders: Sequence[PiiFinder], *, normalise: bool) -> CleanResult:
    """Return *memory* clean in its content, source, tags and metadata: what *finders* find marked, and if asked for normalised."""
    counts = Counter[str]()
    content, source, tags, metadata = memory.content, memory.source, memory.tags, memory.metadata
    if normalise:
        content, tags = normalize_text(content) or content, clean_tags(tags)
        counts["white space"] += content != memory.content
        counts["tags"] += tags != memory.tags
    if finders:
        texts = [redact(text, finders) for text in (content, source, *tags)]
        for each in texts:
            counts.update({kind.value: number for kind, number in each.counts.items()})
        content, source, tags = texts[0].text, texts[1].text, tuple(dict.fromkeys(each.text for each in texts[2:]))
        metadata = cast("Metadata", _redact_json(metadata, finders, counts))
    return CleanResult(memory=replace(memory, content=content, source=source, tags=tags, metadata=metadata), counts=+counts)


def _redact_json(value: object, finders: Sequence[PiiFinder], counts: Counter[str]) -> object:
    """Return a JSON *value* with marks in its texts; keys stay."""
    if isinstance(value, str):
        each = redact(value, finders)
        counts.update({kind.value: number for kind, number in each.counts.items()})
        return each.text
    if isinstance(value, list):
        return [_redact_json(item, finders, counts) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _redact_json(item, finders, counts) for key, item in cast("dict[str, object]", value).items()}
    return value


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} × {number}" if number > 1 else name for name, number in counts.items())
