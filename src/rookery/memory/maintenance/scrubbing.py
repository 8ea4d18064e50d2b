"""Cleaning of stored texts: redaction of personal data, and normalisation (spec 4.4, D-45, D-52)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.memory.batch_runs import SILENT, RunItem, RunObserver, RunReport
from rookery.memory.events import MemoryRedacted
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder, clean_tags, normalize_text, redact
from rookery.memory.maintenance.erasure import CLEANED_TEXT, Erasure
from rookery.memory.metadata import Metadata
from rookery.memory.models import Memory
from rookery.memory.records import next_version
from rookery.memory.store import records
from rookery.memory.store.maintenance import MemorySelection


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """The parameters of a cleaning; at least one of *strip_pii* and *normalise* must be set."""

    workspace_id: int
    strip_pii: bool = False
    normalise: bool = False
    dry_run: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """A cleaned memory, and the number of changes by kind."""

    memory: Memory
    counts: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    """
    The cleaning of memories in place, archived ones too. Idempotent: a second run changes nothing.

    Keyword search finds a changed memory by its new text at once. Its vectors are stale until `brain:reindex --stale` (D-45). Redacted
    data is erased from files.
    """

    db: Database
    indexer: Indexer
    bus: EventBus
    clock: Clock
    runner: BatchRunner
    erasure: Erasure

    async def run(self, request: CleanRequest, *, observer: RunObserver = SILENT) -> RunReport:
        """Clean, or list the changes in a dry run."""
        finders = load_finders() if request.strip_pii else ()
        counts: Counter[str] = Counter({"changed": 0})

        def clean(memory: Memory) -> CleanResult:
            return clean_memory(memory, finders, normalise=request.normalise)

        async def work(batch: Sequence[Memory]) -> None:
            unclean = [(memory, result) for memory in batch if (result := clean(memory)).memory != memory]
            if not unclean:
                return
            results = [result for _, result in unclean]
            if not request.dry_run:
                results = await self.db.write(lambda tx: self._write(tx, unclean, clean, is_stripped=request.strip_pii))
                with contextlib.suppress(*OUTAGES):  # then the re-index updates the words too
                    live_memories = [result.memory for result in results if result.memory.archived_at is None]
                    await self.indexer.index(live_memories, words_only=True)
            for cleaned in results:
                counts.update(cleaned.counts)
                counts["changed"] += 1
                observer.on_item(RunItem(id=cleaned.memory.id, action="change", why=_format_counts(cleaned.counts)))

        selection = MemorySelection(workspace_id=request.workspace_id)
        name = f"clean {request.workspace_id}{' strip-pii' * request.strip_pii}{' normalise' * request.normalise}"
        batch_run = BatchRun(name=name, selection=selection, resume=request.resume, is_resumable=not request.dry_run)

        async def finish() -> str | None:
            return await self.erasure.run() if request.strip_pii and not request.dry_run else None

        return await self.runner.run(batch_run, batch_reader(selection), work, observer=observer, counts=counts, after_all=finish)

    def _write(
        self,
        tx: Tx,
        unclean: Sequence[tuple[Memory, CleanResult]],
        clean_memory_again: Callable[[Memory], CleanResult],
        *,
        is_stripped: bool,
    ) -> list[CleanResult]:
        """Clean the memories in their current state, under row locks, so that concurrent changes are not undone."""
        now, results = self.clock(), list[CleanResult]()
        for read, result_of_read in unclean:
            current = records.lock_memory(tx, read.workspace_id, read.id)
            if current is None:
                continue
            result = result_of_read if current == read else clean_memory_again(current)
            if result.memory == current:
                continue
            memory = next_version(current, result.memory, at=now)
            records.update_memory(tx, current, memory)
            if is_stripped:
                self.erasure.add_pending(tx, CLEANED_TEXT)
                self.bus.publish_on_commit(tx, MemoryRedacted(workspace_id=current.workspace_id, memory_id=current.id, at=now))
            results.append(replace(result, memory=memory))
        return results


def clean_memory(memory: Memory, finders: Sequence[PiiFinder], *, normalise: bool) -> CleanResult:
    """Return *memory* with clean content, source, tags and metadata: matches of *finders* redacted and, on request, normalised."""
    counts = Counter[str]()
    content, source, tags, metadata = memory.content, memory.source, memory.tags, memory.metadata
    if normalise:
        content, tags = normalize_text(content) or content, clean_tags(tags)
        counts["white space"] += content != memory.content
        counts["tags"] += tags != memory.tags
    if finders:
        texts = [redact(text, finders) for text in (content, source, *tags)]
        for redacted in texts:
            counts.update({kind.value: number for kind, number in redacted.counts.items()})
        content, source, tags = texts[0].text, texts[1].text, tuple(dict.fromkeys(redacted.text for redacted in texts[2:]))
        metadata = cast("Metadata", _redact_json(metadata, finders, counts))
    return CleanResult(memory=replace(memory, content=content, source=source, tags=tags, metadata=metadata), counts=+counts)


def _redact_json(value: object, finders: Sequence[PiiFinder], counts: Counter[str]) -> object:
    """Return the JSON *value* with its texts redacted. Keys stay."""
    if isinstance(value, str):
        redacted = redact(value, finders)
        counts.update({kind.value: number for kind, number in redacted.counts.items()})
        return redacted.text
    if isinstance(value, list):
        return [_redact_json(item, finders, counts) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _redact_json(item, finders, counts) for key, item in cast("dict[str, object]", value).items()}
    return value


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} × {number}" if number > 1 else name for name, number in counts.items())
