"""Callers, entries and the tools domain as wiring builds it, around real servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import psutil

from rookery.access.models import Caller
from rookery.engines import upstreams
from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.calling.result_cache import ResultCache
from rookery.tools.calling.tool_runner import ToolRunner
from rookery.tools.catalogue import Catalogue
from rookery.tools.feature_lists import MAX_OWN_LISTS
from rookery.tools.models import CallOutcome, CallRecord, CommandTarget, HttpTarget, Server
from rookery.tools.ports import AgentSessionChecker, BuiltinServer
from rookery.tools.recent_links import RecentLinks
from rookery.tools.resources import ResourceReader
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.store.mcp_sessions import StoredProtocols
from rookery.tools.supervision.session_pool import SessionPool
from rookery.tools.supervision.upstream_session import SupervisionTimeouts
from tests.deadlines import HANG_S

SERVERS = Path(__file__).parent / "servers"
BIN = Path(sys.executable).parent
SHORT_TIMEOUTS = SupervisionTimeouts(connect_timeout_s=60.0)
CONNECTORS = upstreams.open([])


def make_caller(**fields: object) -> Caller:
    """Make a caller of workspace 1 who may do everything."""
    caller = Caller(
        key_id="key-1",
        key_kind="api",
        key_name="key",
        workspace_id=1,
        public_workspace_id=1,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="192.0.2.1",
        request_id="req_test",
    )
    return replace(caller, **fields)


def make_odd_server(*flags: str, id: str = "odd", env: Mapping[str, str] | None = None, **fields: object) -> Server:
    """Make the entry of the server that misbehaves as its flags say."""
    target = CommandTarget(command=sys.executable, args=("-I", "-S", "-u", str(SERVERS / "odd.py"), *flags), env=env or {})
    return replace(Server(id=id, name=id, target=target), **fields)


def make_odd_entry(*flags: str, **fields: object) -> dict[str, object]:
    """Make an entry of a file for the same server."""
    return {"command": sys.executable, "args": ["-I", "-S", "-u", str(SERVERS / "odd.py"), *flags], **fields}


def make_http_server(url: str, **fields: object) -> Server:
    """Make the entry of a server at *url*."""
    kind = "sse" if url.endswith("/sse") else "http"
    return replace(Server(id="served", name="served", target=HttpTarget(url=url, kind=kind)), **fields)


def text_of(result: Mapping[str, object]) -> str:
    """Return the first text of a tool's result."""
    return str(cast("list[dict[str, object]]", result["content"])[0]["text"])


def list_children() -> list[psutil.Process]:
    """Return the running descendants of this process."""
    return [child for child in psutil.Process().children(recursive=True) if is_alive(child.pid)]


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not count."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def count_open_files() -> int:
    """Return the number of open files of this process."""
    return psutil.Process().num_fds()


class RecordingLimiter:
    """A limiter without limits that records the calls."""

    def __init__(self) -> None:
        self.spent: list[str] = []

    async def spend_tool_limit(self, caller: Caller, server: str, tool: str) -> None:
        """Record the call."""
        self.spent.append(f"{server}/{tool}")


@dataclass(kw_only=True)
class Tools:
    """The tools domain of one process."""

    db: Database
    sessions: SessionPool
    catalogue: Catalogue
    runner: ToolRunner
    call_buffer: CallBuffer
    links: RecentLinks
    resources: ResourceReader
    limits: RecordingLimiter

    async def start(self) -> None:
        """Start the background tasks."""
        await self.sessions.start()
        await self.catalogue.start()

    async def aclose(self) -> None:
        """Close everything in the order of wiring."""
        await self.catalogue.aclose()
        await self.sessions.aclose()
        await self.links.aclose()
        await self.call_buffer.aclose()


def build_tools(
    db: Database,
    path: Path | None,
    *,
    builtins: Sequence[BuiltinServer] = (),
    environment: Mapping[str, str] | None = None,
    timing: SupervisionTimeouts = SHORT_TIMEOUTS,
    bus: EventBus | None = None,
    keep_arguments: bool = False,
    cache: ResultCache | None = None,
    agent_sessions: AgentSessionChecker | None = None,
    first_list_timeout_s: float = HANG_S,
    max_own_lists: int = MAX_OWN_LISTS,
) -> Tools:
    """Build the domain as wiring does."""
    sessions = SessionPool(upstreams.open(builtins, protocols=StoredProtocols(db)), timeouts=timing, bus=bus)
    entries = [upstreams.build_builtin_entry(builtin) for builtin in builtins]
    registry = ServerRegistry(builtins=entries, path=path, environment=environment)
    catalogue = Catalogue(db, sessions, registry, first_list_timeout_s=first_list_timeout_s, max_own_lists=max_own_lists)
    limits, journal, links = RecordingLimiter(), CallBuffer(db, bus=bus), RecentLinks(db)
    return Tools(
        db=db,
        sessions=sessions,
        catalogue=catalogue,
        runner=ToolRunner(
            catalogue,
            sessions,
            journal,
            limits,
            links,
            cache=cache,
            agent_sessions=agent_sessions,
            keep_arguments=keep_arguments,
        ),
        call_buffer=journal,
        links=links,
        resources=ResourceReader(catalogue, sessions, links),
        limits=limits,
    )


CALLER = make_caller()
OTHER = make_caller(workspace_id=2, public_workspace_id=2, key_id="key-2")


async def call(tools: Tools, tool: str, *, server: str = "odd", caller: Caller = CALLER, **arguments: object) -> CallOutcome:
    """Call a tool."""
    return await tools.runner.call(caller, server, tool, arguments)


async def call_text(tools: Tools, tool: str, *, server: str = "odd", caller: Caller = CALLER, **arguments: object) -> str:
    """Call a tool that succeeds, and return its text."""
    outcome = await call(tools, tool, server=server, caller=caller, **arguments)
    assert outcome.error is None
    return str(json.loads(outcome.result or b"")["content"][0]["text"])


def make_call_record(number: int, **fields: object) -> CallRecord:
    """Make the record of a call that succeeded."""
    values: dict[str, object] = {
        "id": f"{number:032d}",
        "workspace_id": 1,
        "server_id": "time",
        "tool": "now",
        "key_id": "key-1",
        "key_kind": "api",
        "agent_id": None,
        "session_id": None,
        "success": True,
        "code": None,
        "duration_ms": 1.0,
        "arguments_bytes": 2,
        "result_bytes": 10,
        "request_id": f"req_{number}",
        "called_at": utc_now(),
        **fields,
    }
    return CallRecord(**values)  # pyright: ignore[reportArgumentType] - fields by name
