"""The page about real tool servers, the comparison that it is made from, and the driver of the servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.tool_servers.comparison import Json, compare_items, compare_results
from tests.tool_servers.installation import HERE
from tests.tool_servers.raw_run import find_reason, run_alone
from tests.tool_servers.server_record import load_record
from tests.tool_servers.server_table import PAGE, render
from tests.tool_servers.servers import SERVERS, ToolServer
from tests.tool_servers.stdio_driver import ServerExited, initialize, start_server

MIN_SERVERS = 30
ODD = Path(__file__).parents[1] / "tools" / "servers" / "odd.py"


def test_the_page_is_the_record_of_the_last_run() -> None:
    """`make tool-servers` writes both; nobody edits the page by hand."""
    assert PAGE.read_text(encoding="utf-8") == render(load_record().values())


def test_the_record_has_every_declared_server_in_its_version() -> None:
    """A server that is added or updated without a run fails here; at least 30 of them did run."""
    rows = load_record()

    assert [(row.id, row.version) for row in rows.values()] == [(server.id, server.version) for server in SERVERS]
    assert sum(row.raw is not None for row in rows.values()) >= MIN_SERVERS
    assert all(row.reason for row in rows.values() if row.raw is None)


def test_every_server_is_pinned_in_the_lock_of_its_kind() -> None:
    """The declared version is the one that the lock installs; Go and Rust programs name theirs in the command."""
    packages = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["optionalDependencies"]
    assert {server.package: server.version for server in SERVERS if server.kind == "npm"} == packages
    for server in SERVERS:
        lock = HERE / f"{server.kind}.lock"
        if lock.exists():
            assert f"\n{server.package}=={server.version} " in lock.read_text(encoding="utf-8")


def test_a_comparison_names_each_field_that_differs() -> None:
    """Lost, added and changed fields, and items without a partner, are counted; the prefix of a name does not matter."""
    tool: Json = {"name": "look", "description": "a", "annotations": {"category": "x", "readOnlyHint": True}}
    other: Json = {"name": "wait", "description": "b"}
    arrival: Json = {"name": "chrome__look", "description": "a", "annotations": {"readOnlyHint": False}, "icons": []}

    assert compare_items([tool, other], [arrival], ignored=["name"]) == [
        "absent (1)",
        "added icons (1)",
        "changed annotations.readOnlyHint (1)",
        "lost annotations.category (1)",
    ]
    assert compare_items([tool, other], [other, tool]) == []


def test_results_are_compared_by_their_fields_and_kinds_of_content() -> None:
    """Times and paths may differ; a block of another type, a lost `_meta` and a new error may not."""
    result = {"content": [{"type": "text", "text": "at noon"}], "_meta": {"a": 1}}

    assert compare_results(result, {"content": [{"type": "text", "text": "later"}], "_meta": {"a": 1}, "isError": False}) == "same"
    assert compare_results(result, {"content": [{"type": "image", "text": "later"}], "isError": True}) == (
        'lost _meta.a; lost content.type: "text"; added content.type: "image"; added isError: true'
    )


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["Error: No access token was provided.", "Usage: …"], "Error: No access token was provided."),
        (["", "starting", "fatal: no repository"], "fatal: no repository"),
        (["usage: x"], "usage: x"),
        ([], ""),
    ],
)
def test_the_reason_of_a_failed_start_is_the_line_that_names_an_error(lines: list[str], reason: str) -> None:
    """Servers print usage and banners around the reason."""
    assert find_reason(lines) == reason


async def test_a_server_is_measured_alone(tmp_path: Path) -> None:
    """A run counts tools and lists, and ends with the end of the input and with SIGTERM."""
    arguments = ("-I", "-S", "-u", str(ODD))
    server = ToolServer(id="odd", package="odd", version="1", kind=".", language="Python", program=sys.executable, args=arguments)
    run = await run_alone(server, tmp_path)

    assert run.facts.tools == len(run.lists["tools"]) > 1
    assert run.facts.bytes > run.facts.tools
    assert run.facts.stdin_s is not None
    assert run.facts.sigterm_s is not None


async def test_a_server_that_exits_is_reported_with_its_code(tmp_path: Path) -> None:
    """The exit code is the text of the error, and the lines of standard error are kept."""
    async with start_server([sys.executable, "-c", "import sys; sys.exit('no token')"], {}, tmp_path) as process:
        with pytest.raises(ServerExited, match="exit 1"):
            await initialize(process, "2025-11-25")
        await process.wait_stderr()

        assert process.stderr == ["no token"]
