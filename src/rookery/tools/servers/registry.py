"""The registry of servers: built in, from the watched file, and added by workspaces over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from rookery.access.models import Caller
from rookery.kernel import globs
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.errors import NotInAllowList
from rookery.tools.models import Server
from rookery.tools.servers.servers_file import InvalidServersFile, ServersFile, read_servers_file

_log = structlog.stdlib.get_logger("rookery.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFileState:
    """The state of the servers file, for readiness and the log. *error* is set while the last edit cannot be read."""

    path: str | None
    error: str | None
    warnings: tuple[str, ...]
    changed_at: float


class ServerRegistry:
    """
    All servers by key. A server with an unchanged entry stays the same object, so that its sessions stay open.

    If an edit of the file is invalid, the servers read before stay. Each listener is called in the event loop with the servers
    before a change.
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
        return self._state

    @property
    def servers(self) -> Mapping[str, Server]:
        """All servers by key: built-in servers, those of the file in its order, those of workspaces."""
        return self._servers

    def find(self, server_id: str, caller: Caller) -> Server | None:
        """Return the server with this id that *caller* sees. Servers of the file take precedence over the workspace's own."""
        server = self._shared_servers.get(server_id)
        if server is not None and is_visible_to(caller, server):
            return server
        return self._workspace_servers.get(f"{caller.workspace_id}/{server_id}")

    def list_for(self, caller: Caller) -> list[Server]:
        """Return all servers that *caller* sees: those of all workspaces in the file's order, then the workspace's own."""
        shared = {server.id: server for server in self._shared_servers.values() if is_visible_to(caller, server)}
        return [*shared.values(), *(server for server in self._by_owner.get(caller.workspace_id, ()) if server.id not in shared)]

    def load(self) -> None:
        """Read the file at start-up."""
        self._stamp = self._get_file_stamp()
        self._set_file_servers(self._read_file())

    def reload_if_changed(self) -> bool:
        """Reload the file if it was edited. Return whether any server changed."""
        stamp = self._get_file_stamp()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self._servers
        self._set_file_servers(self._read_file())
        return self._servers is not before

    def set_workspace_servers(self, servers: Iterable[Server]) -> None:
        """Replace the servers added by workspaces."""
        self._workspace_servers = self._keep_unchanged(servers, self._workspace_servers)
        self._by_owner = {}
        for server in sorted(self._workspace_servers.values(), key=lambda server: server.id):
            self._by_owner.setdefault(server.owner or 0, []).append(server)
        self._rebuild()

    def _set_file_servers(self, servers_file: ServersFile | None) -> None:
        if servers_file is not None:
            self._file_servers = self._keep_unchanged(servers_file.servers.values(), self._file_servers)
            self._rebuild()

    def _rebuild(self) -> None:
        before = self._servers
        self._shared_servers = {**self._builtins, **self._file_servers}
        self._servers = {**self._shared_servers, **self._workspace_servers}
        for listener in self.listeners:
            listener(before)

    def _keep_unchanged(self, servers: Iterable[Server], old_servers: Mapping[str, Server]) -> dict[str, Server]:
        return {server.key: old if (old := old_servers.get(server.key)) == server and old is not None else server for server in servers}

    def _get_file_stamp(self) -> tuple[int, int, int] | None:
        try:
            stat = None if self._path is None else self._path.stat()
        except OSError:
            return None
        return None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def _read_file(self) -> ServersFile | None:
        """Return the content of the file. None: it cannot be read, and the state has the error."""
        if self._path is None:
            return ServersFile()
        at = self._clock().timestamp()
        try:
            servers_file = read_servers_file(self._path, self._environment)
        except InvalidServersFile as error:
            _log.error("tools.file_invalid", path=str(self._path), error=str(error), effect="the last valid version stays in use")
            self._state = ServersFileState(path=str(self._path), error=str(error), warnings=self._state.warnings, changed_at=at)
            return None
        for warning in servers_file.warnings:
            _log.warning("tools.file_warning", path=str(self._path), warning=warning)
        self._state = ServersFileState(path=str(self._path), error=None, warnings=servers_file.warnings, changed_at=at)
        return servers_file


def is_visible_to(caller: Caller, server: Server) -> bool:
    """Return whether the caller's workspace may see *server*."""
    if server.owner is not None:
        return server.owner == caller.workspace_id
    return server.workspaces is None or caller.public_workspace_id in server.workspaces


def require_server_allowed(caller: Caller, server_id: str) -> None:
    """
    Check the key's allow-lists for a server id.

    Raises:
        NotInAllowList: The list of servers has not this one, or that of tools has none of its tools.
    """
    if caller.servers is not None and server_id not in caller.servers:
        raise NotInAllowList("servers", server_id, f"This key may only use some servers; {server_id!r} is not among them.")
    if not is_server_allowed(caller, server_id):
        raise NotInAllowList("tools", server_id, f"This key may only use some tools; none of the server {server_id!r} is among them.")


def is_server_allowed(caller: Caller, server_id: str) -> bool:
    """Return whether the key's allow-lists of servers and tools permit this server id."""
    if caller.servers is not None and server_id not in caller.servers:
        return False
    return caller.tools is None or any(globs.matches(server_id, glob.partition("/")[0]) for glob in caller.tools)
