"""The primary record by its id: read, change, archive, restore, delete; each change brings its own indexing job (D-45, D-50)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.events import EventBus, MemoryArchived, MemoryDeleted
from rookery.kernel.jobs import JobQueue
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.memory.access_filter import can_read, require_can_write
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, Indexer
from rookery.memory.merging import Merge, contains_merge, merge_memories, remove_merged_text
from rookery.memory.models import Memory, MemoryChange, MemoryScope, Tombstone
from rookery.memory.store import lineage, merges, records

_MIN_TIME_STEP = timedelta(microseconds=1)


class Records:
    """What may be done to a memory that is there; one that the caller may not see is not there."""

    def __init__(self, *, db: Database, jobs: JobQueue, indexer: Indexer, bus: EventBus, clock: Clock) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._bus = bus
        self._clock = clock

    async def get(self, caller: Caller, memory_id: str) -> Memory:
        """
        Return a memory, also an archived one.

        Raises:
            NotFound: There is none, it has expired, or *caller* may not see it.
        """
        now = self._clock()
        memory = await self._db.lookup(lambda tx: records.get_memory(tx, caller.workspace_id, memory_id))
        if memory is None or not can_read(caller, memory, at=now):
            raise NotFound("memory", memory_id)
        return memory

    async def history(self, caller: Caller, memory_id: str) -> list[Memory | Tombstone]:
        """
        Return the lineage of a memory, oldest first: what it replaced, itself, what replaced it (D-41).

        Where all of it is deleted, nothing is left to tell whose it was: then only a key without allow-lists is told.

        Raises:
            NotFound: There never was such a memory, it had no lineage and is gone, or *caller* may not see it.
        """
        now = self._clock()
        chain = await self._db.read(lambda tx: lineage.get_lineage(tx, caller.workspace_id, memory_id))
        alive = [each for each in chain if isinstance(each, Memory)]
        may_see = all(can_read(caller, memory, at=now) for memory in alive) if alive else caller.orgs is None and caller.projects is None
        if not chain or not may_see:
            raise NotFound("memory", memory_id)
        return chain

    async def change(self, caller: Caller, memory_id: str, change: MemoryChange, *, expected: ExpectedETags = None) -> Memory:
        """
        Change what *update_memory* gives and return the memory; what changes nothing writes nothing.

        Raises:
            NotFound: As `get`.
            ValidationFailed: It would be shared and have no org.
            PermissionDenied: It would leave the key's orgs and projects.
            PreconditionFailed: It has another version than *expected*.
        """
        now = self._clock()

        def write(tx: Tx) -> Memory:
            was = self._lock_visible(tx, caller, memory_id, expected)
            changed = _apply_change(was, change)
            if "expires_in_h" in change.changed_fields:
                life = change.expires_in_h
                changed = replace(changed, expires_at=None if life is None else now + hours_delta(life))
            if changed == was:
                return was
            require_owner(changed)
            require_can_write(caller, changed, at=now)
            # Strictly later, so that what an indexing run read before is told from what it is now.
            updated_at = max(now, was.updated_at + _MIN_TIME_STEP)
            content_at = was.content_at if changed.content == was.content else updated_at
            changed = replace(changed, updated_at=updated_at, content_at=content_at, index_failed_at=None)
            records.update_memory(tx, was, changed)
            if changed.archived_at is None:
                self._jobs.enqueue(tx, EMBED_JOB, workspace_id=was.workspace_id, payload={"memory_id": was.id})
            return changed

        changed = await self._db.write(write)
        if changed.archived_at is None:
            await self._indexer.update_words(changed)
        return changed

    async def archive(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> Memory:
        """
        Take a memory out of active recall and of the indexes, and keep it for audit; twice is as once (spec 3.4).

        Raises:
            NotFound: As `get`.
            PreconditionFailed: It has another version than *expected*.
        """
        now = self._clock()

        def write(tx: Tx) -> Memory:
            was = self._lock_visible(tx, caller, memory_id, expected)
            if was.archived_at is not None:
                return was
            return archive_memory(tx, self._jobs, self._bus, was, at=now)

        return await self._db.write(write)

    async def restore(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> Memory:
        """
        Bring an archived memory back and have it indexed; one that is not archived stays as it is.

        One that was merged into another takes its words back from there, if they still stand there as they came (D-52).

        Raises:
            NotFound: As `get`.
            PreconditionFailed: It has another version than *expected*.
        """
        now = self._clock()

        def write(tx: Tx) -> Memory:
            was = self._lock_visible(tx, caller, memory_id, expected)
            if was.archived_at is None:
                return was
            restored = replace(was, archived_at=None, superseded_by=None)
            records.update_memory(tx, was, restored)
            merge = merges.get_merge(tx, was.workspace_id, was.id)
            if merge is not None:
                revert_merges(tx, self._jobs, [merge], at=now)
                _unlink_merged(tx, merge)
            self._jobs.enqueue(tx, EMBED_JOB, workspace_id=was.workspace_id, payload={"memory_id": was.id})
            event = MemoryArchived(workspace_id=was.workspace_id, memory_id=was.id, at=now, restored=True)
            self._bus.publish_on_commit(tx, event)
            return restored

        restored = await self._db.write(write)
        await self._indexer.update_words(restored)
        return restored

    async def delete(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a memory from every store, an archived one too; what was merged of it into another is taken out of there (D-41).

        Raises:
            NotFound: As `get`.
            PreconditionFailed: It has another version than *expected*.
        """
        if not await self.delete_many(caller, [memory_id], expected=expected):
            raise NotFound("memory", memory_id)

    async def delete_many(self, caller: Caller, ids: Sequence[str], *, expected: ExpectedETags = None) -> list[str]:
        """
        Delete those of *ids* that *caller* may see from every store, in one transaction, and return them.

        Raises:
            PreconditionFailed: One of them has another version than *expected*; none is deleted.
        """
        now = self._clock()

        def write(tx: Tx) -> list[str]:
            forgotten = list[str]()
            for memory_id in sorted(set(ids)):
                memory = records.lock_memory(tx, caller.workspace_id, memory_id)
                if memory is not None and can_read(caller, memory, at=now):
                    require_match("memory", memory.version, expected)
                    remove_from_primaries(tx, self._jobs, memory, at=now)
                    delete_memory(
                        tx, self._jobs, self._bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now)
                    )
                    forgotten.append(memory_id)
            return forgotten

        return await self._db.write(write)

    def _lock_visible(self, tx: Tx, caller: Caller, memory_id: str, expected: ExpectedETags) -> Memory:
        memory = records.lock_memory(tx, caller.workspace_id, memory_id)
        if memory is None or not can_read(caller, memory, at=self._clock()):
            raise NotFound("memory", memory_id)
        require_match("memory", memory.version, expected)
        return memory


def archive_memory(tx: Tx, jobs: JobQueue, bus: EventBus, memory: Memory, *, at: datetime, superseded_by: str | None = None) -> Memory:
    """Archive *memory*, held by this transaction and not archived yet, have it dropped from the indexes, and announce it."""
    archived = replace(memory, archived_at=at, indexed_at=None, indexed_model=None, index_failed_at=None, superseded_by=superseded_by)
    records.update_memory(tx, memory, archived)
    jobs.enqueue(tx, DELETE_JOB, workspace_id=memory.workspace_id, payload={"memory_id": memory.id})
    event = MemoryArchived(workspace_id=memory.workspace_id, memory_id=memory.id, at=at)
    bus.publish_on_commit(tx, event)
    return archived


def revert_merges(tx: Tx, jobs: JobQueue, merges_to_revert: Sequence[Merge], *, at: datetime) -> None:
    """Undo *merges_to_revert*, all into one memory, and queue it for indexing; later changes to the memory stay."""
    for merge in merges_to_revert:
        merges.delete_merge(tx, merge)
    primary = records.lock_memory(tx, merges_to_revert[0].workspace_id, merges_to_revert[0].primary_id) if merges_to_revert else None
    if primary is None:
        return
    without = remove_merged_text(primary, merges_to_revert)
    if without != primary:
        updated_at = max(at, primary.updated_at + _MIN_TIME_STEP)
        records.update_memory(tx, primary, replace(without, updated_at=updated_at, index_failed_at=None))
        if primary.archived_at is None:
            jobs.enqueue(tx, EMBED_JOB, workspace_id=primary.workspace_id, payload={"memory_id": primary.id})


def _unlink_merged(tx: Tx, merge: Merge) -> None:
    """Let a primary no longer name what was merged into it and came back; another one that was merged takes its place."""
    primary = records.lock_memory(tx, merge.workspace_id, merge.primary_id)
    if primary is not None and primary.supersedes_id == merge.memory_id:
        others = [each.memory_id for each in merges.list_merged_into(tx, merge.workspace_id, merge.primary_id) if each.is_done]
        records.update_memory(tx, primary, replace(primary, supersedes_id=others[0] if others else None))


def remove_from_primaries(tx: Tx, jobs: JobQueue, memory: Memory, *, at: datetime) -> str | None:
    """
    Take the words of *memory* out of the one that it was merged into, and out of what that one was merged into later.

    Returns the id of a memory where they cannot be told from the rest any more, since it was changed; None: there is none.
    """
    merge, left_in = merges.get_merge(tx, memory.workspace_id, memory.id), None
    if merge is None:
        return None
    primary = records.lock_memory(tx, memory.workspace_id, merge.primary_id)
    if primary is not None and not contains_merge(primary, merge):
        left_in = primary.id
    revert_merges(tx, jobs, [merge], at=at)
    merges.add(tx, [replace(merge, length=0, tags=())])  # its place in the lineage stays, as its tombstone does (D-41)
    seen = {memory.id}  # a bound: what is imported may say that two went into each other
    while primary is not None and primary.id not in seen:
        seen.add(primary.id)
        onward = merges.get_merge(tx, memory.workspace_id, primary.id)
        source = records.lock_memory(tx, memory.workspace_id, primary.id)
        primary = None if onward is None else records.lock_memory(tx, memory.workspace_id, onward.primary_id)
        if onward is None or source is None or primary is None:
            break
        if not contains_merge(primary, onward):
            left_in = primary.id
            continue
        changed, again = merge_memories(remove_merged_text(primary, [onward]), [source], run=onward.run)
        merges.add(tx, [replace(each, is_done=onward.is_done) for each in again])
        if changed != primary:
            records.update_memory(
                tx, primary, replace(changed, updated_at=max(at, primary.updated_at + _MIN_TIME_STEP), index_failed_at=None)
            )
            if primary.archived_at is None:
                jobs.enqueue(tx, EMBED_JOB, workspace_id=primary.workspace_id, payload={"memory_id": primary.id})
    return left_in


def delete_memory(tx: Tx, jobs: JobQueue, bus: EventBus, memory: Memory, event: MemoryDeleted) -> None:
    """Delete *memory*, held by this transaction, have it dropped from the indexes, and announce *event*."""
    if records.delete_memory(tx, memory, at=event.at):
        jobs.enqueue(tx, DELETE_JOB, workspace_id=memory.workspace_id, payload={"memory_id": memory.id})
        bus.publish_on_commit(tx, event)


def hours_delta(count: float) -> timedelta:
    """Return *count* hours, above 0; never so few that they are no time at all."""
    return max(timedelta(hours=count), _MIN_TIME_STEP)


def normalize_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* in lower case, without repeats, in their order (D-40)."""
    return tuple(dict.fromkeys(tag.lower() for tag in tags))


def require_owner(memory: Memory) -> None:
    """
    Do nothing if *memory* says whose it is as its scope demands (D-40).

    Raises:
        ValidationFailed: It does not.
    """
    match memory.memory_scope:
        case MemoryScope.AGENT if memory.agent_id is None:
            raise ValidationFailed({"agent_id": ["is required for a memory of scope agent"]})
        case MemoryScope.SESSION if memory.session_id is None:
            raise ValidationFailed({"session_id": ["is required for a memory of scope session"]})
        case MemoryScope.SHARED if memory.org is None:
            raise ValidationFailed({"org": ["is required for a memory of scope shared"]})
        case _:
            return


def _apply_change(memory: Memory, change: MemoryChange) -> Memory:
    changed = memory
    if "content" in change.changed_fields:
        changed = replace(changed, content=change.content)
    if "type" in change.changed_fields:
        changed = replace(changed, type=change.type)
    if "org" in change.changed_fields:
        changed = replace(changed, org=change.org)
    if "project" in change.changed_fields:
        changed = replace(changed, project=change.project)
    if "source" in change.changed_fields:
        changed = replace(changed, source=change.source)
    if "tags" in change.changed_fields:
        changed = replace(changed, tags=normalize_tags(change.tags))
    if "metadata" in change.changed_fields:
        changed = replace(changed, metadata=change.metadata)
    if "confidence" in change.changed_fields:
        changed = replace(changed, confidence=change.confidence, base_confidence=change.confidence)
    return changed
