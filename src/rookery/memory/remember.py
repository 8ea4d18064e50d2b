"""Storing of memories: the record, its job and its supersession in one transaction; indexing follows."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, TransactionHook, Tx, get_transaction_hook
from rookery.kernel.errors import OUTAGES, RookeryError, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.workspace_shares import MAX_QUERY_HOLD_S, WorkspaceShares
from rookery.memory.access_filter import can_read, require_can_write
from rookery.memory.authorship import Author
from rookery.memory.capacity import Capacity
from rookery.memory.concurrency import Batcher
from rookery.memory.errors import AlreadySuperseded
from rookery.memory.events import MemoryStored, MemorySuperseded
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, Indexer
from rookery.memory.models import MEMORY_FIELDS, Draft, Memory, MemoryScope, RememberResult, read_fields
from rookery.memory.ports import SessionLookup
from rookery.memory.records import hours_delta, normalize_tags, require_owner
from rookery.memory.store import records
from rookery.memory.store.tables import MEMORIES, TOMBSTONES

_SESSION_TTL = timedelta(days=7)
"""The default lifetime of a session memory."""

_JOB_DELAY_S = 10.0
"""Delay of the job if indexing runs before the response; the job is only a fallback."""

_MIN_POLL_INTERVAL_S = 0.005
_MAX_POLL_INTERVAL_S = 0.05

_DRAFTED_FIELDS = tuple(column.name for column in fields(Draft) if column.name in MEMORY_FIELDS)

RememberOutcome = RememberResult | RookeryError


class _PreparedMemory(NamedTuple):
    """A memory to store, or the error that rejects it."""

    caller: Caller
    memory: records.NewMemory | RookeryError
    dedupe: bool
    on_stored: TransactionHook | None = None
    """Stores the response to a request with an Idempotency-Key, in the transaction that stores the memory."""


def _prepare(caller: Caller, memory: Memory | RookeryError, *, dedupe: bool, on_stored: TransactionHook | None = None) -> _PreparedMemory:
    """Return the prepared memory. Its row is made here, because on SQLite other writers wait during the transaction."""
    return _PreparedMemory(caller, memory if isinstance(memory, RookeryError) else records.prepare(memory), dedupe, on_stored)


class Remember:
    """
    The service that stores memories.

    Args:
        index_first: Index before the response is sent (`async_embedding` false).
        sessions: Sessions whose memories live until the session ends. None if there are no sessions.
    """

    def __init__(
        self,
        *,
        db: Database,
        jobs: JobQueue,
        indexer: Indexer,
        capacity: Capacity,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        shares: WorkspaceShares,
        index_first: bool = False,
        sessions: SessionLookup | None = None,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._capacity = capacity
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._job_delay_s = _JOB_DELAY_S if index_first else 0.0
        self._shares = shares
        self._sessions = sessions
        self._batcher = Batcher[_PreparedMemory, RememberOutcome](self._write)

    async def store(self, caller: Caller, draft: Draft, *, wait_s: float = 0.0) -> RememberResult:
        """
        Store *draft*. With *wait_s*, return when it is indexed or that time is over.

        Raises:
            ValidationFailed: The owner that the scope requires is missing, or *caller* sees no memory with the id supersedes_id.
            PermissionDenied: The agent, org or project is not one of the key's.
            AlreadySuperseded: Another caller replaced the same memory first.
            BacklogFull, MemoriesFull, StorageFull: A limit is reached.
        """
        memory = self._build_memory(caller, draft, await self._find_open_sessions(caller, [draft]))
        await self._capacity.admit(caller.workspace_id, 1)
        async with self._shares.take(caller.workspace_id, max_hold_s=MAX_QUERY_HOLD_S):
            storing = self._store_one(_prepare(caller, memory, dedupe=draft.dedupe, on_stored=get_transaction_hook()))
            if self._job_delay_s:
                result = await storing
            else:
                result = await self._indexer.index_words_during(
                    [memory], storing, stored_ids=lambda result: () if result.is_duplicate else (memory.id,)
                )
        if not result.is_duplicate:
            self._capacity.add_stored(caller.workspace_id, 1)
        if self._job_delay_s:
            await self._index([result])
        elif wait_s > 0:
            await self._wait_until_indexed([result.memory], wait_s)
        else:
            return result
        return (await self._reload(caller.workspace_id, [result]))[0]

    async def store_many(self, caller: Caller, drafts: Sequence[Draft], *, wait_s: float = 0.0) -> list[RememberOutcome]:
        """
        Store *drafts* in one transaction. Return one result or error per draft, in their order.

        With *wait_s*, return when all of them are indexed or that time is over.

        Raises:
            BacklogFull, MemoriesFull, StorageFull: There is no room for all drafts; none is stored.
        """
        open_sessions = await self._find_open_sessions(caller, drafts)
        built = [self._try_build(caller, draft, open_sessions) for draft in drafts]
        await self._capacity.admit(caller.workspace_id, len(drafts))

        memories = [memory for memory in built if isinstance(memory, Memory)]
        # A batch has the only writer of SQLite for long, and the memories of other workspaces wait for it.
        async with self._shares.take(caller.workspace_id, is_exclusive=self._db.dialect == "sqlite"):
            storing = self._write([_prepare(caller, memory, dedupe=draft.dedupe) for memory, draft in zip(built, drafts, strict=True)])
            if memories and not self._job_delay_s:
                storing = self._indexer.index_words_during(memories, storing, stored_ids=_stored_ids)
            outcomes = await storing
        results = [outcome for outcome in outcomes if isinstance(outcome, RememberResult)]
        self._capacity.add_stored(caller.workspace_id, sum(not result.is_duplicate for result in results))
        if self._job_delay_s:
            await self._index(results)
        elif wait_s > 0 and results:
            await self._wait_until_indexed([result.memory for result in results], wait_s)
        else:
            return outcomes
        current = {result.memory.id: result.memory for result in await self._reload(caller.workspace_id, results)}
        return [
            replace(outcome, memory=current[outcome.memory.id]) if isinstance(outcome, RememberResult) else outcome for outcome in outcomes
        ]

    async def _find_open_sessions(self, caller: Caller, drafts: Sequence[Draft]) -> frozenset[str]:
        """Return the open sessions that *drafts* without an expiry name; their memories live until the session ends."""
        if self._sessions is None:
            return frozenset()
        session_ids = {draft.session_id for draft in drafts if draft.memory_scope is MemoryScope.SESSION and draft.expires_in is None}
        return frozenset(
            [session for session in session_ids if session is not None and await self._sessions.is_open(caller.workspace_id, session)]
        )

    def _build_memory(self, caller: Caller, draft: Draft, open_sessions: frozenset[str]) -> Memory:
        """Return the memory of *draft*, with its defaults, if *caller* may store it."""
        now = self._clock()
        lifetime = None if draft.expires_in is None else hours_delta(draft.expires_in)
        if lifetime is None and draft.memory_scope is MemoryScope.SESSION and draft.session_id not in open_sessions:
            lifetime = _SESSION_TTL
        values = read_fields(draft, _DRAFTED_FIELDS)
        values["tags"] = normalize_tags(draft.tags)
        values["agent_id"] = draft.agent_id if draft.agent_id is not None else caller.agent_id
        author = Author.from_caller(caller, agent_id=draft.agent_id, session_id=draft.session_id)
        memory = Memory(
            id=self._ids(),
            workspace_id=caller.workspace_id,
            base_confidence=draft.confidence,
            expires_at=None if lifetime is None else now + lifetime,
            content_at=now,
            created_at=now,
            updated_at=now,
            created_by=author,
            updated_by=author,
            **values,
        )
        require_owner(memory)
        require_can_write(caller, memory, at=now)
        return memory

    def _try_build(self, caller: Caller, draft: Draft, open_sessions: frozenset[str]) -> Memory | RookeryError:
        try:
            return self._build_memory(caller, draft, open_sessions)
        except RookeryError as error:
            return error

    async def _store_one(self, prepared: _PreparedMemory) -> RememberResult:
        # PostgreSQL writes concurrently. SQLite has a single writer, so waiting memories are stored in one transaction.
        outcome = await self._batcher.run(prepared) if self._db.dialect == "sqlite" else (await self._write([prepared]))[0]
        if isinstance(outcome, RookeryError):
            raise outcome
        return outcome

    async def _write(self, prepared: Sequence[_PreparedMemory]) -> list[RememberOutcome]:
        return await self._db.write(lambda tx: self._store_all(tx, prepared))

    def _store_all(self, tx: Tx, prepared: Sequence[_PreparedMemory]) -> list[RememberOutcome]:
        outcomes, new = list[RememberOutcome](), dict[str, list[records.NewMemory]]()
        stored_fingerprints = _find_stored_fingerprints(tx, prepared)
        for caller, item, dedupe, _ in prepared:
            if isinstance(item, RookeryError):
                outcomes.append(item)
                continue
            if new and (dedupe or item.memory.supersedes_id is not None):
                self._add(tx, new)  # this memory may refer to the ones before it
                stored_fingerprints |= new.keys()
                new = {}
            try:
                may_exist = dedupe or item.fingerprint in stored_fingerprints
                result = self._decide(tx, caller, item, dedupe=dedupe, may_exist=may_exist)
            except (ValidationFailed, AlreadySuperseded) as error:
                # Nothing was written for this memory yet, so the transaction continues with the others.
                outcomes.append(error)
                continue
            if not result.is_duplicate:
                same_memories = new.setdefault(item.fingerprint, [])
                if same_memories:
                    duplicates = (*result.duplicates, *(other.memory.id for other in same_memories))
                    result = replace(result, duplicates=duplicates[: records.MAX_DUPLICATES])
                same_memories.append(item)
            outcomes.append(result)
        self._add(tx, new)
        for item, outcome in zip(prepared, outcomes, strict=True):
            if item.on_stored is not None:
                item.on_stored(tx, outcome)
        return outcomes

    def _decide(self, tx: Tx, caller: Caller, new: records.NewMemory, *, dedupe: bool, may_exist: bool) -> RememberResult:
        """
        Return the result of a memory, and delete the one that it replaces. If the result is no duplicate, the memory is yet to be added.

        Args:
            may_exist: The store may have a memory with the same fingerprint.
        """
        memory = new.memory
        now = memory.created_at
        superseded = None if memory.supersedes_id is None else self._lock_superseded(tx, caller, memory.supersedes_id, at=now)
        if dedupe:
            records.lock_fingerprint(tx, new.fingerprint)
        duplicate_ids = records.find_duplicates(tx, memory.workspace_id, new.fingerprint, at=now) if may_exist else []
        same_ids = [memory_id for memory_id in duplicate_ids if memory_id != memory.supersedes_id]
        existing = MEMORIES.find(tx, memory.workspace_id, id=same_ids[0]) if dedupe and same_ids else None
        if superseded is not None:
            self._replace(tx, superseded, by=memory if existing is None else existing, at=now)
        if existing is not None:
            return RememberResult(memory=existing, duplicates=tuple(same_ids[1:]), is_duplicate=True)
        return RememberResult(memory=memory, duplicates=tuple(same_ids))

    def _add(self, tx: Tx, new: Mapping[str, Sequence[records.NewMemory]]) -> None:
        """Add memories, grouped by fingerprint, enqueue their jobs, and publish their events."""
        added = [item for same_memories in new.values() for item in same_memories]
        records.add_prepared(tx, added)
        jobs = [(memory.workspace_id, {"memory_id": memory.id}) for memory, _ in added]
        self._jobs.enqueue_many(tx, EMBED_JOB, jobs, delay_s=self._job_delay_s)
        for memory, _ in added:
            self._bus.publish_on_commit(tx, MemoryStored(workspace_id=memory.workspace_id, memory=memory, at=memory.created_at))

    def _lock_superseded(self, tx: Tx, caller: Caller, memory_id: str, *, at: datetime) -> Memory:
        memory = MEMORIES.find(tx, caller.workspace_id, id=memory_id, lock=True)
        if memory is not None and can_read(caller, memory, at=at):
            return memory
        tombstone = TOMBSTONES.find(tx, caller.workspace_id, id=memory_id)
        head_id = None if tombstone is None else records.find_head(tx, tombstone)
        head = None if head_id is None else MEMORIES.find(tx, caller.workspace_id, id=head_id)
        if head is not None and can_read(caller, head, at=at):
            raise AlreadySuperseded(memory_id, head.id)
        raise ValidationFailed({"supersedes_id": [f"the memory {memory_id!r} was not found; send the id of an existing memory"]})

    def _replace(self, tx: Tx, old: Memory, *, by: Memory, at: datetime) -> None:
        records.delete_memory(tx, old, at=at, superseded_by=by.id)
        self._jobs.enqueue(tx, DELETE_JOB, workspace_id=old.workspace_id, payload={"memory_id": old.id})
        event = MemorySuperseded(workspace_id=old.workspace_id, memory_id=old.id, superseded_by=by.id, at=at)
        self._bus.publish_on_commit(tx, event)

    async def _index(self, results: Sequence[RememberResult]) -> None:
        try:
            await self._indexer.index([result.memory for result in results if not result.is_duplicate])
        except OUTAGES:
            return  # the record is stored, and its job retries

    async def _wait_until_indexed(self, memories: Sequence[Memory], wait_s: float) -> None:
        """Return when *memories*, all of one workspace, are indexed by any process, or when *wait_s* is over."""
        workspace_id, pending_ids = memories[0].workspace_id, [memory.id for memory in memories]
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + wait_s, _MIN_POLL_INTERVAL_S
        while (left_s := deadline - loop.time()) > 0:
            pending_ids = await self._db.lookup(lambda tx, ids=pending_ids: records.list_unindexed(tx, workspace_id, ids))
            if not pending_ids:
                return
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _MAX_POLL_INTERVAL_S)

    async def _reload(self, workspace_id: int, results: Sequence[RememberResult]) -> list[RememberResult]:
        """Return *results* with the current records. A memory deleted meanwhile is returned as it was."""
        ids = [result.memory.id for result in results]
        memories_by_id = {memory.id: memory for memory in await self._db.lookup(lambda tx: records.get_memories(tx, workspace_id, ids))}
        return [replace(result, memory=memories_by_id.get(result.memory.id, result.memory)) for result in results]


def _find_stored_fingerprints(tx: Tx, prepared: Sequence[_PreparedMemory]) -> set[str]:
    """Return the fingerprints of new memories that the store has. One memory is looked up by itself."""
    new = [item.memory for item in prepared if isinstance(item.memory, records.NewMemory)]
    if len(new) == 1:
        return {new[0].fingerprint}
    by_workspace = dict[int, list[str]]()
    for memory, row_fingerprint in ((item.memory, item.fingerprint) for item in new):
        by_workspace.setdefault(memory.workspace_id, []).append(row_fingerprint)
    return {match for workspace_id, group in by_workspace.items() for match in records.list_fingerprints(tx, workspace_id, group)}


def _stored_ids(outcomes: Sequence[RememberOutcome]) -> set[str]:
    return {outcome.memory.id for outcome in outcomes if isinstance(outcome, RememberResult) and not outcome.is_duplicate}
