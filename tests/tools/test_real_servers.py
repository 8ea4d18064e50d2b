"""Real tool servers of both protocol eras and four vendors: what they list, and what their tools return."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rookery.engines import upstreams
from rookery.tools.errors import ToolDisabled
from rookery.tools.models import CallOutcome, JsonObject, Server
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.supervision.circuit_breaker import SupervisionTimeouts
from tests import real_servers
from tests.conftest import eventually
from tests.tools.conftest import Start
from tests.tools.makers import Tools, make_caller

CALLER = make_caller()

ENTRIES: dict[str, Callable[[Path], real_servers.Entry]] = {
    "time": lambda _: real_servers.clock(),
    "git": real_servers.git,
    "sqlite": lambda folder: real_servers.sqlite(folder / "shop.db"),
    "everything": lambda _: real_servers.everything(),
    "filesystem": real_servers.filesystem,
    "memory": lambda folder: real_servers.memory(folder / "graph.json"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a Git repository, for servers that work on one."""
    folder = tmp_path / "shop"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


async def start_server(start: Start, name: str, folder: Path) -> Tools:
    """Start the domain with one real server, and wait until it was listed."""
    tools = await start({name: ENTRIES[name](folder)}, timing=SupervisionTimeouts(connect_timeout_s=40))
    server = server_of(tools)
    await eventually(lambda: tools.catalogue.is_known(server))
    return tools


def server_of(tools: Tools) -> Server:
    """Return the only server."""
    (server,) = tools.catalogue.list_servers(CALLER)
    return server


async def call_tool(tools: Tools, tool: str, **arguments: object) -> JsonObject:
    """Call a tool that succeeds, and return its result."""
    outcome = await tools.runner.call(CALLER, server_of(tools).id, tool, arguments)
    assert outcome.error is None
    return cast("JsonObject", json.loads(outcome.result or b""))


async def call_text(tools: Tools, tool: str, **arguments: object) -> str:
    """Call a tool that succeeds, and return its texts."""
    content = cast("list[dict[str, str]]", (await call_tool(tools, tool, **arguments))["content"])
    return "\n".join(block.get("text", "") for block in content)


@pytest.mark.parametrize(
    ("name", "era", "tools", "counts"),
    [
        ("time", "2026-07-28", {"get_current_time", "convert_time"}, (0, 0, 0)),
        ("git", "2026-07-28", {"git_status", "git_commit"}, (0, 0, 0)),
        ("sqlite", "2025-11-25", {"read_query", "write_query"}, (1, 0, 1)),
        ("everything", "2025-11-25", {"echo", "trigger-long-running-operation"}, (7, 2, 4)),
        ("filesystem", "2025-11-25", {"read_text_file", "write_file"}, (0, 0, 0)),
        ("memory", "2025-11-25", {"create_entities", "read_graph"}, (1, 0, 0)),
    ],
)
async def test_a_real_server_is_listed_in_its_own_era(  # noqa: PLR0917 - a table
    start: Start, folder: Path, name: str, era: str, tools: set[str], counts: tuple[int, int, int]
) -> None:
    """Old handshakes and the stateless revision alike; a list that a server does not know (sqlite's templates) is empty."""
    domain = await start_server(start, name, folder)
    server = server_of(domain)
    session = domain.sessions.get_session(server, CALLER, None)
    info = (await session.get_connection()).info
    features = domain.catalogue.get_features(server)

    assert info.protocol_version == era
    assert info.pid is not None
    assert tools <= {str(tool["name"]) for tool in features.tools}
    assert (len(features.resources), len(features.templates), len(features.prompts)) == counts
    assert all(tool.argument_validator.fault is None for tool in domain.catalogue.list_tools(CALLER, server))


async def test_the_time_server_returns_structured_content(start: Start, folder: Path) -> None:
    """Structured output passes through."""
    tools = await start_server(start, "time", folder)

    result = await call_tool(tools, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo")

    assert "T21:00:00+09:00" in json.dumps(result["structuredContent"])


async def test_the_git_server_reads_a_real_repository(start: Start, folder: Path) -> None:
    """A server with arguments of its own."""
    tools = await start_server(start, "git", folder)
    (folder / "new.txt").write_text("new")

    assert "new.txt" in await call_text(tools, "git_status", repo_path=str(folder))


async def test_the_sqlite_server_stores_rows_and_its_memo_has_a_gateway_uri(start: Start, folder: Path) -> None:
    """`memo://insights` is read as sqlite://memo/insights: a server of the older SDK."""
    tools = await start_server(start, "sqlite", folder)
    await call_text(tools, "create_table", query="CREATE TABLE birds (name TEXT)")
    await call_text(tools, "write_query", query="INSERT INTO birds VALUES ('rook')")
    await call_text(tools, "append_insight", insight="Rooks are social.")

    assert "rook" in await call_text(tools, "read_query", query="SELECT name FROM birds")
    memo = await tools.resources.read(CALLER, "sqlite://memo/insights")
    assert "Rooks are social." in json.dumps(memo)
    rejected = await tools.runner.call(CALLER, "sqlite", "read_query", {"query": "DROP TABLE birds"})
    assert "SELECT" in f"{rejected.error}{rejected.result}"


async def test_the_everything_server_returns_content_of_every_kind(start: Start, folder: Path) -> None:
    """Texts, images, resources and prompts pass through."""
    tools = await start_server(start, "everything", folder)

    assert "hello" in await call_text(tools, "echo", message="hello")
    assert "completed" in (await call_text(tools, "trigger-long-running-operation", duration=1, steps=4)).lower()
    image = await call_tool(tools, "get-tiny-image")
    assert "image" in {block["type"] for block in cast("list[dict[str, str]]", image["content"])}
    resources = tools.resources.list_resources(server_of(tools), make_caller())
    _, content = await tools.resources.read(CALLER, str(resources[0]["uri"]))
    assert cast("list[dict[str, str]]", content["contents"])[0]["uri"] == resources[0]["uri"]
    prompts = {str(prompt["name"]) for prompt in tools.catalogue.get_features(server_of(tools)).prompts}
    assert "simple-prompt" in prompts
    prompt = await tools.resources.get_prompt(CALLER, server_of(tools), "simple-prompt", {})
    assert prompt["messages"]


async def test_the_filesystem_server_stays_within_its_folder(start: Start, folder: Path) -> None:
    """Access outside of the folder is a failure of the tool."""
    tools = await start_server(start, "filesystem", folder)

    await call_text(tools, "write_file", path=str(folder / "note.txt"), content="caw")
    outside = await tools.runner.call(CALLER, "filesystem", "read_text_file", {"path": "/etc/hostname"})

    assert (folder / "note.txt").read_text() == "caw"
    assert await call_text(tools, "read_text_file", path=str(folder / "note.txt")) == "caw"
    assert outside.code == "tool_execution_error"


async def test_the_memory_server_keeps_its_graph(start: Start, folder: Path) -> None:
    """A resource whose scheme is the server's own name."""
    tools = await start_server(start, "memory", folder)
    entity = {"name": "Rookery", "entityType": "colony", "observations": ["lives in tall trees"]}

    await call_text(tools, "create_entities", entities=[entity])

    assert "tall trees" in await call_text(tools, "search_nodes", query="trees")
    assert "Rookery" in json.dumps(await tools.resources.read(CALLER, "memory://knowledge-graph"))


@pytest.mark.parametrize("isolation", ["per_workspace", "per_key"])
async def test_twenty_parallel_calls_of_two_keys_keep_twenty_entities(start: Start, folder: Path, isolation: str) -> None:
    """The memory server rewrites its file without a lock, so calls that overlap would lose entities although all succeed."""
    entry = {**real_servers.memory(folder / "graph.json"), "isolation": isolation}
    tools = await start({"memory": entry}, timing=SupervisionTimeouts(connect_timeout_s=40))
    callers = (CALLER, make_caller(key_id="key-2"))

    async def create(number: int) -> CallOutcome:
        entity = {"name": f"rook-{number}", "entityType": "bird", "observations": ["is social"]}
        return await tools.runner.call(callers[number % 2], "memory", "create_entities", {"entities": [entity]})

    outcomes = await asyncio.gather(*(create(number) for number in range(20)))

    assert [outcome.error for outcome in outcomes] == [None] * 20
    names = {json.loads(line)["name"] for line in (folder / "graph.json").read_text().splitlines()}
    assert names == {f"rook-{number}" for number in range(20)}
    processes = 2 if isolation == "per_key" else 1
    # The spare session that listed the tools ends by itself.
    await eventually(lambda: len({session.get_health().pid for session in tools.sessions.list_sessions("memory")}) == processes)


async def test_a_tool_that_runs_only_as_a_task_is_hidden_with_its_reason(start: Start, folder: Path) -> None:
    """simulate-research-query of the everything server runs only as a task, so it is not listed."""
    tools = await start_server(start, "everything", folder)
    server, hidden = server_of(tools), "simulate-research-query"

    assert hidden not in [tool.name for tool in tools.catalogue.list_tools(CALLER, server)]
    assert tools.catalogue.list_task_tool_names(CALLER, server) == [hidden]
    with pytest.raises(ToolDisabled, match="only as a task"):
        await tools.runner.call(CALLER, server.id, hidden, {"topic": "kettles"})
    check = await ServerChecker(upstreams.open([])).check(server)
    assert any(hidden in warning and "only as a task" in warning for warning in check.warnings)
