"""Operations on memories by id: read, change, archive, restore, delete. Each change enqueues its indexing job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.memory.access_filter import can_read, require_can_write
from rookery.memory.authorship import Author
from rookery.memory.events import MemoryArchived, MemoryDeleted
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, Indexer
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.merging import Merge, contains_merge, merge_memories, remove_merged_text
from rookery.memory.models import Memory, MemoryChange, MemoryScope, Tombstone
from rookery.memory.store import records
from rookery.memory.store.tables import MEMORIES, MERGES

_MIN_TIME_STEP = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """The operations on stored memories. A memory that the caller may not see counts as not found."""

    db: Database
    jobs: JobQueue
    indexer: Indexer
    bus: EventBus
    clock: Clock
    audit: MemoryAudit

    async def get(self, caller: Caller, memory_id: str) -> Memory:
        """
        Return a memory, also an archived one.

        Raises:
            NotFound: The memory does not exist, has expired, or is not visible to *caller*.
        """
        now = self.clock()
        memory = await self.db.lookup(lambda tx: MEMORIES.find(tx, caller.workspace_id, id=memory_id))
        if memory is None or not can_read(caller, memory, at=now):
            raise NotFound("memory", memory_id)
        return memory

    async def history(self, caller: Caller, memory_id: str) -> list[Memory | Tombstone]:
        """
        Return the lineage of a memory, oldest first: the memories that it replaced, itself, those that replaced it.

        If all of them are deleted, their org and project are unknown. Only a key without allow-lists then gets the lineage.

        Raises:
            NotFound: The memory never existed, was deleted without a lineage, or is not visible to *caller*.
        """
        now = self.clock()
        chain = await self.db.read(lambda tx: records.get_lineage(tx, caller.workspace_id, memory_id))
        live_memories = [memory for memory in chain if isinstance(memory, Memory)]
        is_visible = (
            all(can_read(caller, memory, at=now) for memory in live_memories)
            if live_memories
            else caller.orgs is None and caller.projects is None
        )
        if not chain or not is_visible:
            raise NotFound("memory", memory_id)
        return chain

    async def change(self, caller: Caller, memory_id: str, change: MemoryChange, *, expected: ExpectedETags = None) -> Memory:
        """
        Apply *change* and return the memory. A change reverted effect writes nothing.

        Raises:
            NotFound: The memory does not exist, has expired, or is not visible to *caller*.
            ValidationFailed: The memory would be in scope shared without an org.
            PermissionDenied: The memory would leave the key's orgs and projects.
            PreconditionFailed: The version of the memory is not *expected*.
        """
        now, author = self.clock(), Author.from_caller(caller)

        def write(tx: Tx) -> Memory:
            old = self._lock_visible(tx, caller, memory_id, expected)
            changed_memory = _apply_change(old, change, at=now)
            if changed_memory == old:
                return old
            require_owner(changed_memory)
            require_can_write(caller, changed_memory, at=now)
            if changed_memory.content != old.content:
                changed_memory = replace(changed_memory, content_at=next_version(old, changed_memory, by=author, at=now).updated_at)
            return _store_version(tx, self.jobs, old, changed_memory, by=author, at=now)

        changed_memory = await self.db.write(write)
        if changed_memory.archived_at is None:
            await self.indexer.update_words(changed_memory)
        return changed_memory

    async def archive(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> Memory:
        """
        Remove a memory from recall and from the indexes, and keep it for audit. Idempotent.

        Raises:
            NotFound: The memory does not exist, has expired, or is not visible to *caller*.
            PreconditionFailed: The version of the memory is not *expected*.
        """
        now = self.clock()

        def write(tx: Tx) -> Memory:
            old = self._lock_visible(tx, caller, memory_id, expected)
            if old.archived_at is not None:
                return old
            self.audit.record_memory(tx, caller, "memory.archived", old)
            return archive_memory(tx, self.jobs, self.bus, old, at=now)

        return await self.db.write(write)

    async def restore(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> Memory:
        """
        Restore an archived memory and enqueue its indexing. A memory that is not archived stays as it is.

        If it was merged into another memory, its text is removed from there, unless that text has changed.

        Raises:
            NotFound: The memory does not exist, has expired, or is not visible to *caller*.
            PreconditionFailed: The version of the memory is not *expected*.
        """
        now = self.clock()

        def write(tx: Tx) -> Memory:
            old = self._lock_visible(tx, caller, memory_id, expected)
            if old.archived_at is None:
                return old
            self.audit.record_memory(tx, caller, "memory.restored", old)
            restored_memory = replace(old, archived_at=None, superseded_by=None)
            records.update_memory(tx, old, restored_memory)
            merge = MERGES.find(tx, old.workspace_id, memory_id=old.id)
            if merge is not None:
                revert_merges(tx, self.jobs, [merge], by=Author.from_caller(caller), at=now)
                _unlink_merged(tx, merge)
            self.jobs.enqueue(tx, EMBED_JOB, workspace_id=old.workspace_id, payload={"memory_id": old.id})
            event = MemoryArchived(workspace_id=old.workspace_id, memory_id=old.id, at=now, restored=True)
            self.bus.publish_on_commit(tx, event)
            return restored_memory

        restored_memory = await self.db.write(write)
        await self.indexer.update_words(restored_memory)
        return restored_memory

    async def delete(self, caller: Caller, memory_id: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a memory from every store, also an archived one. Text of it that was merged into another memory is removed.

        Raises:
            NotFound: The memory does not exist, has expired, or is not visible to *caller*.
            PreconditionFailed: The version of the memory is not *expected*.
        """
        if not await self.delete_many(caller, [memory_id], expected=expected):
            raise NotFound("memory", memory_id)

    async def delete_many(self, caller: Caller, ids: Sequence[str], *, expected: ExpectedETags = None) -> list[str]:
        """
        Delete those of *ids* that *caller* may see from every store, in one transaction. Return the ids deleted.

        Raises:
            PreconditionFailed: The version of one memory is not *expected*; no memory is deleted.
        """
        now, author = self.clock(), Author.from_caller(caller)

        def write(tx: Tx) -> list[str]:
            deleted_ids = list[str]()
            for memory_id in sorted(set(ids)):
                memory = MEMORIES.find(tx, caller.workspace_id, id=memory_id, lock=True)
                if memory is not None and can_read(caller, memory, at=now):
                    require_match("memory", memory.version, expected)
                    remove_from_primaries(tx, self.jobs, memory, by=author, at=now)
                    delete_memory(
                        tx, self.jobs, self.bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now)
                    )
                    self.audit.record_memory(tx, caller, "memory.deleted", memory)
                    deleted_ids.append(memory_id)
            return deleted_ids

        return await self.db.write(write)

    def _lock_visible(self, tx: Tx, caller: Caller, memory_id: str, expected: ExpectedETags) -> Memory:
        memory = MEMORIES.find(tx, caller.workspace_id, id=memory_id, lock=True)
        if memory is None or not can_read(caller, memory, at=self.clock()):
            raise NotFound("memory", memory_id)
        require_match("memory", memory.version, expected)
        return memory


def next_version(old: Memory, new: Memory, *, by: Author, at: datetime) -> Memory:
    """Return *new* as a version strictly later than *old*, so that an indexing run can detect that it changed since it was read."""
    return replace(new, updated_at=max(at, old.updated_at + _MIN_TIME_STEP), updated_by=by, index_failed_at=None)


def _store_version(tx: Tx, jobs: JobQueue, old: Memory, new: Memory, *, by: Author, at: datetime) -> Memory:
    """Replace *old* by *new* and enqueue its indexing, unless it is archived. The caller must hold the row lock."""
    stored = next_version(old, new, by=by, at=at)
    records.update_memory(tx, old, stored)
    if stored.archived_at is None:
        jobs.enqueue(tx, EMBED_JOB, workspace_id=stored.workspace_id, payload={"memory_id": stored.id})
    return stored


def archive_memory(tx: Tx, jobs: JobQueue, bus: EventBus, memory: Memory, *, at: datetime, superseded_by: str | None = None) -> Memory:
    """Archive *memory*, enqueue its removal from the indexes, and publish the event. The caller must hold its row lock."""
    archived = replace(memory, archived_at=at, indexed_at=None, indexed_model=None, index_failed_at=None, superseded_by=superseded_by)
    records.update_memory(tx, memory, archived)
    jobs.enqueue(tx, DELETE_JOB, workspace_id=memory.workspace_id, payload={"memory_id": memory.id})
    event = MemoryArchived(workspace_id=memory.workspace_id, memory_id=memory.id, at=at)
    bus.publish_on_commit(tx, event)
    return archived


def revert_merges(tx: Tx, jobs: JobQueue, merges_to_revert: Sequence[Merge], *, by: Author, at: datetime) -> None:
    """Undo *merges_to_revert*, all into one memory, and enqueue its indexing. Later changes to the memory stay."""
    if not merges_to_revert:
        return
    workspace_id = merges_to_revert[0].workspace_id
    MERGES.delete(tx, workspace_id, memory_id=[merge.memory_id for merge in merges_to_revert])
    primary = MEMORIES.find(tx, workspace_id, id=merges_to_revert[0].primary_id, lock=True)
    if primary is None:
        return
    reverted = remove_merged_text(primary, merges_to_revert)
    if reverted != primary:
        _store_version(tx, jobs, primary, reverted, by=by, at=at)


def _unlink_merged(tx: Tx, merge: Merge) -> None:
    """Remove the link of a primary to a restored memory. Another memory merged into it takes the place."""
    primary = MEMORIES.find(tx, merge.workspace_id, id=merge.primary_id, lock=True)
    if primary is not None and primary.supersedes_id == merge.memory_id:
        others = [other.memory_id for other in MERGES.find_all(tx, merge.workspace_id, primary_id=merge.primary_id) if other.is_done]
        records.update_memory(tx, primary, replace(primary, supersedes_id=others[0] if others else None))


def remove_from_primaries(tx: Tx, jobs: JobQueue, memory: Memory, *, by: Author, at: datetime) -> str | None:
    """
    Remove the text of *memory* from the memory that it was merged into, and from those that this one was merged into later.

    Return the id of a memory in which the text was changed and can no longer be separated. None if there is no such memory.
    """
    merge, left_in = MERGES.find(tx, memory.workspace_id, memory_id=memory.id), None
    if merge is None:
        return None
    primary = MEMORIES.find(tx, memory.workspace_id, id=merge.primary_id, lock=True)
    if primary is not None and not contains_merge(primary, merge):
        left_in = primary.id
    revert_merges(tx, jobs, [merge], by=by, at=at)
    records.add_merges(tx, [replace(merge, length=0, tags=())])  # its position in the lineage stays, like its tombstone
    seen_ids = {memory.id}  # a guard against cycles: imported data may contain them
    while primary is not None and primary.id not in seen_ids:
        seen_ids.add(primary.id)
        next_merge = MERGES.find(tx, memory.workspace_id, memory_id=primary.id)
        source = MEMORIES.find(tx, memory.workspace_id, id=primary.id, lock=True)
        primary = None if next_merge is None else MEMORIES.find(tx, memory.workspace_id, id=next_merge.primary_id, lock=True)
        if next_merge is None or source is None or primary is None:
            break
        if not contains_merge(primary, next_merge):
            left_in = primary.id
            continue
        changed_memory, new_merges = merge_memories(remove_merged_text(primary, [next_merge]), [source], run=next_merge.run)
        records.add_merges(tx, [replace(new_merge, is_done=next_merge.is_done) for new_merge in new_merges])
        if changed_memory != primary:
            _store_version(tx, jobs, primary, changed_memory, by=by, at=at)
    return left_in


def delete_memory(tx: Tx, jobs: JobQueue, bus: EventBus, memory: Memory, event: MemoryDeleted) -> None:
    """Delete *memory*, enqueue its removal from the indexes, and publish *event*. The caller must hold its row lock."""
    if records.delete_memory(tx, memory, at=event.at):
        jobs.enqueue(tx, DELETE_JOB, workspace_id=memory.workspace_id, payload={"memory_id": memory.id})
        bus.publish_on_commit(tx, event)


def hours_delta(count: float) -> timedelta:
    """Return *count* hours, with a minimum of one microsecond. *count* must be above 0."""
    return max(timedelta(hours=count), _MIN_TIME_STEP)


def normalize_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* in lower case, without duplicates, in their order."""
    return tuple(dict.fromkeys(tag.lower() for tag in tags))


def require_owner(memory: Memory) -> None:
    """
    Check that *memory* has the owner that its scope requires.

    Raises:
        ValidationFailed: The agent id, session id or org is missing.
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


def _apply_change(memory: Memory, change: MemoryChange, *, at: datetime) -> Memory:
    values = change.get_set_fields()
    if "tags" in values:
        values["tags"] = normalize_tags(values["tags"])
    if "confidence" in values:
        values["base_confidence"] = values["confidence"]
    if "expires_in" in values:
        hours = values.pop("expires_in")
        values["expires_at"] = None if hours is None else at + hours_delta(hours)
    return replace(memory, **values)
