"""
Import of memories in batches.

Each item is mapped to the workspace and checked on its own: ids, overrides, redaction, limits. Repeated imports change nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import TypeVar

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES, Conflict, EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.kernel.sentences import format_count
from rookery.memory.authorship import Author
from rookery.memory.batch_runs import SILENT, RunCheckpoint, RunObserver, RunReport
from rookery.memory.capacity import Capacity
from rookery.memory.errors import MemoriesFull
from rookery.memory.events import MemoryDeleted, MemoryStored, MemorySuperseded
from rookery.memory.indexing import DELETE_JOB, EMBED_IMPORTED_JOB, Indexer
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder
from rookery.memory.maintenance.scrubbing import clean_memory
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.records import normalize_tags
from rookery.memory.store import maintenance, records, transfer
from rookery.memory.store.tables import MEMORIES, TOMBSTONES
from rookery.memory.transfer.conflicts import ConflictResolver, DryRunState, ImportBatch, ImportDecision
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.items import (
    ImportedMemory,
    ImportItem,
    ImportOverrides,
    ImportReader,
    ReadProgress,
    RejectedItem,
    copy_id,
    derive_id,
    field_error,
    validate_memory,
)

T = TypeVar("T", Memory, Tombstone, Merge)

BATCH_SIZE = 200
"""Items per transaction, so that other writers wait some ten milliseconds."""

_MAX_TRIES = 3
"""Attempts to write a batch. Another import may store the same ids first; the next attempt detects them."""

_COUNT_NAMES = ("imported", "changed", "unchanged", "duplicates", "expired", "tombstones", "ended", "conflicts", "refused")
_FAILURE_COUNT_NAMES = ("conflicts", "refused")


_MAX_CLOCK_SKEW = timedelta(days=1)
"""Maximum time by which the clock of another machine may be ahead."""

_PAST_TIME_FIELDS = ("created_at", "updated_at", "content_at", "archived_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRequest:
    """
    The parameters of an import.

    Attributes:
        dedupe: Skip memories whose content exists in the same space.
        new_ids: Store copies with new ids, for a store where the old ids are used.
        takes_newer: Replace a stored memory by a version of its file that was changed later.
        strip_pii: Redact personal data and secrets.
        by: The author of memories from other tools. Memories of Rookery keep the authors that the file names.
        is_quiet: Publish no events: no webhooks are sent and no training examples are recorded.
        dry_run: Only report the decisions.
        resume: Continue an interrupted run.
        run: A name from the source and the options, which identifies an interrupted run. None if the source cannot be resumed.
    """

    workspace_id: int
    overrides: ImportOverrides = field(default_factory=ImportOverrides)
    dedupe: bool = False
    new_ids: bool = False
    takes_newer: bool = False
    strip_pii: bool = False
    is_quiet: bool = False
    dry_run: bool = False
    resume: bool = False
    run: str | None = None
    by: Actor = SYSTEM_ACTOR


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchResult:
    """The result of a batch. *processed* is less than its size if the workspace became full."""

    decisions: Sequence[ImportDecision]
    batch: ImportBatch
    processed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryImport:
    """
    The import of memories, with or without a running server. It publishes the same events as `remember`.

    Keyword search finds the memories at once, semantic recall when their jobs are done. These jobs run after those of agents.
    """

    db: Database
    jobs: JobQueue
    indexer: Indexer
    capacity: Capacity
    bus: EventBus
    clock: Clock
    timer: Callable[[], float] = time.perf_counter

    async def run(self, request: ImportRequest, reader: ImportReader, *, observer: RunObserver = SILENT) -> RunReport:
        """
        Store the items of *reader*, or report them in a dry run. The run ends early if a store is full or down.

        The observer gets the items that could not be stored; in a dry run, all items.
        """
        started_s = self.timer()
        counts = Counter[str](dict.fromkeys(_COUNT_NAMES, 0))
        finders, dry_run_state, stop_reason = load_finders() if request.strip_pii else (), DryRunState(), None
        items = iter(reader)
        done = await self._get_progress(request)
        if done:
            counts["earlier"] = sum(1 for _ in islice(items, done))
            observer.on_progress(reader.progress.done, reader.progress.total)
        batch = list[ImportItem]()
        try:
            while stop_reason is None and (batch := list(islice(items, BATCH_SIZE))):
                at = self.clock()
                mapped_items = [_map_item(request, item, finders, at=at) for item in batch]
                batch_result = await self._store_batch(request, mapped_items, dry_run_state, done)
                done += batch_result.processed
                for decision in batch_result.decisions:
                    counts[decision.count_name] += 1
                    if request.dry_run or decision.count_name in _FAILURE_COUNT_NAMES:
                        observer.on_item(decision.item)
                observer.on_progress(reader.progress.done, reader.progress.total)
                batch = batch[batch_result.processed :]
                if batch:
                    stop_reason = MemoriesFull(self.capacity.max_memories).message
        except (EngineUnavailable, StorageFull) as error:
            stop_reason = error.message
        if stop_reason is None:
            await self._delete_checkpoint(request)
        failures = sum(counts[name] for name in _FAILURE_COUNT_NAMES)
        total = sum(counts[name] for name in _COUNT_NAMES)
        return RunReport(
            total=total,
            successes=total - failures,
            failures=failures,
            duration_s=self.timer() - started_s,
            counts=dict(counts),
            recognised=reader.progress.recognised,
            warnings=_list_warnings(reader.progress),
            stopped=None if stop_reason is None else _describe_stop(stop_reason, batch, request),
        )

    async def _get_progress(self, request: ImportRequest) -> int:
        """Return the number of items that the interrupted run processed, if this run continues it."""
        name = request.run
        checkpoint = await self.db.read(lambda tx: maintenance.get_checkpoint(tx, name)) if request.resume and name is not None else None
        return checkpoint.done if checkpoint else 0

    async def _delete_checkpoint(self, request: ImportRequest) -> None:
        name = request.run
        if name is not None and not request.dry_run:
            await self.db.write(lambda tx: maintenance.delete_checkpoint(tx, name))

    async def _store_batch(
        self, request: ImportRequest, batch: Sequence[ImportItem], dry_run_state: DryRunState, done: int
    ) -> _BatchResult:
        room = await self.capacity.count_admissible(request.workspace_id, len(batch) + len(dry_run_state.digests))
        if request.dry_run:
            result = await self.db.read(
                lambda tx: self._decide_batch(tx, request, batch, dry_run_state, room=room - len(dry_run_state.digests))
            )
            dry_run_state.add(result.batch)
            return result
        batch_result = await self._write_with_retries(request, batch, room=room, done=done)
        new = [record.memory for record in batch_result.batch.memories.values()]
        self.capacity.add_imported(request.workspace_id, len(new))
        try:
            memories = [*new, *batch_result.batch.changed_memories.values()]
            await self.indexer.index([memory for memory in memories if memory.archived_at is None], words_only=True)
        except OUTAGES:
            return batch_result  # the record is stored, and its job writes the full-text index too
        return batch_result

    async def _write_with_retries(self, request: ImportRequest, batch: Sequence[ImportItem], *, room: int, done: int) -> _BatchResult:
        for _ in range(_MAX_TRIES - 1):
            try:
                return await self.db.write(lambda tx: self._write(tx, request, batch, room=room, done=done))
            except Conflict:
                continue
        return await self.db.write(lambda tx: self._write(tx, request, batch, room=room, done=done))

    def _decide_batch(
        self, tx: Tx, request: ImportRequest, batch: Sequence[ImportItem], dry_run_state: DryRunState | None, *, room: int
    ) -> _BatchResult:
        resolver = ConflictResolver(
            tx,
            batch,
            workspace_id=request.workspace_id,
            at=self.clock(),
            dedupe=request.dedupe,
            takes_newer=request.takes_newer,
            dry_run_state=dry_run_state,
            room=room,
        )
        decisions, processed = list[ImportDecision](), 0
        for item in batch:
            decision = resolver.decide(item)
            if resolver.is_full:
                break
            processed += 1
            if decision is not None:
                decisions.append(decision)
        return _BatchResult(decisions=decisions, batch=resolver.batch, processed=processed)

    def _write(self, tx: Tx, request: ImportRequest, batch: Sequence[ImportItem], *, room: int, done: int) -> _BatchResult:
        batch_result = self._decide_batch(tx, request, batch, None, room=room)
        rows, now = batch_result.batch, self.clock()
        transfer.add(tx, list(rows.memories.values()))
        TOMBSTONES.insert(tx, *rows.tombstones.values())
        if rows.merges:
            records.add_merges(tx, list(rows.merges.values()))
        for record in rows.memories.values():
            if record.memory.archived_at is None:
                self.jobs.enqueue(tx, EMBED_IMPORTED_JOB, workspace_id=request.workspace_id, payload={"memory_id": record.id})
            self._announce(tx, request, MemoryStored(workspace_id=request.workspace_id, memory=record.memory, at=now))
        for memory_id, new in rows.changed_memories.items():
            self._change(tx, request, memory_id, new)
        for tombstone in rows.ended_tombstones.values():
            memory = MEMORIES.find(tx, request.workspace_id, id=tombstone.id, lock=True)
            if memory is not None and records.delete_memory(tx, memory, at=tombstone.ended_at, superseded_by=tombstone.superseded_by):
                self.jobs.enqueue(tx, DELETE_JOB, workspace_id=request.workspace_id, payload={"memory_id": tombstone.id})
                self._announce(tx, request, _end_event(tombstone))
        if request.run is not None:
            name, processed = request.run, done + batch_result.processed
            maintenance.save_checkpoint(tx, RunCheckpoint(name=name, workspace_id=request.workspace_id, cursor="", done=processed, at=now))
        return batch_result

    def _change(self, tx: Tx, request: ImportRequest, memory_id: str, new: Memory) -> None:
        """Replace a stored memory by *new*, and enqueue its indexing. A change by someone else since then has precedence."""
        old = MEMORIES.find(tx, request.workspace_id, id=memory_id, lock=True)
        if old is None or old.updated_at >= new.updated_at:
            return
        records.update_memory(tx, old, new)
        if new.archived_at is None:
            self.jobs.enqueue(tx, EMBED_IMPORTED_JOB, workspace_id=request.workspace_id, payload={"memory_id": memory_id})

    def _announce(self, tx: Tx, request: ImportRequest, event: MemoryStored | MemoryDeleted | MemorySuperseded) -> None:
        if not request.is_quiet:
            self.bus.publish_on_commit(tx, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferServices:
    """The export and import of memories, for the command line."""

    exporter: MemoryExport
    importer: MemoryImport


def _end_event(tombstone: Tombstone) -> MemoryDeleted | MemorySuperseded:
    if tombstone.superseded_by is None:
        return MemoryDeleted(workspace_id=tombstone.workspace_id, memory_id=tombstone.id, at=tombstone.ended_at)
    return MemorySuperseded(
        workspace_id=tombstone.workspace_id, memory_id=tombstone.id, superseded_by=tombstone.superseded_by, at=tombstone.ended_at
    )


def _list_warnings(progress: ReadProgress) -> tuple[str, ...]:
    """Return the warnings, and how many more there are."""
    more = progress.warning_count - len(progress.warnings)
    return (*progress.warnings, *([f"and {format_count(more, 'more warning')}"] if more else []))


def _describe_stop(stop_reason: str, batch: Sequence[ImportItem], request: ImportRequest) -> str:
    """Return the reason of an early end, with the first item that was not stored and the command to continue."""
    if not batch:
        return stop_reason
    advice = (
        "run the same command with --resume to continue from there"
        if request.run
        else "run the same command again to continue; it skips stored memories"
    )
    return f"{stop_reason} Nothing was stored from {batch[0].location} on; {advice}."


def _map_item(request: ImportRequest, item: ImportItem, finders: Sequence[PiiFinder], *, at: datetime) -> ImportItem:
    """Return *item* as it is to be stored in the workspace, or rejected with a reason."""
    content = item.content
    match content:
        case ImportedMemory():
            try:
                content = _map_memory(request, content, finders, at=at)
            except RookeryError as error:
                content = RejectedItem(reason=error.message, name=content.memory.id or None)
        case Tombstone():
            content = _copy_ids(request, replace(content, workspace_id=request.workspace_id), "id", "supersedes_id", "superseded_by")
        case Merge():
            content = _copy_ids(request, replace(content, workspace_id=request.workspace_id), "memory_id", "primary_id")
        case RejectedItem():
            pass
    return replace(item, content=content)


def _map_memory(request: ImportRequest, imported_memory: ImportedMemory, finders: Sequence[PiiFinder], *, at: datetime) -> ImportedMemory:
    imported_memory = _clamp_future_times(imported_memory, at=at)
    memory = request.overrides.apply_to(
        replace(imported_memory.memory, workspace_id=request.workspace_id, tags=normalize_tags(imported_memory.memory.tags))
    )
    if not imported_memory.is_exact:
        author = Author.from_actor(request.by)
        memory = replace(memory, created_by=author, updated_by=author)
    if finders:
        memory = clean_memory(memory, finders, normalise=False).memory
    validate_memory(memory)
    if imported_memory.identity is not None:
        memory = replace(memory, id=derive_id(request.workspace_id, memory, imported_memory.identity))
    else:
        memory = _copy_ids(request, memory, "id", "supersedes_id", "superseded_by")
    if imported_memory.supersedes is not None:
        memory = replace(memory, supersedes_id=derive_id(request.workspace_id, memory, imported_memory.supersedes))
    return replace(imported_memory, memory=memory)


def _copy_ids(request: ImportRequest, item: T, *names: str) -> T:
    """Return *item* with the ids *names* as those of copies, if the request wants new ids."""
    if not request.new_ids:
        return item
    ids = {name: getattr(item, name) for name in names}
    return replace(item, **{name: copy_id(request.workspace_id, old) for name, old in ids.items() if old is not None})


def _clamp_future_times(imported_memory: ImportedMemory, *, at: datetime) -> ImportedMemory:
    """Return *imported_memory* with future times set to now. In a file of Rookery, a future time is an error."""
    for name in _PAST_TIME_FIELDS:
        moment: datetime | None = getattr(imported_memory.memory, name)
        if moment is not None and moment > at + _MAX_CLOCK_SKEW:
            if imported_memory.is_exact:
                raise field_error(name, f"{format_iso(moment)} is in the future; the clock of the source was wrong")
            imported_memory = replace(imported_memory, memory=replace(imported_memory.memory, **{name: at}))
    return imported_memory
