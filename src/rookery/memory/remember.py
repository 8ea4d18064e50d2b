"""Remember: the record, its job and what it supersedes, in one transaction; indexing comes after (D-40, D-41, D-51)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import COMPLETION, Completion, Database, Tx
from rookery.kernel.errors import OUTAGES, RookeryError, ValidationFailed
from rookery.kernel.events import Bus, MemoryStored, MemorySuperseded
from rookery.kernel.ids import Ids
from rookery.kernel.jobs import Jobs
from rookery.memory.capacity import Capacity
from rookery.memory.errors import AlreadySuperseded
from rookery.memory.indexing import DELETE, EMBED, Indexer
from rookery.memory.models import Draft, Memory, MemoryScope, Remembered
from rookery.memory.ports import OpenSessions
from rookery.memory.reach import must_write, reaches
from rookery.memory.records import hours, must_own_up, normal
from rookery.memory.store import records
from rookery.memory.store.rows import fingerprint
from rookery.memory.together import Together

_SESSION_LIFE = timedelta(days=7)
"""D-53: of a session memory that says nothing else."""

_JOB_AFTER_S = 10.0
"""When indexing comes before the answer, its job is only there for when that fails."""

_FIRST_LOOK_S = 0.005
_LAST_LOOK_S = 0.05

Outcome = Remembered | RookeryError


class _Drawn(NamedTuple):
    """What is to be stored, or why that is refused."""

    caller: Caller
    memory: Memory | RookeryError
    dedupe: bool
    complete: Completion | None = None
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
        jobs: Jobs,
        indexer: Indexer,
        capacity: Capacity,
        bus: Bus,
        clock: Clock,
        ids: Ids,
        index_first: bool = False,
        sessions: OpenSessions | None = None,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._capacity = capacity
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._job_after_s = _JOB_AFTER_S if index_first else 0.0
        self._sessions = sessions
        self._together = Together[_Drawn, Outcome](self._write)

    async def one(self, caller: Caller, draft: Draft, *, wait_s: float = 0.0) -> Remembered:
        """
        Store *draft*; with *wait_s*, answer when it is indexed or that time is over.

        Raises:
            ValidationFailed: Its scope lacks its owner, or supersedes_id names nothing that *caller* can see.
            PermissionDenied: It is for another agent, org or project than the key's.
            AlreadySuperseded: Somebody replaced the same memory first.
            BacklogFull, MemoriesFull, StorageFull: There is no room (D-17).
        """
        memory = self._draw(caller, draft, await self._lasting(caller, [draft]))
        await self._capacity.admit(caller.workspace_id, 1)
        storing = self._alone(_Drawn(caller, memory, draft.dedupe, COMPLETION.get()))
        if self._job_after_s:
            done = await storing
        else:
            done = await self._indexer.offered([memory], storing, stored=lambda done: () if done.is_duplicate else (memory.id,))
        if not done.is_duplicate:
            self._capacity.accepted(caller.workspace_id, 1)
        if self._job_after_s:
            await self._index([done])
        elif wait_s > 0:
            await self._wait([done.memory], wait_s)
        else:
            return done
        return (await self._fresh(caller.workspace_id, [done]))[0]

    async def many(self, caller: Caller, drafts: Sequence[Draft], *, wait_s: float = 0.0) -> list[Outcome]:
        """
        Store *drafts* in one transaction and return for each what came of it, or why it was refused, in their order.

        With *wait_s*, return when all of them are indexed or that time is over.

        Raises:
            BacklogFull, MemoriesFull, StorageFull: There is no room for all of them; none is stored.
        """
        lasting = await self._lasting(caller, drafts)
        drawn = [self._tried(caller, draft, lasting) for draft in drafts]
        await self._capacity.admit(caller.workspace_id, len(drafts))

        memories = [each for each in drawn if isinstance(each, Memory)]
        storing = self._write([_Drawn(caller, each, draft.dedupe) for each, draft in zip(drawn, drafts, strict=True)])
        outcomes = await (self._indexer.offered(memories, storing, stored=_stored) if memories and not self._job_after_s else storing)
        done = [each for each in outcomes if isinstance(each, Remembered)]
        self._capacity.accepted(caller.workspace_id, sum(not each.is_duplicate for each in done))
        if self._job_after_s:
            await self._index(done)
        elif wait_s > 0 and done:
            await self._wait([each.memory for each in done], wait_s)
        else:
            return outcomes
        fresh = {each.memory.id: each for each in await self._fresh(caller.workspace_id, done)}
        return [replace(each, memory=fresh[each.memory.id].memory) if isinstance(each, Remembered) else each for each in outcomes]

    async def _lasting(self, caller: Caller, drafts: Sequence[Draft]) -> frozenset[str]:
        """Return those sessions that *drafts* name without an end of their own, and that are open: their end is the memories' (D-53)."""
        if self._sessions is None:
            return frozenset()
        asked = {each.session_id for each in drafts if each.memory_scope is MemoryScope.SESSION and each.expires_in_h is None}
        return frozenset([each for each in asked if each is not None and await self._sessions.is_open(caller.workspace_id, each)])

    def _draw(self, caller: Caller, draft: Draft, lasting: frozenset[str]) -> Memory:
        """Return the memory that *draft* asks for, with its defaults, if *caller* may store it."""
        now = self._clock()
        life = None if draft.expires_in_h is None else hours(draft.expires_in_h)
        if life is None and draft.memory_scope is MemoryScope.SESSION and draft.session_id not in lasting:
            life = _SESSION_LIFE
        memory = Memory(
            id=self._ids(),
            workspace_id=caller.workspace_id,
            org=draft.org,
            project=draft.project,
            agent_id=draft.agent_id if draft.agent_id is not None else caller.agent_id,
            session_id=draft.session_id,
            memory_scope=draft.memory_scope,
            type=draft.type,
            tags=normal(draft.tags),
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
        must_own_up(memory)
        must_write(caller, memory, at=now)
        return memory

    def _tried(self, caller: Caller, draft: Draft, lasting: frozenset[str]) -> Memory | RookeryError:
        try:
            return self._draw(caller, draft, lasting)
        except RookeryError as error:
            return error

    async def _alone(self, drawn: _Drawn) -> Remembered:
        # PostgreSQL writes for many at a time; SQLite one after the other, so that what waits anyway may as well go together.
        outcome = await self._together.do(drawn) if self._db.dialect == "sqlite" else (await self._write([drawn]))[0]
        if isinstance(outcome, RookeryError):
            raise outcome
        return outcome

    async def _write(self, all_drawn: Sequence[_Drawn]) -> list[Outcome]:
        return await self._db.write(lambda tx: self._store_all(tx, all_drawn))

    def _store_all(self, tx: Tx, all_drawn: Sequence[_Drawn]) -> list[Outcome]:
        outcomes, new = list[Outcome](), dict[str, list[Memory]]()
        for caller, memory, dedupe, _ in all_drawn:
            if isinstance(memory, RookeryError):
                outcomes.append(memory)
                continue
            if new and (dedupe or memory.supersedes_id is not None):
                self._add(tx, new)  # for it may look at those before it
                new = {}
            try:
                mark, done = self._store(tx, caller, memory, dedupe=dedupe)
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
        for drawn, outcome in zip(all_drawn, outcomes, strict=True):
            if drawn.complete is not None:
                drawn.complete(tx, outcome)
        return outcomes

    def _store(self, tx: Tx, caller: Caller, memory: Memory, *, dedupe: bool) -> tuple[str, Remembered]:
        """Decide what comes of *memory*, and bury what it replaces; it is still to be added unless it is a duplicate."""
        now = memory.created_at
        superseded = None if memory.supersedes_id is None else self._superseded(tx, caller, memory.supersedes_id, at=now)
        mark = fingerprint(memory)
        if dedupe:
            records.alone(tx, mark)
        same = [each for each in records.duplicates(tx, memory.workspace_id, mark, at=now) if each != memory.supersedes_id]
        kept = records.by_id(tx, memory.workspace_id, same[0]) if dedupe and same else None
        if superseded is not None:
            self._replace(tx, superseded, by=memory if kept is None else kept, at=now)
        if kept is not None:
            return mark, Remembered(memory=kept, duplicates=tuple(same[1:]), is_duplicate=True)
        return mark, Remembered(memory=memory, duplicates=tuple(same))

    def _add(self, tx: Tx, new: Mapping[str, Sequence[Memory]]) -> None:
        """Add memories, given by their fingerprints, with their jobs, and announce them."""
        memories = [memory for same in new.values() for memory in same]
        records.add(tx, *memories)
        wanted = [(memory.workspace_id, {"memory_id": memory.id}) for memory in memories]
        self._jobs.enqueue_all(tx, EMBED, wanted, delay_s=self._job_after_s)
        for memory in memories:
            self._bus.announce(tx, MemoryStored(workspace_id=memory.workspace_id, memory=memory, at=memory.created_at))

    def _superseded(self, tx: Tx, caller: Caller, memory_id: str, *, at: datetime) -> Memory:
        """Return the memory to supersede, held until this transaction ends."""
        memory = records.locked(tx, caller.workspace_id, memory_id)
        if memory is not None and reaches(caller, memory, at=at):
            return memory
        grave = records.tombstone(tx, caller.workspace_id, memory_id)
        head_id = None if grave is None else records.head(tx, grave)
        head = None if head_id is None else records.by_id(tx, caller.workspace_id, head_id)
        if head is not None and reaches(caller, head, at=at):
            raise AlreadySuperseded(memory_id, head.id)
        raise ValidationFailed({"supersedes_id": [f"there is no memory {memory_id!r} to supersede"]})

    def _replace(self, tx: Tx, old: Memory, *, by: Memory, at: datetime) -> None:
        records.bury(tx, old, at=at, superseded_by=by.id)
        self._jobs.enqueue(tx, DELETE, workspace_id=old.workspace_id, payload={"memory_id": old.id})
        event = MemorySuperseded(workspace_id=old.workspace_id, memory_id=old.id, superseded_by=by.id, at=at)
        self._bus.announce(tx, event)

    async def _index(self, done: Sequence[Remembered]) -> None:
        try:
            await self._indexer.index([each.memory for each in done if not each.is_duplicate])
        except OUTAGES:
            return  # the record is kept, and its job tries again (D-51)

    async def _wait(self, memories: Sequence[Memory], wait_s: float) -> None:
        """Return when *memories*, all of one workspace, are indexed, by whichever process, or *wait_s* is over."""
        workspace_id, waiting = memories[0].workspace_id, [memory.id for memory in memories]
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + wait_s, _FIRST_LOOK_S
        while (left_s := deadline - loop.time()) > 0:
            waiting = await self._db.quick(lambda tx, ids=waiting: records.not_current(tx, workspace_id, ids))
            if not waiting:
                return
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LAST_LOOK_S)

    async def _fresh(self, workspace_id: int, done: Sequence[Remembered]) -> list[Remembered]:
        """Return *done* with their records as they are now; what was deleted meanwhile is as it was."""
        ids = [each.memory.id for each in done]
        found = {memory.id: memory for memory in await self._db.quick(lambda tx: records.by_ids(tx, workspace_id, ids))}
        return [replace(each, memory=found.get(each.memory.id, each.memory)) for each in done]


def _stored(outcomes: Sequence[Outcome]) -> set[str]:
    return {each.memory.id for each in outcomes if isinstance(each, Remembered) and not each.is_duplicate}
