"""The report of usage over HTTP: ranges, groups, filters, pages, CSV, walls, and its speed."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import date, timedelta

import pytest

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.usage.models import UsageEntry, UsageKind
from rookery.usage.store import ledger
from tests.conftest import FakeClock, Instance, run_instance
from tests.stopwatch import Stopwatch
from tests.usage.conftest import USAGE, read_groups, read_report


def _make_entry(instance: Instance, **fields: object) -> UsageEntry:
    entry = UsageEntry(
        workspace_id=instance.workspace_id,
        day="2026-11-20",
        kind=UsageKind.GENERATION,
        key_id="key",
        model="small",
        calls=1,
        input_tokens=10,
        output_tokens=5,
        cost_nanos=1_000_000_000,
    )
    return replace(entry, **fields)


async def _add(instance: Instance, *entries: UsageEntry, currency: str = "EUR") -> None:
    await instance.rookery.db.write(lambda tx: ledger.add_entries(tx, entries, currency=currency))


@pytest.fixture
async def server(settings: Settings, clock: FakeClock) -> AsyncIterator[Instance]:
    """A server with EUR as its currency, without services."""
    async with run_instance(replace(settings, currency="EUR"), clock) as running:
        yield running


async def test_months_and_ranges_are_selected(server: Instance) -> None:
    """A range of days, a month by number or by name, or the last days; days are in UTC."""
    for day in ("2026-09-30", "2026-10-01", "2026-10-31", "2026-11-01", "2026-11-23"):
        await _add(server, _make_entry(server, day=day))

    async def days(query: str) -> Sequence[object]:
        return [row[0] for row in await read_groups(server.admin, f"{query}&by=day", "day")]

    assert await days("?month=last") == ["2026-10-31", "2026-10-01"]
    assert await days("?month=2026-10") == ["2026-10-31", "2026-10-01"]
    assert await days("?month=this") == ["2026-11-23", "2026-11-01"]
    assert await days("?last=1d") == ["2026-11-23"]
    assert await days("?since=2026-10-31&until=2026-11-01") == ["2026-11-01", "2026-10-31"]
    assert await days("?since=2026-11-02") == ["2026-11-23"]
    assert await days("?last=90d") == ["2026-11-23", "2026-11-01", "2026-10-31", "2026-10-01", "2026-09-30"]
    report = await read_report(server.admin, "?month=last&by=month")
    assert (report["since"], report["until"], report["data"][0]["month"]) == ("2026-10-01", "2026-10-31", "2026-10")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?since=2026-11-02&until=2026-11-01", "since"),
        ("?month=2026-13", "month"),
        ("?month=last&last=7d", "month"),
        ("?last=7d&since=2026-11-01", "last"),
        ("?last=0d", "last"),
        ("?by=colour", "by"),
        ("?by=", "by"),
        ("?kind=magic", "kind"),
        ("?from=2026-11-01", "from"),
        ("?format=xml", "format"),
    ],
)
async def test_an_invalid_query_names_its_parameter(server: Instance, query: str, field: str) -> None:
    """The error has the parameter and what is allowed."""
    response = await server.admin.get(f"{USAGE}{query}")

    assert response.status_code == 422
    assert any(name.startswith(field) for name in response.json()["errors"]), response.text


async def test_groups_are_sorted_by_cost_and_filtered(server: Instance) -> None:
    """The most expensive group is first; each field groups and filters; an empty value is one of its own."""
    await _add(
        server,
        _make_entry(server, model="small", cost_nanos=5),
        _make_entry(server, model="large", cost_nanos=7, key_id=""),
        _make_entry(server, kind=UsageKind.SESSION, model="large", agent_id="rook", cost_nanos=9),
    )

    assert await read_groups(server.admin, "?by=model", "model", "cost") == [("large", 16e-9), ("small", 5e-9)]
    assert await read_groups(server.admin, "?by=key", "key_id", "cost") == [("key", 14e-9), (None, 7e-9)]
    assert await read_groups(server.admin, "?by=agent&by=kind", "agent_id", "kind") == [(None, "generation"), ("rook", "session")]
    assert await read_groups(server.admin, "?by=model&key_id=", "model") == [("large",)]
    assert await read_groups(server.admin, "?by=kind&model=large&kind=session,judge", "kind", "cost") == [("session", 9e-9)]
    assert await read_groups(server.admin, "?by=model&agent_id=rook", "model", "reported_cost") == [("large", 9e-9)]


async def test_sums_of_small_amounts_are_exact(server: Instance) -> None:
    """Ten times 0.1 is 1, because amounts are integers; floats would sum to 0.9999999999999999."""
    for number in range(10):
        await _add(server, _make_entry(server, model=f"model {number}", cost_nanos=100_000_000))

    assert (await read_report(server.admin))["totals"][0]["cost"] == 1.0


async def test_currencies_are_never_mixed(server: Instance) -> None:
    """Amounts from before a change of the setting stay in their currency; rows from before currencies count as the setting."""
    await _add(server, _make_entry(server, cost_nanos=1), currency="USD")
    await _add(server, _make_entry(server, cost_nanos=2), currency="EUR")
    await _add(server, _make_entry(server, cost_nanos=4), currency="")

    report = await read_report(server.admin, "?by=model")
    assert [(group["currency"], group["cost"]) for group in report["data"]] == [("EUR", 6e-9), ("USD", 1e-9)]
    assert [(total["currency"], total["cost"]) for total in report["totals"]] == [("EUR", 6e-9), ("USD", 1e-9)]


async def test_pages_follow_each_other_by_cursor(server: Instance) -> None:
    """Every group is on one page, and the totals of each page are those of all."""
    await _add(server, *(_make_entry(server, model=f"model {number}", cost_nanos=number % 3) for number in range(7)))
    first = await read_report(server.admin, "?by=model&per_page=3")
    models, cursor = [group["model"] for group in first["data"]], first["meta"]["next_cursor"]
    while cursor is not None:
        page = await read_report(server.admin, f"?by=model&per_page=3&cursor={cursor}")
        assert page["totals"] == first["totals"]
        models += [group["model"] for group in page["data"]]
        cursor = page["meta"]["next_cursor"]

    assert (sorted(models), first["meta"]["total"]) == ([f"model {number}" for number in range(7)], 7)
    other = await server.admin.get(f"{USAGE}?by=key&per_page=3&cursor={first['meta']['next_cursor']}")
    assert other.status_code == 422


@pytest.mark.parametrize("accept", [None, "text/csv", "text/csv, application/json;q=0.5"])
async def test_csv_has_all_groups_and_no_formulas(server: Instance, accept: str | None) -> None:
    """CSV for spreadsheets, by `format` or by Accept. A name that a spreadsheet would calculate is escaped."""
    names = ["=1+1", "@cmd", "-2+3", "plain"]
    await _add(server, *(_make_entry(server, model=name, agent_id=name, cost_nanos=45_000) for name in names))
    query = "?by=model,agent&per_page=1"
    response = await (server.admin.get(f"{USAGE}{query}&format=csv") if accept is None else server.admin.get(USAGE + query, Accept=accept))

    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert "usage-2026-10-25-2026-11-23.csv" in response.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(response.text, newline="")))
    assert sorted((row["model"], row["agent_id"]) for row in rows) == sorted((name, name) for name in ("'=1+1", "'@cmd", "'-2+3", "plain"))
    assert {(row["cost"], row["currency"]) for row in rows} == {("0.000045", "EUR")}
    assert (await server.admin.get(f"{USAGE}?by=model", Accept="*/*")).json()["data"] != []
    assert (await server.admin.get(f"{USAGE}?by=model&format=json", Accept="text/csv")).json()["data"] != []


async def test_a_workspace_sees_its_own_usage_alone(server: Instance) -> None:
    """Walls: without platform:workspaces, other workspaces are not found, and their usage is in no sum."""
    other_id = await server.workspace("Other")
    other = await server.api_key(workspace_id=other_id)
    await _add(server, _make_entry(server), _make_entry(server, workspace_id=other_id, model="theirs"))

    assert await read_groups(server.admin, "?by=workspace,model", "workspace_id", "model") == [(server.workspace_id, "small")]
    assert await read_groups(other, "?by=model", "model") == [("theirs",)]
    everything = await server.api_key("*")
    assert (await everything.get(f"{USAGE}?workspace={other_id}")).status_code == 404
    assert (await everything.get(f"{USAGE}?workspace=all")).status_code == 403
    assert (await (await server.api_key("content.read")).get(USAGE)).status_code == 403


async def test_the_operator_sees_all_workspaces(server: Instance) -> None:
    """With platform:workspaces, the report covers one other workspace, or all with their names and the server itself."""
    other_id = await server.workspace("Other")
    operator = await server.api_key("usage:read", "platform:workspaces")
    await _add(
        server,
        _make_entry(server),
        _make_entry(server, workspace_id=other_id, cost_nanos=9),
        _make_entry(server, workspace_id=0, kind=UsageKind.EMBEDDING, cost_nanos=1),
    )

    everything = await read_groups(operator, "?workspace=all&by=workspace", "workspace_id", "workspace_name", "cost")
    assert [(row[0], row[2]) for row in everything] == [(server.workspace_id, 1.0), (other_id, 9e-9), (0, 1e-9)]
    assert [row[1] for row in everything[1:]] == ["Other", None]
    assert await read_groups(operator, f"?workspace={other_id}&by=workspace", "workspace_name", "calls") == [("Other", 1)]
    assert (await operator.get(f"{USAGE}?workspace=999999")).status_code == 404


async def test_a_key_with_tool_lists_sees_only_these_tools(server: Instance) -> None:
    """The allow-lists of a key limit the tools of the report, as they limit the analytics of tools."""
    tools = ("git/log", "git/push", "web/fetch")
    await _add(server, *(_make_entry(server, kind=UsageKind.TOOL_CALL, model="", tool=tool, cost_nanos=0) for tool in tools))
    one_server = await server.agent_key("usage:read", restrictions=KeyRestrictions(servers=frozenset({"git"})))
    one_tool = await server.agent_key("usage:read", restrictions=KeyRestrictions(tools=("git/l*",)))

    assert sorted(await read_groups(one_server, "?by=tool", "tool")) == [("git/log",), ("git/push",)]
    assert await read_groups(one_tool, "?by=tool", "tool") == [("git/log",)]
    assert (await read_report(one_tool, "?kind=tool_call"))["totals"][0]["calls"] == 1


async def test_a_deleted_key_keeps_its_name(server: Instance) -> None:
    """Last month's cost says by whom, also if the key was deleted since."""
    key = await server.api_key()
    await _add(server, _make_entry(server, key_id=key.key_id))
    assert (await server.admin.send("DELETE", f"/api/v1/api-keys/{key.key_id}")).status_code == 204

    assert await read_groups(server.admin, "?by=key", "key_id", "key_name") == [(key.key_id, "test")]


async def test_a_deleted_workspace_leaves_no_usage(server: Instance) -> None:
    """Deleting a workspace deletes its sums, too."""
    other_id = await server.workspace("Other")
    operator = await server.api_key("usage:read", "platform:workspaces")
    await _add(server, _make_entry(server, workspace_id=other_id))
    assert (await operator.send("DELETE", f"/api/v1/workspaces/{other_id}")).status_code == 200

    assert (await read_report(operator, "?workspace=all"))["data"] == []


async def test_a_report_over_a_hundred_thousand_rows_takes_less_than_a_second(server: Instance) -> None:
    """Sums by day answer within a second, with totals and the number of groups, and a month reads only its days."""
    first = date(2026, 11, 23) - timedelta(days=99)
    entries = [
        _make_entry(server, day=(first + timedelta(days=day)).isoformat(), key_id=f"key {key}", model=f"model {model}")
        for day in range(100)
        for key in range(50)
        for model in range(20)
    ]
    await _add(server, *entries)
    with Stopwatch() as watch:
        report = await read_report(server.admin, "?last=100d&by=key,model&per_page=100")

    assert (report["meta"]["total"], report["totals"][0]["calls"]) == (1_000, 100_000)
    assert watch.reference_s < 1.0
