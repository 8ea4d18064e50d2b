"""The audit entries of servers.json: who added, changed or removed its servers, by a command or in an editor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.access.audit_log import PLATFORM_CHAIN, AuditLog, AuditSubject
from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.db import Database, Tx
from rookery.tools.servers.file_edits import read_entries
from rookery.tools.servers.servers_file import InvalidServersFile

_ACTION = "servers_file.changed"
_MAX_LISTED = 200


@dataclass(slots=True)
class ServersFileAudit:
    """
    A recorder of the changes of the servers file at *path*.

    The last entry has the time of the file's last change. A process that finds another time adds an entry. An edit is therefore recorded
    once, also if no server ran. Entries have the ids of servers and nothing else of the file, which may contain secrets.
    """

    db: Database
    audit: AuditLog
    path: Path | None
    _recorded: str | None = None

    async def run_periodic(self) -> None:
        """Record a change that no command has recorded."""
        state = None if self.path is None else _read_state(self.path)
        if state is not None and state["changed"] != self._recorded:
            await self.db.write(lambda tx: record_change(self.audit, tx, SYSTEM_ACTOR, state))
            self._recorded = str(state["changed"])


def record_file(audit: AuditLog, tx: Tx, by: Actor, path: Path) -> None:
    """Record that *by* changed the servers file at *path*."""
    state = _read_state(path)
    if state is not None:
        record_change(audit, tx, by, state)


def record_change(audit: AuditLog, tx: Tx, by: Actor, state: Mapping[str, object]) -> None:
    """Add an entry, unless the last one has this *state*. The first file has one only if it has servers."""
    last = audit.lock_last(tx, PLATFORM_CHAIN, _ACTION)
    before = None if last is None or last.after is None else last.after
    if before is None and not state["servers"]:
        return
    if before is None or before.get("changed") != state["changed"]:
        old = {"changed": None, "servers": list[str]()} if before is None else before
        subject = AuditSubject(kind="servers_file", id="servers.json", name="servers.json")
        audit.record(tx, by, PLATFORM_CHAIN, _ACTION, subject, before=old, after=state)


def _read_state(path: Path) -> Mapping[str, object] | None:
    """Return the time of the last change and the ids of the servers. None if the file is missing or invalid."""
    try:
        stat, entries = path.stat(), read_entries(path)
    except (OSError, InvalidServersFile):
        return None
    return {"changed": f"{stat.st_mtime_ns}", "servers": sorted(entries)[:_MAX_LISTED]}
