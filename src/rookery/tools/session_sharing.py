"""
Descriptions of what the callers of a server share: its sessions, and the state of known servers.

The known servers were run, or their source was read, in the versions that the comments name. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from rookery.tools.models import BuiltinTarget, CommandTarget, Server, SessionIsolation
from rookery.tools.program_names import Program, find_program

_SHARING = {
    SessionIsolation.SHARED: "The keys of all workspaces share",
    SessionIsolation.PER_WORKSPACE: "All keys of the workspace share",
    SessionIsolation.PER_KEY: "Each key has",
    SessionIsolation.PER_SESSION: "Each agent session of a key (X-Session-ID) has",
}
_SEPARATE = frozenset({SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION})
_BROWSER_STATE = "one browser with its pages and logins"
_PROFILE_OPTIONS = ("--isolated", "--user-data-dir", "--userDataDir")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulServer:
    """
    A server that keeps state between calls.

    Attributes:
        names: The names of its packages and programs.
        state: What its callers share. The text follows "They share".
        place: Where the state is. Sessions of their own separate callers only if it is in the process. `machine`: a second process ends
            the first.
        file_variable: The environment variable with the path of the file.
    """

    names: frozenset[str]
    state: str
    place: Literal["process", "file", "browser", "machine"]
    file_variable: str | None = None


_STATEFUL_SERVERS = (
    # server-memory 2026.8.31: every call reads the whole file, and a change replaces it.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-memory", "mcp-server-memory", "mcp/memory"}),
        state="one knowledge graph in the file MEMORY_FILE_PATH",
        place="file",
        file_variable="MEMORY_FILE_PATH",
    ),
    # server-sequential-thinking 2026.8.31: the thoughts of all callers are one list.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-sequential-thinking", "mcp-server-sequential-thinking", "mcp/sequentialthinking"}),
        state="one history of thoughts",
        place="process",
    ),
    # server-everything 2026.8.31: resources that a tool creates are listed for all callers.
    StatefulServer(
        names=frozenset({"@modelcontextprotocol/server-everything", "mcp-server-everything", "mcp/everything"}),
        state="the resources that its tools create",
        place="process",
    ),
    # desktop-commander 0.2.52: all terminal sessions are in one table.
    StatefulServer(
        names=frozenset({"@wonderwhy-er/desktop-commander", "desktop-commander", "mcp/desktop-commander"}),
        state="its terminals and their processes",
        place="process",
    ),
    # @playwright/mcp 0.0.83 and chrome-devtools-mcp 1.11.0: one browser per process; a profile serves only one browser at a time.
    StatefulServer(
        names=frozenset(
            {
                "@playwright/mcp",
                "playwright-mcp",
                "mcp-server-playwright",
                "mcp/playwright",
                "playwright/mcp",
                "chrome-devtools-mcp",
            }
        ),
        state=_BROWSER_STATE,
        place="browser",
    ),
    # Source of server-puppeteer 2025.5.12, puppeteer-mcp-server 0.7.2, @agent-infra/mcp-server-browser 1.2.29 and
    # @executeautomation/playwright-mcp-server 1.0.12: one browser per process, with a new profile.
    StatefulServer(
        names=frozenset(
            {
                "@modelcontextprotocol/server-puppeteer",
                "mcp-server-puppeteer",
                "mcp/puppeteer",
                "puppeteer-mcp-server",
                "@agent-infra/mcp-server-browser",
                "mcp-server-browser",
                "@executeautomation/playwright-mcp-server",
                "playwright-mcp-server",
            }
        ),
        state=_BROWSER_STATE,
        place="process",
    ),
    # Source of @browsermcp/mcp 0.1.3: a process that starts kills the one that holds the port of the browser's extension.
    StatefulServer(
        names=frozenset({"@browsermcp/mcp", "mcp-server-browsermcp"}),
        state="the browser of the person at the machine, with its pages and logins",
        place="machine",
    ),
)


def find_stateful_server(server: Server) -> StatefulServer | None:
    """Return what is known of the program of *server*; None if it is not known to keep state."""
    return _find_known(_find_program(server))


def _find_program(server: Server) -> Program | None:
    return find_program([server.target.command, *server.target.args]) if isinstance(server.target, CommandTarget) else None


def _find_known(program: Program | None) -> StatefulServer | None:
    return None if program is None else next((server for server in _STATEFUL_SERVERS if program.name in server.names), None)


def find_state_folder(server: Server) -> str | None:
    """Return the folder of the file in which a known server keeps its state; None if the entry does not name it."""
    program = _find_program(server)
    stateful = _find_known(program)
    if program is None or stateful is None or stateful.file_variable is None or not isinstance(server.target, CommandTarget):
        return None
    path = {**server.target.env, **program.env}.get(stateful.file_variable, "")
    return str(PurePath(path).parent) if PurePath(path).is_absolute() and not program.is_container else None


def describe_sharing(server: Server, *, process_count: int = 1) -> str:
    """
    Return who shares a session with *server*, and what they share if that is known.

    Args:
        process_count: The number of server processes of Rookery on this machine. Each has sessions of its own.
    """
    if isinstance(server.target, BuiltinTarget):
        return "It runs inside Rookery. Each call has the rights of its own key."
    count = "a session of its own" if server.isolation in _SEPARATE else "one session"
    if server.replicas > 1:
        count = f"up to {server.replicas} sessions"
    processes = f" in each of the {process_count} server processes" if process_count > 1 else ""
    sentences = [f"{_SHARING[server.isolation]} {count}{processes}."]
    stateful = find_stateful_server(server)
    if stateful is None:
        return sentences[0]
    if stateful.place in {"file", "machine"}:
        sentences.append(f"They {'all ' if server.isolation in _SEPARATE else ''}share {stateful.state}.")
        sentences.append(
            "`isolation` does not separate it; only another entry with another file does."
            if stateful.place == "file"
            else "Nothing separates it: a second process of it ends the first."
        )
    elif server.isolation not in _SEPARATE:
        sentences.append(f"They share {stateful.state}.")
        sentences.append(
            'Set "isolation": "per_key" in its entry to separate keys.'
            if stateful.place == "process"
            else 'Set "isolation": "per_key" in its entry and add "--isolated" to its args to separate keys.'
        )
    return " ".join(sentences)


def describe_concurrency(server: Server) -> str:
    """Return how many calls run at once in one session."""
    if server.change_limit == server.call_limit:
        return f"At most {server.call_limit} {'call runs' if server.call_limit == 1 else 'calls run'} at once in a session."
    return "Calls that may change something run one at a time in a session; read-only calls run beside them (max_concurrency)."


def find_sharing_faults(server: Server, *, process_count: int = 1) -> list[str]:
    """Return warnings about fields of the entry, or about the number of processes, that lose or mix the state of a known server."""
    program = _find_program(server)
    stateful = _find_known(program)
    if stateful is None or program is None:
        return []
    warnings: list[str] = []
    if stateful.place == "file":
        warnings += _find_file_faults(server, stateful, program)
    elif stateful.place == "machine":
        if server.isolation in _SEPARATE or server.replicas > 1 or process_count > 1:
            warnings.append("a second process of it ends the first; remove isolation and replicas, and use one server process of Rookery")
    else:
        if server.replicas > 1:
            warnings.append(
                f"each of its {server.replicas} replicas keeps {stateful.state} for itself, and calls go to any; remove replicas"
            )
        if process_count > 1:
            warnings.append(
                f"each of the {process_count} server processes keeps {stateful.state} for itself, and calls go to any; run it over HTTP, "
                "or use one process (ROOKERY_WORKERS)"
            )
    uses_profile = server.isolation in _SEPARATE or process_count > 1
    if stateful.place == "browser" and uses_profile and not program.is_container and not _has_own_profile(program.args):
        warnings.append('each session starts a browser with the same profile, which only one can use; add "--isolated" to its args')
    return warnings


def _find_file_faults(server: Server, stateful: StatefulServer, program: Program) -> list[str]:
    warnings: list[str] = []
    if server.isolation in _SEPARATE:
        warnings.append(f"isolation {server.isolation.value} separates nothing: all sessions use {stateful.state}")
    if server.change_limit > 1:
        warnings.append(f"max_concurrency {server.change_limit} loses changes that overlap; remove it")
    if program.is_container:
        if not program.has_volume:
            warnings.append("its container has no volume, so its file ends with the container; add --volume to its args")
    elif find_state_folder(server) is None:
        warnings.append(
            f"its env has no absolute {stateful.file_variable}: the file is then in the folder of its package, which a new version "
            "replaces, and several processes overwrite each other's changes"
        )
    return warnings


def _has_own_profile(args: Sequence[str]) -> bool:
    return any(word.partition("=")[0] in _PROFILE_OPTIONS for word in args)
