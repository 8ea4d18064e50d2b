"""Which servers there are: built in, of the file that is watched, added by workspaces over HTTP (D-31)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import structlog

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.tools.models import Server
from rookery.tools.servers.servers_file import InvalidServersFile, ServersFile, read_servers_file

_log = structlog.stdlib.get_logger("rookery.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFileState:
    """How the file of servers does, for readiness and the log: *error* while the last edit could not be read."""

    path: str | None
    error: str | None
    warnings: tuple[str, ...]
    changed_at: float


class ServerRegistry:
    """
    Every server by its key; an entry that says what it said before stays the same object, so that its sessions live on.

    A broken edit of the file keeps what was read before it. Each of *listeners* is told, in the loop, what there was before a change.
    """

    def __init__(
        self,
        *,
        builtins: Sequence[Server] = (),
        path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self._builtins = {server.key: server for server in builtins}
        self._path = path
        self._environment = environment or {}
        self._clock = clock
        self._file_servers: dict[str, Server] = {}
        self._shared_servers: dict[str, Server] = dict(self._builtins)
        self._workspace_servers: dict[str, Server] = {}
        self._by_owner: dict[int, list[Server]] = {}
        self._servers: dict[str, Server] = dict(self._builtins)
        self.listeners: list[Callable[[Mapping[str, Server]], None]] = []
        self._stamp: tuple[int, int, int] | None = None
        self._state = ServersFileState(path=None if path is None else str(path), error=None, warnings=(), changed_at=0.0)

    @property
    def file_state(self) -> ServersFileState:
        """How the file does."""
        return self._state

    @property
    def servers(self) -> Mapping[str, Server]:
        """Every server by key: the built-in ones, those of the file in its order, those of workspaces."""
        return self._servers

    def find(self, server_id: str, caller: Caller) -> Server | None:
        """Return what *server_id* means to *caller*: a server of all, if it is for their workspace, before one of its own."""
        server = self._shared_servers.get(server_id)
        if server is not None and is_visible_to(caller, server):
            return server
        return self._workspace_servers.get(f"{caller.workspace_id}/{server_id}")

    def list_for(self, caller: Caller) -> list[Server]:
        """Return every server that `find` finds for *caller*: those of all, in the file's order, before their workspace's own."""
        ours = {server.id: server for server in self._shared_servers.values() if is_visible_to(caller, server)}
        return [*ours.values(), *(server for server in self._by_owner.get(caller.workspace_id, ()) if server.id not in ours)]

    def load(self) -> None:
        """Read the file for the first time."""
        self._stamp = self._get_file_stamp()
        self._set_file_servers(self._read_file())

    def reload_if_changed(self) -> bool:
        """Apply an edit of the file, if there was one; tell whether anything changed."""
        stamp = self._get_file_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self._servers
        self._set_file_servers(self._read_file())
        return self._servers is not before

    def set_workspace_servers(self, servers: Iterable[Server]) -> None:
        """Make *servers* all that workspaces have added."""
        self._workspace_servers = self._keep_unchanged(servers, self._workspace_servers)
        self._by_owner = {}
        for server in sorted(self._workspace_servers.values(), key=lambda each: each.id):
            self._by_owner.setdefault(server.owner or 0, []).append(server)
        self._rebuild()

    def _set_file_servers(self, found: ServersFile | None) -> None:
        if found is not None:
            self._file_servers = self._keep_unchanged(found.servers.values(), self._file_servers)
            self._rebuild()

    def _rebuild(self) -> None:
        before = self._servers
        self._shared_servers = {**self._builtins, **self._file_servers}
        self._servers = {**self._shared_servers, **self._workspace_servers}
        for listener in self.listeners:
            listener(before)

    def _keep_unchanged(self, servers: Iterable[Server], known: Mapping[str, Server]) -> dict[str, Server]:
        return {server.key: old if (old := known.get(server.key)) == server and old is not None else server for server in servers}

    def _get_file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def _read_file(self) -> ServersFile | None:
        """Return what the file says; None, and why in the state, while it cannot be read."""
        if self._path is None:
            return ServersFile()
        at = self._clock().timestamp()
        try:
            found = read_servers_file(self._path, self._environment)
        except InvalidServersFile as error:
            _log.error("tools.file_broken", path=str(self._path), error=str(error), kept="the servers read before")
            self._state = ServersFileState(path=str(self._path), error=str(error), warnings=self._state.warnings, changed_at=at)
            return None
        for warning in found.warnings:
            _log.warning("tools.file_warning", path=str(self._path), warning=warning)
        self._state = ServersFileState(path=str(self._path), error=None, warnings=found.warnings, changed_at=at)
        return found


def is_visible_to(caller: Caller, server: Server) -> bool:
    """Return whether the caller's workspace may see *server*."""
    if server.owner is not None:
        return server.owner == caller.workspace_id
    return server.workspaces is None or caller.public_workspace_id in server.workspaces


def is_server_allowed(caller: Caller, server_id: str) -> bool:
    """Return whether the key's own lists of servers and tools let it know a server of that id (D-23)."""
    if caller.servers is not None and server_id not in caller.servers:
        return False
    return caller.tools is None or any(fnmatchcase(server_id, glob.partition("/")[0]) for glob in caller.tools)
