"""
The audit entries of memory: what removes memories, what changes or reads out many of them, and what records their use.

`MemoryAction` lists them all. An entry has ids, places and numbers, and never a text of a memory. The change of one memory has no entry,
because the memory names its author. Nor has what its author arranged: a successor, an expiry, the end of a session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Actor, Caller
from rookery.kernel.db import Tx
from rookery.memory.batch_runs import RunReport
from rookery.memory.models import Memory, read_fields

OneMemoryAction = Literal["memory.archived", "memory.deleted", "memory.restored"]
"""The actions on one memory. Deleting several in one request adds an entry for each."""

RunAction = Literal[
    "memories.backfilled",
    "memories.cleaned",
    "memories.consolidated",
    "memories.exported",
    "memories.forgotten",
    "memories.imported",
    "memories.pruned",
]
"""The actions of commands on many memories. Each adds an entry before it begins, so that a killed one has it too, and one at its end."""

SettingAction = Literal[
    "memories.promoted",
    "recall_log.disabled",
    "recall_log.enabled",
    "training.deleted",
    "training.disabled",
    "training.enabled",
    "training.exported",
]
"""The other actions, each with one entry."""

MemoryAction = OneMemoryAction | RunAction | SettingAction

_PLACE_FIELDS = ("type", "org", "project", "agent_id", "session_id")
_SUBJECT = "memories"
_MAX_LISTED = 100
"""Items of a list of options in an entry, such as the ids that a command names."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of the transaction that is written at its end, after all other locks."""

    caller: Caller
    action: MemoryAction
    subject: AuditSubject
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAudit:
    """The writer of the audit entries of memory."""

    audit: AuditLog

    def record_memory(self, tx: Tx, caller: Caller, action: OneMemoryAction, memory: Memory) -> None:
        """Record, in the transaction of the change, that *caller* archived, restored or deleted *memory*."""
        place = {**read_fields(memory, _PLACE_FIELDS), "memory_scope": memory.memory_scope.value}
        subject = AuditSubject(kind="memory", id=memory.id, name=memory.type, environment=caller.environment)
        is_archived = memory.archived_at is not None
        before = {**place, "archived": is_archived}
        after = None if action == "memory.deleted" else {**place, "archived": action == "memory.archived"}
        tx.before_commit(self._write_entries, _Entry(caller, action, subject, before, after))

    def record_session(self, tx: Tx, caller: Caller, action: SettingAction, session_id: str, fields: Mapping[str, object]) -> None:
        """Record, in the transaction of the change, a change of many memories of a session."""
        subject = AuditSubject(kind="agent_session", id=session_id, name="", environment=caller.environment)
        tx.before_commit(self._write_entries, _Entry(caller, action, subject, None, fields))

    def record_setting(self, tx: Tx, by: Actor, workspace_id: int, action: SettingAction, fields: Mapping[str, object]) -> None:
        """Record an action of the operator on a workspace. Take all other locks before."""
        self.audit.record(tx, by, workspace_id, action, _build_subject(workspace_id), before=None, after=fields)

    async def run(
        self, by: Actor, workspace_id: int, action: RunAction, options: Mapping[str, object], work: Callable[[], Awaitable[RunReport]]
    ) -> RunReport:
        """
        Run *work* between two entries: one with *options*, and one with the numbers of the report.

        Args:
            workspace_id: 0: the chain of the platform, for a command on all workspaces.
            options: The options that select memories; those without a value are left out.
        """
        selection = {name: _shorten(value) for name, value in options.items() if value not in (None, False, ())}
        await self._record(by, workspace_id, action, {"state": "started", **selection})
        report = await work()
        state = "completed" if report.stopped is None else "stopped"
        counts = {name: count for name, count in report.counts.items() if count}
        await self._record(by, workspace_id, action, {"state": state, **selection, "total": report.total, "counts": counts})
        return report

    async def _record(self, by: Actor, workspace_id: int, action: RunAction, fields: Mapping[str, object]) -> None:
        await self.audit.record_alone(by, workspace_id, action, _build_subject(workspace_id), after=fields)

    def _write_entries(self, tx: Tx, entries: list[object]) -> None:
        for entry in entries:
            if isinstance(entry, _Entry):
                actor, workspace_id = Actor.from_caller(entry.caller), entry.caller.public_workspace_id
                self.audit.record(tx, actor, workspace_id, entry.action, entry.subject, before=entry.before, after=entry.after)


def _shorten(value: object) -> object:
    """Return a list of names or ids with at most `_MAX_LISTED` items, and other values as they are."""
    return list(cast("tuple[object, ...]", value))[:_MAX_LISTED] if isinstance(value, tuple) else value


def _build_subject(workspace_id: int) -> AuditSubject:
    return AuditSubject(kind=_SUBJECT, id=str(workspace_id), name=_SUBJECT)
