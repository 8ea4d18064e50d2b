"""
Descriptions of what the callers of a server share: its sessions, and the state of known servers (D-32, D-34).

The known servers were run, or their source was read, in the versions that the comments name. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from rookery.tools.models import BuiltinTarget, CommandTarget, Server, SessionIsolation
from rookery.tools.program_names import find_program_word, to_package_name

_SHARING = {
    SessionIsolation.SHARED: "The keys of all workspaces share",
    SessionIsolation.PER_WORKSPACE: "All keys of the workspace share",
    SessionIsolation.PER_KEY: "Each key has",
    SessionIsolation.PER_SESSION: "Each agent session of a key (X-Session-ID) has",
}
_SEPARATE = frozenset({SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION})
_PROFILE_OPTIONS = ("--isolated", "--user-data-dir", "--userDataDir")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulServer:
    """
    A server that keeps state between calls.

    Attributes:
        names: The names of its packages and programs.
        state: What its callers share. The text follows "They share".
        place: Where the state is. Sessions of their own separate callers only if it is in the process.
        file_variable: The environment variable with the path of the file.
    """

    names: frozenset[str]
    state: str
    place: Literal["process", "file", "browser"]
    file_variable: str | None = None


_STATEFUL_SERVERS = (
    # server-memory 2026.8.31: every call reads the whole file, and a change replaces it.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-memory", "mcp-server-memory"}),
        state="one knowledge graph in the file MEMORY_FILE_PATH",
        place="file",
        file_variable="MEMORY_FILE_PATH",
    ),
    # server-sequential-thinking 2026.8.31: the thoughts of all callers are one list.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking"}),
        state="one history of thoughts",
        place="process",
    ),
    # server-everything 2026.8.31: resources that a tool creates are listed for all callers.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-everything", "mcp-server-everything"}),
        state="the resources that its tools create",
        place="process",
    ),
    # desktop-commander 0.2.52: all terminal sessions are in one table.
    StatefulServer(
        names=frozenset({"@wonderwhy-er/desktop-commander", "desktop-commander"}),
        state="its terminals and their processes",
        place="process",
    ),
    # @playwright/mcp 0.0.83 and chrome-devtools-mcp 1.11.0: one browser per process; a profile serves only one browser at a time.
    StatefulServer(
        names=frozenset({"@playwright/mcp", "playwright-mcp", "mcp-server-playwright", "chrome-devtools-mcp"}),
        state="one browser with its pages and logins",
        place="browser",
    ),
)


def find_stateful_server(server: Server) -> StatefulServer | None:
    """Return what is known of the program of *server*; None if it is not known to keep state."""
    if not isinstance(server.target, CommandTarget):
        return None
    name = to_package_name(find_program_word([server.target.command, *server.target.args]))
    return next((stateful for stateful in _STATEFUL_SERVERS if name in stateful.names), None)


def find_state_folder(server: Server) -> str | None:
    """Return the folder of the file in which a known server keeps its state; None if the entry does not name it."""
    stateful = find_stateful_server(server)
    if stateful is None or stateful.file_variable is None or not isinstance(server.target, CommandTarget):
        return None
    path = server.target.env.get(stateful.file_variable, "")
    return str(PurePath(path).parent) if PurePath(path).is_absolute() else None


def describe_sharing(server: Server) -> str:
    """Return who shares a session with *server*, and what they share if that is known."""
    if isinstance(server.target, BuiltinTarget):
        return "It runs inside Rookery. Each call has the rights of its own key."
    count = "a session of its own" if server.isolation in _SEPARATE else "one session"
    if server.replicas > 1:
        count = f"up to {server.replicas} sessions"
    sentences = [f"{_SHARING[server.isolation]} {count}."]
    stateful = find_stateful_server(server)
    if stateful is not None and server.isolation not in _SEPARATE:
        sentences.append(f"They share {stateful.state}.")
        sentences.append(
            'Set "isolation": "per_key" in its entry to separate keys.'
            if stateful.place == "process"
            else 'Set "isolation": "per_key" in its entry and add "--isolated" to its args to separate keys.'
            if stateful.place == "browser"
            else "`isolation` does not separate it; only another entry with another file does."
        )
    elif stateful is not None and stateful.place == "file":
        sentences.append(f"They all share {stateful.state}; only another entry with another file separates it.")
    return " ".join(sentences)


def describe_concurrency(server: Server) -> str:
    """Return how many calls run at once in one session."""
    if server.change_limit == server.call_limit:
        return f"At most {server.call_limit} {'call runs' if server.call_limit == 1 else 'calls run'} at once in a session."
    return "Calls that may change something run one at a time in a session; read-only calls run beside them (max_concurrency)."


def find_sharing_faults(server: Server) -> list[str]:
    """Return warnings about fields of the entry that lose or mix the state of a known server."""
    stateful = find_stateful_server(server)
    if stateful is None or not isinstance(server.target, CommandTarget):
        return []
    warnings: list[str] = []
    if stateful.place == "file":
        if server.isolation in _SEPARATE:
            warnings.append(f"isolation {server.isolation.value} separates nothing: all sessions use {stateful.state}")
        if server.change_limit > 1:
            warnings.append(f"max_concurrency {server.change_limit} loses changes that overlap; remove it")
        if find_state_folder(server) is None:
            warnings.append(
                f"its env has no absolute {stateful.file_variable}: the file is then in the folder of its package, which a new version "
                "replaces, and several processes overwrite each other's changes"
            )
    elif server.replicas > 1:
        warnings.append(f"each of its {server.replicas} replicas keeps {stateful.state} for itself, and calls go to any; remove replicas")
    if stateful.place == "browser" and server.isolation in _SEPARATE and not _has_own_profile(server.target.args):
        warnings.append('each session starts a browser with the same profile, which only one can use; add "--isolated" to its args')
    return warnings


def _has_own_profile(args: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in _PROFILE_OPTIONS for word in args)
