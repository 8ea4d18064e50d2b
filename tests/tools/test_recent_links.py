"""The links of results in the record store: which process, key and workspace finds them, their limits and their end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import select

from rookery.access.models import LIVE, TEST, Caller
from rookery.kernel.clock import Clock, to_micros, utc_now
from rookery.kernel.db import Database
from rookery.tools.recent_links import MAX_LINKS_PER_KEY, MAX_LINKS_PER_WORKSPACE, RETENTION, RecentLinks
from rookery.tools.store.recent_links import tool_recent_links
from tests.conftest import OPERATOR, FakeClock, Instance
from tests.tools.makers import make_caller, make_http_server

ANNA, BEN = make_caller(key_id="anna"), make_caller(key_id="ben")
SANDBOX = make_caller(key_id="anna", workspace_id=2)
NOTES, WIKI = make_http_server("http://127.0.0.1:1/mcp", id="notes"), make_http_server("http://127.0.0.1:1/mcp", id="wiki")
REPORT = "https://example.org/report.pdf?signature=0f1e2d"


@asynccontextmanager
async def _process(database: Database, clock: Clock = utc_now) -> AsyncGenerator[RecentLinks]:
    """The links as one process has them. At the end of the block, they are written."""
    links = RecentLinks(database, clock)
    yield links
    await links.aclose()


async def _find(database: Database, caller: Caller, uri: str) -> tuple[str, frozenset[str]] | None:
    """Find a link in a process that has just started."""
    return await RecentLinks(database).find_link(caller, uri)


async def _list_rows(database: Database) -> list[tuple[int, str]]:
    """Return the workspace and key of each stored link."""
    rows = await database.read(lambda tx: tx.fetch_all(select(tool_recent_links)))
    return [(row.integer("workspace_id"), row.text("key_id")) for row in rows]


async def test_a_link_is_found_by_another_process_for_its_key_alone(database: Database) -> None:
    """The key and the workspace are in the query; each server that gave the link is found."""
    for server in (NOTES, WIKI):
        async with _process(database) as links:
            links.record(ANNA, server, [REPORT, REPORT])

    assert await _find(database, ANNA, REPORT) == (REPORT, {"notes", "wiki"})
    assert await _find(database, BEN, REPORT) is None
    assert await _find(database, SANDBOX, REPORT) is None
    assert await _find(database, ANNA, "https://example.org/report.pdf") is None


@pytest.mark.parametrize(
    ("uri", "decoded"),
    [
        ("https://example.org/a%20b.pdf", "https://example.org/a b.pdf"),
        ("file:///t%C3%BCr", "file:///tür"),
        ("https://example.org/a b", "https://example.org/a b"),
        ("memo://\ud800", "memo://\ud800"),
    ],
)
async def test_a_link_is_found_if_its_escapes_were_decoded(database: Database, uri: str, decoded: str) -> None:
    """The path of an HTTP request has the link without its escapes."""
    async with _process(database) as links:
        links.record(ANNA, NOTES, [uri])

    assert await _find(database, ANNA, decoded) == (uri, {"notes"})
    assert await _find(database, ANNA, uri) == (uri, {"notes"})


async def test_the_store_has_no_text_of_a_link(database: Database) -> None:
    """An address may contain a signature that opens it."""
    async with _process(database) as links:
        links.record(ANNA, NOTES, [REPORT])

    (row,) = await database.read(lambda tx: tx.fetch_all(select(tool_recent_links)))
    assert not any("example" in str(value) or "0f1e2d" in str(value) for value in row.values)


async def test_a_key_and_a_workspace_have_at_most_their_number_of_links(database: Database, clock: FakeClock) -> None:
    """The links that were given first are dropped, also of one result with many links; another workspace loses none."""
    clock.at = utc_now()
    async with _process(database, clock) as links:
        links.record(SANDBOX, NOTES, [REPORT])
        links.record(ANNA, NOTES, ["memo://first", REPORT])
        clock.advance(seconds=1)
        links.record(ANNA, NOTES, [f"memo://{number}" for number in range(3 * MAX_LINKS_PER_KEY)])
        clock.advance(seconds=1)
        links.record(ANNA, NOTES, [REPORT])
    of_anna = await _list_rows(database)

    assert sorted(set(of_anna)) == [(1, "anna"), (2, "anna")]
    assert len(of_anna) == MAX_LINKS_PER_KEY + 1
    assert await _find(database, ANNA, REPORT) is not None
    assert await _find(database, ANNA, "memo://first") is None
    assert await _find(database, ANNA, f"memo://{3 * MAX_LINKS_PER_KEY - 1}") is not None

    for number in range(MAX_LINKS_PER_WORKSPACE // MAX_LINKS_PER_KEY):
        clock.advance(seconds=1)
        async with _process(database, clock) as links:
            links.record(make_caller(key_id=f"key-{number}"), NOTES, [f"memo://{name}" for name in range(MAX_LINKS_PER_KEY)])
    rows = await _list_rows(database)

    assert sum(workspace_id == 1 for workspace_id, _ in rows) == MAX_LINKS_PER_WORKSPACE
    assert await _find(database, ANNA, REPORT) is None
    assert await _find(database, SANDBOX, REPORT) is not None


async def test_a_link_ends_a_week_after_it_was_last_given(database: Database, clock: FakeClock) -> None:
    """Each result that has the link renews it."""
    async with _process(database, clock) as links:
        links.record(ANNA, NOTES, [REPORT, "memo://1"])
    clock.advance(seconds=60)
    async with _process(database, clock) as links:
        links.record(ANNA, NOTES, [REPORT])
    clock.at += RETENTION - timedelta(seconds=30)

    assert await RecentLinks(database, clock).delete_old() == 1
    assert await _find(database, ANNA, REPORT) is not None
    assert await _find(database, ANNA, "memo://1") is None


async def test_a_link_with_each_result_is_renewed_but_not_written_each_time(database: Database, clock: FakeClock) -> None:
    """A tool that returns the same link with each call costs one write in ten seconds."""
    times: list[int] = []
    for _ in range(4):
        async with _process(database, clock) as links:
            for _ in range(3):
                links.record(ANNA, NOTES, [REPORT])
                clock.advance(seconds=5)
        (row,) = await database.read(lambda tx: tx.fetch_all(select(tool_recent_links)))
        times.append(row.integer("given_at"))

    assert [later - earlier for earlier, later in pairwise(times)] == [15_000_000] * 3
    assert times[0] == to_micros(clock() - timedelta(seconds=50))


async def test_the_links_of_a_revoked_or_deleted_key_and_of_a_deleted_workspace_are_dropped(instance: Instance) -> None:
    """The row of a key ends with it, also in the sandbox of a test key; those of other keys stay."""
    platform, workspace_id = instance.rookery, instance.workspace_id
    doomed = await instance.workspace("doomed")
    keys = platform.access.api_keys
    deleted, test, other = [await instance.api_key(environment=environment) for environment in (LIVE, TEST, LIVE)]
    agent, foreign = await instance.agent_key(), await instance.api_key(workspace_id=doomed)
    sandbox = (await keys.get(workspace_id, test.key_id)).key.tenant_id
    owners = [(workspace_id, key.key_id) for key in (deleted, other, agent)] + [(sandbox, test.key_id), (doomed, foreign.key_id)]
    async with _process(platform.db) as links:
        for tenant, key_id in owners:
            links.record(make_caller(key_id=key_id, workspace_id=tenant), NOTES, [REPORT])
    assert sorted(await _list_rows(platform.db)) == sorted(owners)

    await keys.delete(workspace_id, deleted.key_id, by=OPERATOR)
    await keys.delete(workspace_id, test.key_id, by=OPERATOR)
    await platform.access.agent_keys.revoke(workspace_id, agent.key_id, by=OPERATOR)
    await platform.access.workspaces.delete(doomed, by=OPERATOR)

    assert sandbox != workspace_id
    assert await _list_rows(platform.db) == [(workspace_id, other.key_id)]
