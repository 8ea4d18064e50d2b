"""Figures over the rows of calls, and the rows themselves, on both stores, over HTTP."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dirty_equals import IsStr
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from sqlalchemy import text

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.models import CallRecord, ToolCallFilter
from rookery.tools.store import calls as store
from tests.conftest import Instance, run_instance
from tests.tools.makers import make_call_record, make_caller, make_odd_entry

ANALYTICS = "/api/agent/tools/analytics"
CALLS = "/api/agent/tools/calls"
AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
CALLER = make_caller()


def make_row(number: int, **fields: object) -> CallRecord:
    """Make a row of a call that succeeded."""
    return make_call_record(number, **{"called_at": AT + timedelta(minutes=number), **fields})


def make_failed_row(number: int, code: str = "tool_execution_error", **fields: object) -> CallRecord:
    """Make a row of a call that failed."""
    return make_row(number, success=False, code=code, **fields)


async def insert_rows(instance: Instance, *rows: CallRecord) -> None:
    """Put rows into the workspace of *instance*."""
    await instance.rookery.db.write(lambda tx: store.CALLS.add(tx, *rows))


@pytest.fixture
async def reader(instance: Instance) -> Instance:
    """A server with some calls of its workspace: 20 of one tool that took 1 to 20 ms, and others."""
    own = instance.workspace_id
    await insert_rows(
        instance,
        *[make_row(n, duration_ms=float(n), workspace_id=own) for n in range(1, 21)],
        make_failed_row(30, duration_ms=100.0, error="It broke.", workspace_id=own, key_id="key-2", key_kind="agent", agent_id="a"),
        make_failed_row(31, "rate_limited", duration_ms=0.01, workspace_id=own, key_id="key-2", key_kind="agent"),
        make_row(40, tool="zone", duration_ms=7.0, workspace_id=own, session_id="sess_1", called_at=AT - timedelta(days=2)),
        make_row(41, tool="zone", duration_ms=0.01, cached=True, workspace_id=own, session_id="sess_1"),
        make_row(42, server_id="git", tool="log/all", workspace_id=own, success=False, code="input_required"),
        make_row(43, workspace_id=own + 1000, server_id="theirs"),
    )
    return instance


async def test_figures_are_counts_and_exact_percentiles_of_the_rows(reader: Instance) -> None:
    """Calls, errors, error_rate, p50/p95/p99/max ms, last_called_at, last_error; grouped by tool by default."""
    caller = await reader.agent_key("tools.read")

    report = (await caller.get(ANALYTICS)).json()

    now = next(group for group in report["data"] if group["tool"] == "now")
    assert {name: now[name] for name in ("server", "calls", "errors", "error_rate", "cached")} == {
        "server": "time",
        "calls": 22,
        "errors": 2,
        "error_rate": 0.0909,
        "cached": 0,
    }
    # 21 calls reached the tool, 1 to 20 ms and 100: a rejected call has no duration of the tool.
    assert [now[name] for name in ("p50_ms", "p95_ms", "p99_ms", "max_ms")] == [11.0, 20.0, 100.0, 100.0]
    assert now["last_called_at"] == "2026-11-20T12:31:00.000000Z"
    assert now["last_error"] == {
        "code": "rate_limited",
        "message": None,
        "tool": "now",
        "server": "time",
        "at": "2026-11-20T12:31:00.000000Z",
        "request_id": "req_31",
    }
    assert [(group["server"], group["tool"], group["calls"]) for group in report["data"]] == [
        ("time", "now", 22),
        ("time", "zone", 2),
        ("git", "log/all", 1),
    ]
    assert (report["calls"], report["errors"], report["by"], report["group_count"]) == (25, 2, "tool", 3)


async def test_cached_and_input_required_calls_count_neither_in_durations_nor_as_errors(reader: Instance) -> None:
    """A cached result has no duration of the tool; a call that needs input is not a failure."""
    zone = (await reader.admin.get(f"{ANALYTICS}/time/zone")).json()
    input_required = (await reader.admin.get(f"{ANALYTICS}/git/log/all")).json()

    assert (zone["calls"], zone["cached"], zone["p50_ms"], zone["max_ms"]) == (2, 1, 7.0, 7.0)
    assert (input_required["calls"], input_required["errors"], input_required["p50_ms"], input_required["last_error"]) == (1, 0, None, None)


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("server", [("time", 24), ("git", 1)]),
        ("key", [("key-1", 23), ("key-2", 2)]),
        ("session", [("sess_1", 2)]),
        ("day", [("2026-11-18", 1), ("2026-11-20", 24)]),
    ],
)
async def test_figures_can_be_grouped_by_server_key_session_or_day(reader: Instance, by: str, groups: list[tuple[str, int]]) -> None:
    """By tool, server, key, session or day."""
    name = {"server": "server", "key": "key_id", "session": "session_id", "day": "day"}[by]

    report = (await reader.admin.get(f"{ANALYTICS}?by={by}")).json()

    assert [(group[name], group["calls"]) for group in report["data"]] == groups
    assert (report["calls"], report["by"], report["group_count"]) == (25, by, len(groups))


async def test_group_count_includes_groups_beyond_the_limit(reader: Instance) -> None:
    """Calls outside of a session form no group."""
    report = (await reader.admin.get(f"{ANALYTICS}?by=session&limit=1")).json()

    assert (len(report["data"]), report["group_count"]) == (1, 1)


async def test_figures_can_be_limited_to_a_range_a_key_an_agent_or_a_tool(reader: Instance) -> None:
    """The end of a range is not included."""
    since, until = "2026-11-20T12:05:00Z", "2026-11-20T12:10:00Z"

    ranged = (await reader.admin.get(f"{ANALYTICS}/time/now?since={since}&until={until}")).json()
    by_key = (await reader.admin.get(f"{ANALYTICS}?key_id=key-2")).json()
    by_agent = (await reader.admin.get(f"{ANALYTICS}?agent_id=a&server=time")).json()
    nothing = (await reader.admin.get(f"{ANALYTICS}?until=2020-01-01T00:00:00Z")).json()
    invalid = await reader.admin.get(f"{ANALYTICS}?since=yesterday")

    assert (ranged["calls"], ranged["p50_ms"], ranged["max_ms"]) == (5, 7.0, 9.0)
    assert (ranged["since"], ranged["until"], ranged["by"]) == ("2026-11-20T12:05:00.000000Z", "2026-11-20T12:10:00.000000Z", "day")
    assert (by_key["calls"], by_agent["calls"]) == (2, 1)
    assert (nothing["calls"], nothing["error_rate"], nothing["p50_ms"], nothing["data"]) == (0, 0.0, None, [])
    assert invalid.status_code == 422


async def test_a_key_sees_figures_only_of_tools_it_may_use(reader: Instance) -> None:
    """Servers and tools that do not exist for a key do not exist in its figures; neither does another tenant's call."""
    only = await reader.agent_key("tools.read", restrictions=KeyRestrictions(servers=frozenset({"git"})))
    glob = await reader.agent_key("tools.read", restrictions=KeyRestrictions(tools=("time/z*",)))
    other = await reader.api_key("tools.read", workspace_id=await reader.workspace("other"))
    without = await reader.agent_key("mcp:read")

    assert [(group["server"], group["tool"]) for group in (await only.get(ANALYTICS)).json()["data"]] == [("git", "log/all")]
    assert [(group["server"], group["tool"]) for group in (await glob.get(ANALYTICS)).json()["data"]] == [("time", "zone")]
    assert (await glob.get(CALLS)).json()["meta"]["total"] == 2
    assert (await glob.get(f"{ANALYTICS}/time/now")).status_code in {403, 404}
    assert (await other.get(ANALYTICS)).json()["calls"] == 0
    assert (await without.get(ANALYTICS)).status_code == 403


async def test_call_records_are_paged_latest_first(reader: Instance) -> None:
    """Call records are paged, latest first."""
    first = (await reader.admin.get(f"{CALLS}?per_page=2&server=time")).json()
    failures = (await reader.admin.get(f"{CALLS}?success=false&tool=now&code=tool_execution_error")).json()

    assert [record["request_id"] for record in first["data"]] == ["req_41", "req_31"]
    assert first["meta"] == {"current_page": 1, "per_page": 2, "total": 24, "next_cursor": IsStr()}
    assert "server=time" in first["links"]["next"]
    (call,) = failures["data"]
    assert call == {
        "id": f"{30:032d}",
        "server": "time",
        "tool": "now",
        "key_id": "key-2",
        "key_kind": "agent",
        "agent_id": "a",
        "session_id": None,
        "success": False,
        "code": "tool_execution_error",
        "error": "It broke.",
        "cached": False,
        "duration_ms": 100,
        "duration_exact_ms": 100.0,
        "upstream_ms": None,
        "arguments_bytes": 2,
        "result_bytes": 10,
        "arguments": None,
        "request_id": "req_30",
        "called_at": "2026-11-20T12:30:00.000000Z",
    }


async def test_one_call_is_read_by_its_id(reader: Instance) -> None:
    """One record of the workspace, for keys that may use its tool; others get 404 as for an unknown id."""
    id = f"{30:032d}"
    listed = (await reader.admin.get(f"{CALLS}?request_id=req_30")).json()
    other = await reader.api_key("tools.read", workspace_id=await reader.workspace("other"))
    git = await reader.agent_key("tools.read", restrictions=KeyRestrictions(servers=frozenset({"git"})))
    glob = await reader.agent_key("tools.read", restrictions=KeyRestrictions(tools=("time/z*",)))

    assert [record["id"] for record in listed["data"]] == [id]
    assert (await reader.admin.get(f"{CALLS}/{id}")).json() == listed["data"][0]
    assert [(await key.get(f"{CALLS}/{id}")).status_code for key in (other, git, glob)] == [404, 404, 404]
    assert (await glob.get(f"{CALLS}/{40:032d}")).status_code == 200
    assert (await reader.admin.get(f"{CALLS}/none")).json()["error"] == "resource_not_found"
    assert (await (await reader.agent_key("mcp:read")).get(f"{CALLS}/{id}")).status_code == 403


@hypothesis(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=250))
async def test_a_percentile_is_the_least_duration_that_this_share_does_not_exceed(database: Database, durations: list[float]) -> None:
    """Exact, on both stores, for any number of calls and any ties."""
    await database.write(lambda tx: store.purge(tx, 1))
    await database.write(lambda tx: store.CALLS.add(tx, *[make_row(n, duration_ms=duration) for n, duration in enumerate(durations)]))

    report = await CallAnalytics(database, CallBuffer(database)).load_report(CALLER, ToolCallFilter(workspace_id=1), "tool", limit=10)

    ordered = sorted(durations)
    expected = [ordered[math.ceil(len(ordered) * percent / 100) - 1] for percent in (50, 95, 99, 100)]
    for figures in (report.total, *report.groups):
        assert [figures.p50_ms, figures.p95_ms, figures.p99_ms, figures.max_ms] == expected
        assert figures.calls == len(durations)


async def test_a_call_is_counted_at_once_and_a_tool_without_calls_has_a_report(settings: Settings) -> None:
    """A report counts a call made just before, although rows are written after responses; an unknown tool is 404."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"odd": make_odd_entry()}}))
    async with run_instance(settings) as instance:
        for _ in range(3):
            await instance.admin.post("/api/v1/mcp/servers/odd/tools/echo", {"text": "hi"})
        await instance.admin.post("/api/v1/mcp/servers/odd/tools/error", {})
        report = (await instance.admin.get(ANALYTICS)).json()
        unused = await instance.admin.get(f"{ANALYTICS}/odd/pid")
        unknown = await instance.admin.get(f"{ANALYTICS}/odd/nothing")
        unknown_server = await instance.admin.get(f"{ANALYTICS}/nobody/nothing")

    assert [(group["tool"], group["calls"]) for group in report["data"]] == [("echo", 3), ("error", 1)]
    assert report["last_error"]["message"] == "it did not work"
    assert (unused.status_code, unused.json()["calls"]) == (200, 0)
    assert (unknown.status_code, unknown.json()["error"]) == (404, "tool_not_found")
    assert (unknown_server.status_code, unknown_server.json()["error"]) == (404, "server_not_found")


async def test_figures_of_a_range_read_only_that_range(database: Database) -> None:
    """The query uses an index on workspace and time, so its cost is bounded."""
    if database.dialect != "sqlite":
        pytest.skip("PostgreSQL chooses by its statistics, and an empty table has no statistics")
    await database.write(lambda tx: store.CALLS.add(tx, *[make_row(n) for n in range(50)]))
    plan = "EXPLAIN QUERY PLAN SELECT count(*) FROM tool_calls WHERE workspace_id = 1 AND called_at >= 1 AND called_at < 2"

    steps = await database.read(lambda tx: [step.text("detail") for step in tx.fetch_all(text(plan))])

    assert any("ix_tool_calls_workspace_id_called_at (workspace_id=? AND called_at>? AND called_at<?)" in step for step in steps)


async def test_rows_are_deleted_after_the_configured_number_of_days(settings: Settings) -> None:
    """A retention setting, 90 days by default."""
    assert settings.tool_calls_days == 90
    async with run_instance(replace(settings, tool_calls_days=7)) as instance:
        now = instance.rookery.clock()
        old = [make_row(n, workspace_id=instance.workspace_id, called_at=now - timedelta(days=n)) for n in (1, 6, 8, 89)]
        await insert_rows(instance, *old)
        task = next(task for task in instance.rookery.periodic_tasks if task.name == "old tool rows")
        await task.run()
        remaining = await instance.admin.get(CALLS)

    assert remaining.json()["meta"]["total"] == 2
