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
from rookery.tools.servers.servers_file import FileBroken, ServersFile, read_file

_log = structlog.stdlib.get_logger("rookery.tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """How the file of servers does, for readiness and the log: *error* while the last edit could not be read."""

    path: str | None
    error: str | None
    warnings: tuple[str, ...]
    changed_at: float


class Roster:
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
        self._of_file: dict[str, Server] = {}
        self._of_all: dict[str, Server] = dict(self._builtins)
        self._owned: dict[str, Server] = {}
        self._by_owner: dict[int, list[Server]] = {}
        self._servers: dict[str, Server] = dict(self._builtins)
        self.listeners: list[Callable[[Mapping[str, Server]], None]] = []
        self._stamp: tuple[int, int, int] | None = None
        self._state = FileState(path=None if path is None else str(path), error=None, warnings=(), changed_at=0.0)

    @property
    def file_state(self) -> FileState:
        """How the file does."""
        return self._state

    @property
    def servers(self) -> Mapping[str, Server]:
        """Every server by key: the built-in ones, those of the file in its order, those of workspaces."""
        return self._servers

    def find(self, server_id: str, caller: Caller) -> Server | None:
        """Return what *server_id* means to *caller*: a server of all, if it is for their workspace, before one of its own."""
        server = self._of_all.get(server_id)
        if server is not None and is_for(caller, server):
            return server
        return self._owned.get(f"{caller.workspace_id}/{server_id}")

    def of(self, caller: Caller) -> list[Server]:
        """Return every server that `find` finds for *caller*: those of all, in the file's order, before their workspace's own."""
        ours = {server.id: server for server in self._of_all.values() if is_for(caller, server)}
        return [*ours.values(), *(server for server in self._by_owner.get(caller.workspace_id, ()) if server.id not in ours)]

    def read(self) -> None:
        """Read the file for the first time."""
        self._stamp = self._stamp_of_file()
        self._take_file(self._read_file())

    def keep_up(self) -> bool:
        """Apply an edit of the file, if there was one; tell whether anything changed."""
        stamp = self._stamp_of_file()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        before = self._servers
        self._take_file(self._read_file())
        return self._servers is not before

    def take_owned(self, servers: Iterable[Server]) -> None:
        """Make *servers* all that workspaces have added."""
        self._owned = self._kept(servers, self._owned)
        self._by_owner = {}
        for server in sorted(self._owned.values(), key=lambda each: each.id):
            self._by_owner.setdefault(server.owner or 0, []).append(server)
        self._put_together()

    def _take_file(self, found: ServersFile | None) -> None:
        if found is not None:
            self._of_file = self._kept(found.servers.values(), self._of_file)
            self._put_together()

    def _put_together(self) -> None:
        before = self._servers
        self._of_all = {**self._builtins, **self._of_file}
        self._servers = {**self._of_all, **self._owned}
        for listener in self.listeners:
            listener(before)

    def _kept(self, servers: Iterable[Server], known: Mapping[str, Server]) -> dict[str, Server]:
        return {server.key: old if (old := known.get(server.key)) == server and old is not None else server for server in servers}

    def _stamp_of_file(self) -> tuple[int, int, int] | None:
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
            found = read_file(self._path, self._environment)
        except FileBroken as error:
            _log.error("tools.file_broken", path=str(self._path), error=str(error), kept="the servers read before")
            self._state = FileState(path=str(self._path), error=str(error), warnings=self._state.warnings, changed_at=at)
            return None
        for warning in found.warnings:
            _log.warning("tools.file_warning", path=str(self._path), warning=warning)
        self._state = FileState(path=str(self._path), error=None, warnings=found.warnings, changed_at=at)
        return found


def is_for(caller: Caller, server: Server) -> bool:
    """Tell whether the caller's workspace may see *server*."""
    if server.owner is not None:
        return server.owner == caller.workspace_id
    return server.workspaces is None or caller.shown_workspace_id in server.workspaces


def is_reached(caller: Caller, server_id: str) -> bool:
    """Tell whether the key's own lists of servers and tools let it know a server of that id (D-23)."""
    if caller.servers is not None and server_id not in caller.servers:
        return False
    return caller.tools is None or any(fnmatchcase(server_id, glob.partition("/")[0]) for glob in caller.tools)
