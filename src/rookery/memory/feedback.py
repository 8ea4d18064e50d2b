"""Feedback on a recall, and the buffer of recalls that it refers to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.ids import is_uuid
from rookery.kernel.jobs import JobQueue
from rookery.kernel.write_buffer import WriteBuffer
from rookery.memory.access_filter import can_read
from rookery.memory.indexing import EMBED_JOB, FORCE_FIELD
from rookery.memory.models import Memory
from rookery.memory.ranking import adjust_confidence
from rookery.memory.recall_models import FeedbackResult, FeedbackVerdict, RecallRecord, build_example
from rookery.memory.store import feedback, recalls, records, training
from rookery.memory.store.tables import MEMORIES, RECALLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """A recorder of callers' feedback on the results of a recall."""

    db: Database
    jobs: JobQueue
    recalls: RecallBuffer
    clock: Clock

    async def record(self, caller: Caller, recall_id: str, *, used: Sequence[str], ignored: Sequence[str]) -> FeedbackResult:
        """
        Change the confidence of memories that a recall of the workspace returned, in one transaction.

        A memory counts once per recall, and once per day and key; repeated feedback changes nothing. Deleted and archived memories are
        skipped.

        Raises:
            NotFound: No recall with this id in the last 30 days.
            ValidationFailed: The recall did not return an id to this caller, or an id is in both lists.
        """
        recall = await self.recalls.find(caller.workspace_id, recall_id)
        if recall is None:
            raise NotFound("recall", recall_id)
        _require_recalled(recall, used, ignored)
        verdicts = {**dict.fromkeys(used, FeedbackVerdict.USED), **dict.fromkeys(ignored, FeedbackVerdict.IGNORED)}
        return await self.db.write(lambda tx: self._record(tx, caller, recall, verdicts))

    def _record(self, tx: Tx, caller: Caller, recall: RecallRecord, verdicts: dict[str, FeedbackVerdict]) -> FeedbackResult:
        now = self.clock()
        is_training = recall.workspace_id in training.filter_enabled(tx, {recall.workspace_id})
        counted: dict[str, FeedbackVerdict] = {}
        memories = list[Memory]()
        # Locked in the order of ids, so that two transactions cannot deadlock.
        for memory_id in sorted(verdicts):
            memory = MEMORIES.find(tx, caller.workspace_id, id=memory_id, lock=True)
            if memory is None or memory.archived_at is not None or not can_read(caller, memory, at=now):
                continue
            verdict = verdicts[memory_id]
            # Recorded also if it does not count for the confidence today: another query is another example.
            if is_training and (row := build_example(recall, memory_id, verdict, at=now)):
                training.add(tx, row)
            if feedback.add(tx, recall, memory_id, verdict, key_id=caller.key_id, at=now):
                counted[memory_id] = verdict
                memory = self._apply_verdict(tx, memory, verdict)
            memories.append(memory)
        return FeedbackResult(
            recall_id=recall.id,
            used=tuple(memory_id for memory_id, verdict in counted.items() if verdict is FeedbackVerdict.USED),
            ignored=tuple(memory_id for memory_id, verdict in counted.items() if verdict is FeedbackVerdict.IGNORED),
            memories=tuple(memories),
        )

    def _apply_verdict(self, tx: Tx, memory: Memory, verdict: FeedbackVerdict) -> Memory:
        confidence = adjust_confidence(memory.confidence, base=memory.base_confidence, is_used=verdict is FeedbackVerdict.USED)
        if confidence == memory.confidence:
            return memory
        # updated_at stays: the content did not change. The memory is indexed again because the indexes filter by confidence.
        changed_memory = replace(memory, confidence=confidence)
        records.update_memory(tx, memory, changed_memory)
        if memory.indexed_at is not None:
            self.jobs.enqueue(tx, EMBED_JOB, workspace_id=memory.workspace_id, payload={"memory_id": memory.id, FORCE_FIELD: True})
        return changed_memory


def _require_recalled(recall: RecallRecord, used: Sequence[str], ignored: Sequence[str]) -> None:
    errors: dict[str, list[str]] = {}
    in_both = set(used) & set(ignored)
    for name, ids in (("used", used), ("ignored", ignored)):
        unknown_ids = [memory_id for memory_id in dict.fromkeys(ids) if memory_id not in recall.memory_ids]
        errors[name] = [f"{memory_id} was not returned by this recall" for memory_id in unknown_ids]
    errors["ignored"] += [f"{memory_id} is in 'used' too; send each memory in one list only" for memory_id in sorted(in_both)]
    faults = {name: texts for name, texts in errors.items() if texts}
    if faults:
        raise ValidationFailed(faults)


_MAX_PENDING = 5_000
"""Maximum number of unwritten recalls; beyond it, the next recall waits for a write."""

_LOOKUP_RETRIES = 6
_LOOKUP_RETRY_DELAY_S = 0.2
_RECENT_MS = 60_000
"""Maximum age, by its id, of a recall that another process may not have written yet. It allows for wrong clocks."""


class RecallBuffer:
    """The unwritten recalls of this process, and the table of all recalls behind them."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._pending: dict[str, RecallRecord] = {}
        self._buffer = WriteBuffer[RecallRecord](self._write, name="memory.recalls")
        self.flush = self._buffer.flush

    async def add(self, recall: RecallRecord) -> None:
        """Add *recall* to the buffer. Wait for a write only if the buffer is full."""
        self._pending[recall.id] = recall
        self._buffer.add(recall)
        if len(self._buffer) > _MAX_PENDING:
            await self.flush()

    async def find(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        """
        Return a recall of the workspace.

        A recent unknown recall may belong to another process that has not written it yet. The lookup is therefore retried before it
        returns None.
        """
        pending = self._pending.get(recall_id)
        if pending is not None:
            return pending if pending.workspace_id == workspace_id else None
        record = await self._load(workspace_id, recall_id)
        for _ in range(_LOOKUP_RETRIES if _is_recent(recall_id) else 0):
            if record is not None:
                break
            await asyncio.sleep(_LOOKUP_RETRY_DELAY_S)
            record = await self._load(workspace_id, recall_id)
        return record

    async def _load(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        return await self._db.lookup(lambda tx: RECALLS.find(tx, workspace_id, id=recall_id))

    async def _write(self, batch: Sequence[RecallRecord]) -> None:
        await self._db.write(lambda tx: recalls.add(tx, batch))
        for record in batch:
            self._pending.pop(record.id, None)


def _is_recent(recall_id: str) -> bool:
    if not is_uuid(recall_id):
        return False
    created_ms = int(recall_id[:8] + recall_id[9:13], 16)
    return abs(time.time() * 1000 - created_ms) < _RECENT_MS
