"""Cleaning of stored texts: redaction of personal data, and normalisation."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.memory.authorship import Author
from rookery.memory.batch_runs import BATCH_SIZE, SILENT, RunItem, RunObserver, RunReport
from rookery.memory.events import MemoryRedacted
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder, clean_tags, normalize_text, redact
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.metadata import Metadata
from rookery.memory.models import Memory
from rookery.memory.recall_models import RecallRecord
from rookery.memory.records import next_version
from rookery.memory.store import recalls, records
from rookery.memory.store.maintenance import CLEANED_TEXT, MemorySelection
from rookery.memory.store.tables import MEMORIES


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest:
    """The parameters of a cleaning; at least one of *strip_pii* and *normalise* must be set. *by* becomes the author of the changes."""

    workspace_id: int
    strip_pii: bool = False
    normalise: bool = False
    dry_run: bool = False
    resume: bool = False
    by: Actor = SYSTEM_ACTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """A cleaned memory, and the number of changes by kind."""

    memory: Memory
    counts: Counter[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbing:
    """
    The cleaning of memories in place, archived ones too. Idempotent: a second run changes nothing.

    Keyword search finds a changed memory by its new text at once. Its vectors are stale until `brain:reindex --stale`. Redacted
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
                results = await self.db.write(lambda tx: self._write(tx, request, unclean, clean))
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
            if not request.strip_pii or request.dry_run:
                return None
            if cleaned := await self._clean_questions(request.workspace_id, finders):
                counts["questions"] = cleaned
            return await self.erasure.run()

        return await self.runner.run(batch_run, batch_reader(selection), work, observer=observer, counts=counts, after_all=finish)

    async def _clean_questions(self, workspace_id: int, finders: Sequence[PiiFinder]) -> int:
        """Redact the stored questions of recalls. Return the number of recalls that were changed."""
        after, count = "", 0

        def clean_batch(tx: Tx, start: str) -> tuple[str | None, int]:
            rows = recalls.list_with_query(tx, workspace_id, after=start, limit=BATCH_SIZE)
            changed = [clean_row for row in rows if (clean_row := _redact_questions(row, finders)) != row]
            recalls.save_queries(tx, changed)
            if changed:
                self.erasure.add_pending(tx, CLEANED_TEXT)
            return rows[-1].id if rows else None, len(changed)

        while True:
            last, changed_count = await self.db.write(lambda tx, start=after: clean_batch(tx, start))
            count += changed_count
            if last is None:
                return count
            after = last

    def _write(
        self,
        tx: Tx,
        request: CleanRequest,
        unclean: Sequence[tuple[Memory, CleanResult]],
        clean_memory_again: Callable[[Memory], CleanResult],
    ) -> list[CleanResult]:
        """Clean the memories in their current state, under row locks, so that concurrent changes are not undone."""
        now, author, results = self.clock(), Author.from_actor(request.by), list[CleanResult]()
        for read, result_of_read in unclean:
            current = MEMORIES.find(tx, read.workspace_id, id=read.id, lock=True)
            if current is None:
                continue
            result = result_of_read if current == read else clean_memory_again(current)
            if result.memory == current:
                continue
            memory = next_version(current, result.memory, by=author, at=now)
            records.update_memory(tx, current, memory)
            if request.strip_pii:
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


def _redact_questions(record: RecallRecord, finders: Sequence[PiiFinder]) -> RecallRecord:
    """Return *record* with its question and keywords redacted."""
    logged, query_record = record.request, record.query_record
    if logged is not None:
        keywords = tuple(redact(word, finders).text for word in logged.request.keywords)
        request = replace(logged.request, query=redact(logged.request.query, finders).text, keywords=keywords)
        record = replace(record, request=replace(logged, request=request))
    if query_record is not None:
        record = replace(record, query_record=replace(query_record, query=redact(query_record.query, finders).text))
    return record


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
