"""What becomes of memories with an agent's session: given to it at its start, put away or promoted at its end (D-53, D-62)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.memory.agent_context import AgentContext
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.models import MemoryFilter, MemoryScope
from rookery.memory.records import archive_memory
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.store import session_memories

READ_SCOPE = "brain:read"

MAX_BOOT_MEMORIES = 20
"""So many memories a session begins with at most: they go into a context window beside the plan."""

MAX_PROMOTED = 2_000
_MIN_TIME_STEP = timedelta(microseconds=1)


class SessionMemories:
    """What agent work asks of memory; wiring brings the two together."""

    def __init__(self, *, jobs: JobQueue, bus: EventBus, context: AgentContext, serializer: MemorySerializer) -> None:
        self._jobs = jobs
        self._bus = bus
        self._context = context
        self._serializer = serializer

    async def boot(
        self, caller: Caller, *, agent_id: str, org: str | None, project: str | None, session_id: str | None
    ) -> Mapping[str, object] | None:
        """Return what an agent begins with, JSON-ready; None: *caller* may not read memories."""
        if not caller.has_scope(READ_SCOPE):
            return None
        filters = MemoryFilter(org=org, project=project, agent_id=agent_id, session_id=session_id)
        boot = await self._context.boot(caller, filters, limit=MAX_BOOT_MEMORIES)
        return self._serializer.serialize_boot(caller, boot).model_dump(mode="json")

    def find_unknown(self, tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of *ids* that are no memories of the session's own."""
        known = {memory.id for memory in session_memories.lock_by_ids(tx, workspace_id, session_id, ids)}
        return [each for each in ids if each not in known]

    def promote(
        self, tx: Tx, workspace_id: int, session_id: str, *, ids: Sequence[str] | None, org: str | None, project: str | None, at: datetime
    ) -> None:
        """
        Make session memories the project's, *ids* of them or all, and have them indexed; those without an org or project get these.

        Raises:
            ValidationFailed: All are more than can be moved at once.
        """
        if ids is None:
            chosen = session_memories.lock_live(tx, workspace_id, session_id, limit=MAX_PROMOTED + 1)
            if len(chosen) > MAX_PROMOTED:
                raise ValidationFailed({"promote": [f"this session has more than {MAX_PROMOTED:,} memories; name those worth keeping"]})
        else:
            chosen = session_memories.lock_by_ids(tx, workspace_id, session_id, ids)
        for memory in chosen:
            # Strictly later, as in `records.change`.
            now = replace(
                memory,
                memory_scope=MemoryScope.PROJECT,
                org=memory.org or org,
                project=memory.project or project,
                updated_at=max(at, memory.updated_at + _MIN_TIME_STEP),
            )
            session_memories.update_space(tx, now)
            self._jobs.enqueue(tx, EMBED_JOB, workspace_id=workspace_id, payload={"memory_id": memory.id})

    def archive(self, tx: Tx, workspace_id: int, session_id: str, *, at: datetime, limit: int) -> bool:
        """Archive at most *limit* of a session's own memories; tell whether none is left."""
        found = session_memories.lock_live(tx, workspace_id, session_id, limit=limit)
        for memory in found:
            archive_memory(tx, self._jobs, self._bus, memory, at=at)
        return len(found) < limit
