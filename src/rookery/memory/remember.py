"""Remember: the record, its job and what it supersedes, in one transaction; indexing comes after (D-40, D-41, D-51)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import TRANSACTION_HOOK, Database, TransactionHook, Tx
from rookery.kernel.errors import OUTAGES, RookeryError, ValidationFailed
from rookery.kernel.events import EventBus, MemoryStored, MemorySuperseded
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.memory.access_filter import can_read, require_can_write
from rookery.memory.batcher import Batcher
from rookery.memory.capacity import Capacity
from rookery.memory.errors import AlreadySuperseded
from rookery.memory.indexing import DELETE_JOB, EMBED_JOB, Indexer
from rookery.memory.models import Draft, Memory, MemoryScope, RememberResult
from rookery.memory.ports import SessionLookup
from rookery.memory.records import hours_delta, normalize_tags, require_owner
from rookery.memory.store import records
from rookery.memory.store.rows import fingerprint

_SESSION_TTL = timedelta(days=7)
"""D-53: of a session memory that says nothing else."""

_JOB_DELAY_S = 10.0
"""When indexing comes before the answer, its job is only there for when that fails."""

_MIN_POLL_INTERVAL_S = 0.005
_MAX_POLL_INTERVAL_S = 0.05

RememberOutcome = RememberResult | RookeryError


class _PreparedMemory(NamedTuple):
    """What is to be stored, or why that is refused."""

    caller: Caller
    memory: Memory | RookeryError
    dedupe: bool
    on_stored: TransactionHook | None = None
    """Stores the response to a request with an Idempotency-Key, in the transaction that stores the memory."""


class Remember:
    """
    Stores what agents say, as they say it.

    Args:
        index_first: Index before the answer (`async_embedding` false).
        sessions: Those whose memories stay until they end (D-53); None: there are none.
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
        self._sessions = sessions
        self._batcher = Batcher[_PreparedMemory, RememberOutcome](self._write)

    async def store(self, caller: Caller, draft: Draft, *, wait_s: float = 0.0) -> RememberResult:
        """
        Store *draft*; with *wait_s*, answer when it is indexed or that time is over.

        Raises:
            ValidationFailed: Its scope lacks its owner, or supersedes_id names nothing that *caller* can see.
            PermissionDenied: It is for another agent, org or project than the key's.
            AlreadySuperseded: Somebody replaced the same memory first.
            BacklogFull, MemoriesFull, StorageFull: There is no room (D-17).
        """
        memory = self._build_memory(caller, draft, await self._find_open_sessions(caller, [draft]))
        await self._capacity.admit(caller.workspace_id, 1)
        storing = self._store_one(_PreparedMemory(caller, memory, draft.dedupe, TRANSACTION_HOOK.get()))
        if self._job_delay_s:
            done = await storing
        else:
            done = await self._indexer.index_words_during(
                [memory], storing, stored_ids=lambda done: () if done.is_duplicate else (memory.id,)
            )
        if not done.is_duplicate:
            self._capacity.add_stored(caller.workspace_id, 1)
        if self._job_delay_s:
            await self._index([done])
        elif wait_s > 0:
            await self._wait_until_indexed([done.memory], wait_s)
        else:
            return done
        return (await self._reload(caller.workspace_id, [done]))[0]

    async def store_many(self, caller: Caller, drafts: Sequence[Draft], *, wait_s: float = 0.0) -> list[RememberOutcome]:
        """
        Store *drafts* in one transaction and return for each what came of it, or why it was refused, in their order.

        With *wait_s*, return when all of them are indexed or that time is over.

        Raises:
            BacklogFull, MemoriesFull, StorageFull: There is no room for all of them; none is stored.
        """
        lasting = await self._find_open_sessions(caller, drafts)
        drawn = [self._try_build(caller, draft, lasting) for draft in drafts]
        await self._capacity.admit(caller.workspace_id, len(drafts))

        memories = [each for each in drawn if isinstance(each, Memory)]
        storing = self._write([_PreparedMemory(caller, each, draft.dedupe) for each, draft in zip(drawn, drafts, strict=True)])
        outcomes = await (
            self._indexer.index_words_during(memories, storing, stored_ids=_stored_ids) if memories and not self._job_delay_s else storing
        )
        done = [each for each in outcomes if isinstance(each, RememberResult)]
        self._capacity.add_stored(caller.workspace_id, sum(not each.is_duplicate for each in done))
        if self._job_delay_s:
            await self._index(done)
        elif wait_s > 0 and done:
            await self._wait_until_indexed([each.memory for each in done], wait_s)
        else:
            return outcomes
        fresh = {each.memory.id: each for each in await self._reload(caller.workspace_id, done)}
        return [replace(each, memory=fresh[each.memory.id].memory) if isinstance(each, RememberResult) else each for each in outcomes]

    async def _find_open_sessions(self, caller: Caller, drafts: Sequence[Draft]) -> frozenset[str]:
        """Return those sessions that *drafts* name without an end of their own, and that are open: their end is the memories' (D-53)."""
        if self._sessions is None:
            return frozenset()
        asked = {each.session_id for each in drafts if each.memory_scope is MemoryScope.SESSION and each.expires_in_h is None}
        return frozenset([each for each in asked if each is not None and await self._sessions.is_open(caller.workspace_id, each)])

    def _build_memory(self, caller: Caller, draft: Draft, open_sessions: frozenset[str]) -> Memory:
        """Return the memory that *draft* asks for, with its defaults, if *caller* may store it."""
        now = self._clock()
        life = None if draft.expires_in_h is None else hours_delta(draft.expires_in_h)
        if life is None and draft.memory_scope is MemoryScope.SESSION and draft.session_id not in open_sessions:
            life = _SESSION_TTL
        memory = Memory(
            id=self._ids(),
            workspace_id=caller.workspace_id,
            org=draft.org,
            project=draft.project,
            agent_id=draft.agent_id if draft.agent_id is not None else caller.agent_id,
            session_id=draft.session_id,
            memory_scope=draft.memory_scope,
            type=draft.type,
            tags=normalize_tags(draft.tags),
            metadata=draft.metadata,
            confidence=draft.confidence,
            base_confidence=draft.confidence,
            source=draft.source,
            content=draft.content,
            supersedes_id=draft.supersedes_id,
            expires_at=None if life is None else now + life,
            content_at=now,
            created_at=now,
            updated_at=now,
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
        # PostgreSQL writes for many at a time; SQLite one after the other, so that what waits anyway may as well go together.
        outcome = await self._batcher.run(prepared) if self._db.dialect == "sqlite" else (await self._write([prepared]))[0]
        if isinstance(outcome, RookeryError):
            raise outcome
        return outcome

    async def _write(self, prepared: Sequence[_PreparedMemory]) -> list[RememberOutcome]:
        return await self._db.write(lambda tx: self._store_all(tx, prepared))

    def _store_all(self, tx: Tx, prepared: Sequence[_PreparedMemory]) -> list[RememberOutcome]:
        outcomes, new = list[RememberOutcome](), dict[str, list[Memory]]()
        for caller, memory, dedupe, _ in prepared:
            if isinstance(memory, RookeryError):
                outcomes.append(memory)
                continue
            if new and (dedupe or memory.supersedes_id is not None):
                self._add(tx, new)  # for it may look at those before it
                new = {}
            try:
                mark, done = self._decide(tx, caller, memory, dedupe=dedupe)
            except (ValidationFailed, AlreadySuperseded) as error:
                # Raised before anything was written, so the transaction goes on with the others.
                outcomes.append(error)
                continue
            if not done.is_duplicate:
                same = new.setdefault(mark, [])
                done = replace(done, duplicates=(*done.duplicates, *(each.id for each in same))[: records.MAX_DUPLICATES]) if same else done
                same.append(memory)
            outcomes.append(done)
        self._add(tx, new)
        for drawn, outcome in zip(prepared, outcomes, strict=True):
            if drawn.on_stored is not None:
                drawn.on_stored(tx, outcome)
        return outcomes

    def _decide(self, tx: Tx, caller: Caller, memory: Memory, *, dedupe: bool) -> tuple[str, RememberResult]:
        """Decide what comes of *memory*, and bury what it replaces; it is still to be added unless it is a duplicate."""
        now = memory.created_at
        superseded = None if memory.supersedes_id is None else self._lock_superseded(tx, caller, memory.supersedes_id, at=now)
        mark = fingerprint(memory)
        if dedupe:
            records.lock_fingerprint(tx, mark)
        same = [each for each in records.find_duplicates(tx, memory.workspace_id, mark, at=now) if each != memory.supersedes_id]
        kept = records.get_memory(tx, memory.workspace_id, same[0]) if dedupe and same else None
        if superseded is not None:
            self._replace(tx, superseded, by=memory if kept is None else kept, at=now)
        if kept is not None:
            return mark, RememberResult(memory=kept, duplicates=tuple(same[1:]), is_duplicate=True)
        return mark, RememberResult(memory=memory, duplicates=tuple(same))

    def _add(self, tx: Tx, new: Mapping[str, Sequence[Memory]]) -> None:
        """Add memories, given by their fingerprints, with their jobs, and announce them."""
        memories = [memory for same in new.values() for memory in same]
        records.add(tx, *memories)
        wanted = [(memory.workspace_id, {"memory_id": memory.id}) for memory in memories]
        self._jobs.enqueue_many(tx, EMBED_JOB, wanted, delay_s=self._job_delay_s)
        for memory in memories:
            self._bus.publish_on_commit(tx, MemoryStored(workspace_id=memory.workspace_id, memory=memory, at=memory.created_at))

    def _lock_superseded(self, tx: Tx, caller: Caller, memory_id: str, *, at: datetime) -> Memory:
        """Return the memory to supersede, held until this transaction ends."""
        memory = records.lock_memory(tx, caller.workspace_id, memory_id)
        if memory is not None and can_read(caller, memory, at=at):
            return memory
        grave = records.get_tombstone(tx, caller.workspace_id, memory_id)
        head_id = None if grave is None else records.find_head(tx, grave)
        head = None if head_id is None else records.get_memory(tx, caller.workspace_id, head_id)
        if head is not None and can_read(caller, head, at=at):
            raise AlreadySuperseded(memory_id, head.id)
        raise ValidationFailed({"supersedes_id": [f"there is no memory {memory_id!r} to supersede"]})

    def _replace(self, tx: Tx, old: Memory, *, by: Memory, at: datetime) -> None:
        records.delete_memory(tx, old, at=at, superseded_by=by.id)
        self._jobs.enqueue(tx, DELETE_JOB, workspace_id=old.workspace_id, payload={"memory_id": old.id})
        event = MemorySuperseded(workspace_id=old.workspace_id, memory_id=old.id, superseded_by=by.id, at=at)
        self._bus.publish_on_commit(tx, event)

    async def _index(self, results: Sequence[RememberResult]) -> None:
        try:
            await self._indexer.index([each.memory for each in results if not each.is_duplicate])
        except OUTAGES:
            return  # the record is kept, and its job tries again (D-51)

    async def _wait_until_indexed(self, memories: Sequence[Memory], wait_s: float) -> None:
        """Return when *memories*, all of one workspace, are indexed, by whichever process, or *wait_s* is over."""
        workspace_id, waiting = memories[0].workspace_id, [memory.id for memory in memories]
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + wait_s, _MIN_POLL_INTERVAL_S
        while (left_s := deadline - loop.time()) > 0:
            waiting = await self._db.lookup(lambda tx, ids=waiting: records.list_unindexed(tx, workspace_id, ids))
            if not waiting:
                return
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _MAX_POLL_INTERVAL_S)

    async def _reload(self, workspace_id: int, results: Sequence[RememberResult]) -> list[RememberResult]:
        """Return *results* with their records as they are now; what was deleted meanwhile is as it was."""
        ids = [each.memory.id for each in results]
        found = {memory.id: memory for memory in await self._db.lookup(lambda tx: records.get_memories(tx, workspace_id, ids))}
        return [replace(each, memory=found.get(each.memory.id, each.memory)) for each in results]


def _stored_ids(outcomes: Sequence[RememberOutcome]) -> set[str]:
    return {each.memory.id for each in outcomes if isinstance(each, RememberResult) and not each.is_duplicate}
