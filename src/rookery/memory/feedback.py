"""Feedback on a recall: what was used gains confidence, what was ignored loses some (spec 4.3, D-47)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import AGAIN, EMBED
from rookery.memory.journal import Journal
from rookery.memory.models import Memory
from rookery.memory.past import Judged, PastRecall, Verdict, row_of
from rookery.memory.ranking import judged
from rookery.memory.reach import reaches
from rookery.memory.store import feedback, records, training


class Feedback:
    """Takes callers' word on what a recall returned."""

    def __init__(self, *, db: Database, jobs: Jobs, journal: Journal, clock: Clock) -> None:
        self._db = db
        self._jobs = jobs
        self._journal = journal
        self._clock = clock

    async def give(self, caller: Caller, recall_id: str, *, used: Sequence[str], ignored: Sequence[str]) -> Judged:
        """
        Change the confidence of memories that a recall of the workspace returned, in one transaction.

        A memory counts once a recall, and once a day for one key: what comes again changes nothing. One that is gone by now,
        or archived, is passed over.

        Raises:
            NotFound: There is no such recall of the last 30 days.
            ValidationFailed: An id that the recall did not return (to this caller), or that is in both lists.
        """
        recall = await self._journal.find(caller.workspace_id, recall_id)
        if recall is None:
            raise NotFound("recall", recall_id)
        _must_be_of(recall, used, ignored)
        verdicts = {**dict.fromkeys(used, Verdict.USED), **dict.fromkeys(ignored, Verdict.IGNORED)}
        return await self._db.write(lambda tx: self._write(tx, caller, recall, verdicts))

    def _write(self, tx: Tx, caller: Caller, recall: PastRecall, verdicts: dict[str, Verdict]) -> Judged:
        now = self._clock()
        is_taught = recall.workspace_id in training.among(tx, {recall.workspace_id})
        counted: dict[str, Verdict] = {}
        memories = list[Memory]()
        # By id, so that two transactions that hold several rows each never wait for one another in a circle.
        for memory_id in sorted(verdicts):
            memory = records.locked(tx, caller.workspace_id, memory_id)
            if memory is None or memory.archived_at is not None or not reaches(caller, memory, at=now):
                continue
            verdict = verdicts[memory_id]
            # Also what does not count for confidence today: another question of the same memory is another lesson (D-57).
            if is_taught and (row := row_of(recall, memory_id, verdict, at=now)):
                training.add(tx, row)
            if feedback.add(tx, recall, memory_id, verdict, key_id=caller.key_id, at=now):
                counted[memory_id] = verdict
                memory = self._changed(tx, memory, verdict)
            memories.append(memory)
        return Judged(
            recall_id=recall.id,
            used=tuple(each for each, verdict in counted.items() if verdict is Verdict.USED),
            ignored=tuple(each for each, verdict in counted.items() if verdict is Verdict.IGNORED),
            memories=tuple(memories),
        )

    def _changed(self, tx: Tx, was: Memory, verdict: Verdict) -> Memory:
        confidence = judged(was.confidence, base=was.base_confidence, is_used=verdict is Verdict.USED)
        if confidence == was.confidence:
            return was
        # updated_at stays (D-45): nothing that was said changed, so nothing is stale. Yet the indexes filter by confidence.
        changed = replace(was, confidence=confidence)
        records.change(tx, was, changed)
        if was.indexed_at is not None:
            self._jobs.enqueue(tx, EMBED, workspace_id=was.workspace_id, payload={"memory_id": was.id, AGAIN: True})
        return changed


def _must_be_of(recall: PastRecall, used: Sequence[str], ignored: Sequence[str]) -> None:
    errors: dict[str, list[str]] = {}
    both = set(used) & set(ignored)
    for name, ids in (("used", used), ("ignored", ignored)):
        strange = [each for each in dict.fromkeys(ids) if each not in recall.memory_ids]
        errors[name] = [f"{each} was not returned by this recall" for each in strange]
    errors["ignored"] += [f"{each} is in used too; a memory is one or the other" for each in sorted(both)]
    found = {name: texts for name, texts in errors.items() if texts}
    if found:
        raise ValidationFailed(found)
