"""Memories of agent sessions: loaded at the start of a session, archived or promoted at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.kernel.schema import ResponseModel
from rookery.memory.agent_context import AgentContext
from rookery.memory.authorship import Author
from rookery.memory.indexing import EMBED_JOB
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.models import BootMemories, MemoryFilter, MemoryScope
from rookery.memory.records import archive_memory, next_version
from rookery.memory.store import records
from rookery.memory.store.tables import MEMORIES

READ_SCOPE = "brain:read"

MAX_BOOT_MEMORIES = 20
"""Maximum memories that a session starts with. They share the context window with the plan."""

MAX_PROMOTED = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionMemories:
    """
    The memory operations that the agents domain uses.

    Attributes:
        serialize_boot: Returns memories as `GET /v1/brain/memories` answers them.
    """

    jobs: JobQueue
    bus: EventBus
    context: AgentContext
    serialize_boot: Callable[[Caller, BootMemories], ResponseModel]
    audit: MemoryAudit

    async def boot(
        self, caller: Caller, *, agent_id: str, org: str | None, project: str | None, session_id: str | None
    ) -> Mapping[str, object] | None:
        """Return the memories that an agent starts with, as JSON values. None if *caller* may not read memories."""
        if not caller.has_scope(READ_SCOPE):
            return None
        filters = MemoryFilter(org=org, project=project, agent_id=agent_id, session_id=session_id)
        boot = await self.context.boot(caller, filters, limit=MAX_BOOT_MEMORIES)
        return self.serialize_boot(caller, boot).model_dump(mode="json")

    def find_unknown(self, tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of *ids* that are not memories of the session."""
        existing_ids = {memory.id for memory in records.lock_by_ids(tx, workspace_id, session_id, ids)}
        return [memory_id for memory_id in ids if memory_id not in existing_ids]

    def promote(
        self,
        tx: Tx,
        caller: Caller,
        session_id: str,
        *,
        ids: Sequence[str] | None,
        org: str | None,
        project: str | None,
        at: datetime,
    ) -> None:
        """
        Move *ids* of the session's memories, or all of them, to scope `project`, and enqueue their indexing.

        Memories without an org or project get *org* and *project*.

        Raises:
            ValidationFailed: All memories are requested, and they are more than `MAX_PROMOTED`.
        """
        workspace_id, author = caller.workspace_id, Author.from_caller(caller, session_id=session_id)
        if ids is None:
            memories = records.lock_live(tx, workspace_id, session_id, limit=MAX_PROMOTED + 1)
            if len(memories) > MAX_PROMOTED:
                raise ValidationFailed(
                    {"promote": [f"this session has more than {MAX_PROMOTED:,} memories; send the ids of the memories to promote"]}
                )
        else:
            memories = records.lock_by_ids(tx, workspace_id, session_id, ids)
        if memories:
            fields = {"promoted": len(memories), "org": org, "project": project}
            self.audit.record_session(tx, caller, "memories.promoted", session_id, fields)
        for memory in memories:
            promoted = replace(memory, memory_scope=MemoryScope.PROJECT, org=memory.org or org, project=memory.project or project)
            MEMORIES.update(tx, next_version(memory, promoted, by=author, at=at))
            self.jobs.enqueue(tx, EMBED_JOB, workspace_id=workspace_id, payload={"memory_id": memory.id})

    def archive(self, tx: Tx, workspace_id: int, session_id: str, *, at: datetime, limit: int) -> bool:
        """Archive at most *limit* memories of a session. Return whether none is left."""
        memories = records.lock_live(tx, workspace_id, session_id, limit=limit)
        for memory in memories:
            archive_memory(tx, self.jobs, self.bus, memory, at=at)
        return len(memories) < limit
