"""Permanent deletion of memories in any state: by id, or all of an agent, a session, an org or a project."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.memory.authorship import Author
from rookery.memory.batch_runs import BATCH_SIZE, SILENT, RunItem, RunObserver, RunReport
from rookery.memory.events import MemoryDeleted
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner, batch_reader
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.models import Memory
from rookery.memory.recall_models import RecallRecord
from rookery.memory.records import delete_memory, remove_from_primaries
from rookery.memory.statements import list_sentences
from rookery.memory.store import recalls
from rookery.memory.store.maintenance import DELETED_TEXT, MemorySelection
from rookery.memory.store.tables import FEEDBACK, MEMORIES

_MIN_SENTENCE_SPACES = 2
"""Spaces of a sentence that says something alone: "Yes." and "It works." are in many texts."""

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRequest:
    """
    The memories of a workspace to delete: those that match all criteria, including archived and expired ones.

    Attributes:
        ids: Only these; empty for all that match the other criteria.
        by: The author of the memories from which merged text is removed.
        erase_traces: Erase all data deleted so far from files, not only these memories. Without criteria, do only this.
    """

    workspace_id: int
    ids: tuple[str, ...] = ()
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    erase_traces: bool = False
    dry_run: bool = False
    by: Actor = SYSTEM_ACTOR

    @property
    def has_criteria(self) -> bool:
        """True if a criterion is given. All memories of a workspace can be deleted only with the workspace."""
        return bool(self.ids) or any(value is not None for value in (self.org, self.project, self.agent_id, self.session_id))

    @property
    def reason(self) -> str:
        """The reason that the report gives for each memory."""
        criteria = {"org": self.org, "project": self.project, "agent": self.agent_id, "session": self.session_id}
        criteria_text = ", ".join(f"{name} {value}" for name, value in criteria.items() if value is not None)
        return criteria_text or "selected by its id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgetting:
    """
    Deletion from every store, followed by erasure from their files. After an interruption, run the same command again.

    Text that was merged into another memory is removed from there. The indexes are updated at once, or by a job if an engine is down.
    """

    db: Database
    jobs: JobQueue
    indexer: Indexer
    bus: EventBus
    clock: Clock
    runner: BatchRunner
    erasure: Erasure

    async def run(self, request: ForgetRequest, *, observer: RunObserver = SILENT) -> RunReport:
        """Delete the memories, or list them in a dry run."""
        counts: Counter[str] = Counter({"deleted": 0})
        sentences = set[bytes]()

        async def work(batch: Sequence[Memory]) -> None:
            sentences.update(digest for memory in batch for digest in _digest_sentences(memory.content))
            forgotten: Sequence[tuple[str, str | None]] = [(memory.id, None) for memory in batch]
            if not request.dry_run:
                forgotten = await self.db.write(lambda tx: self._write(tx, batch, by=Author.from_actor(request.by)))
                # Removed at once, because no server may be running. If an engine is down, the jobs do it later.
                with contextlib.suppress(*OUTAGES):
                    await self.indexer.delete(request.workspace_id, [memory_id for memory_id, _ in forgotten])
            for memory_id, left_in in forgotten:
                counts["deleted"] += 1
                note = f"; its text was merged into {left_in} and changed there since, so review that memory" if left_in else ""
                observer.on_item(RunItem(id=memory_id, action="delete", why=request.reason + note))

        selection = MemorySelection(
            workspace_id=request.workspace_id,
            ids=request.ids or None,
            org=request.org,
            project=request.project,
            agent_id=request.agent_id,
            session_id=request.session_id,
        )

        async def erase() -> str | None:
            if request.erase_traces and not request.dry_run:
                await self.db.write(lambda tx: self.erasure.add_pending(tx, DELETED_TEXT))
            if request.dry_run:
                return None
            if not request.ids:
                names = ("org", "project", "agent_id", "session_id")
                criteria = {name: getattr(request, name) for name in names}
                await self.db.write(lambda tx: recalls.clear(tx, request.workspace_id, **criteria))
            if sentences:
                await self._clear_questions(request.workspace_id, sentences)
            return await self.erasure.run()

        batch_run = BatchRun(name=f"forget {request.workspace_id}", selection=selection)
        read = batch_reader(selection) if request.has_criteria else _read_nothing
        report = await self.runner.run(batch_run, read, work, observer=observer, counts=counts, after_all=erase)
        if request.ids:
            counts["absent"] = len(set(request.ids)) - report.successes
        return replace(report, total=report.total if request.has_criteria else 0, counts=dict(counts))

    async def _clear_questions(self, workspace_id: int, sentences: set[bytes]) -> None:
        """Clear the logged questions that repeat one of *sentences*, such as a prompt that said what to remember."""
        after: str | None = ""

        def clear_batch(tx: Tx, start: str) -> str | None:
            rows = recalls.list_with_query(tx, workspace_id, after=start, limit=BATCH_SIZE)
            repeating = [row.id for row in rows if any(not sentences.isdisjoint(_digest_sentences(text)) for text in _list_questions(row))]
            recalls.clear_ids(tx, workspace_id, repeating)
            return rows[-1].id if rows else None

        while after is not None:
            after = await self.db.write(lambda tx, start=after: clear_batch(tx, start))

    def _write(self, tx: Tx, batch: Sequence[Memory], *, by: Author) -> list[tuple[str, str | None]]:
        """Delete the memories. Return their ids, each with that of a memory in which its text remains."""
        now, forgotten = self.clock(), list[tuple[str, str | None]]()
        for candidate in batch:
            memory = MEMORIES.find(tx, candidate.workspace_id, id=candidate.id, lock=True)
            if memory is None:
                continue
            left_in = remove_from_primaries(tx, self.jobs, memory, by=by, at=now)
            FEEDBACK.delete(tx, memory.workspace_id, memory_id=memory.id)
            delete_memory(tx, self.jobs, self.bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
            self.erasure.add_pending(tx, DELETED_TEXT)
            forgotten.append((memory.id, left_in))
        return forgotten


def _read_nothing(_: Tx, __: str) -> Sequence[Memory]:
    """Return no memories."""
    return ()


def _digest_sentences(text: str) -> list[bytes]:
    """Return digests of the sentences of *text* that say something alone."""
    sentences = list_sentences(text)
    whole = [sentence for sentence in sentences if len(sentences) == 1 or sentence.count(" ") >= _MIN_SENTENCE_SPACES]
    return [blake2b(sentence.removesuffix("?").encode(), digest_size=_DIGEST_BYTES).digest() for sentence in whole]


def _list_questions(record: RecallRecord) -> list[str]:
    questions = [record.request.request.query] if record.request is not None else []
    return questions + ([record.query_record.query] if record.query_record is not None else [])
