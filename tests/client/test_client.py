"""The client against a running server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import cast
from urllib.parse import urlsplit

import httpx2
import pytest

from rookery.kernel.ids import uuid7
from rookery_client import ApiError, AsyncRookery, ConnectionFailed, Rookery
from rookery_client.errors import NotFoundError
from rookery_client.generated.errors import ScopeMissing, Unauthorised, ValidationError
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.fault_proxy import FaultProxy
from tests.processes import Server, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process."""
    with run_server(tmp_path_factory.mktemp("client")) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Rookery]:
    """A client with the first API key."""
    with Rookery(server.url, server.keys["api_key"], timeout_s=HANG_S) as client:
        yield client


def test_a_memory_is_remembered_and_recalled(client: Rookery) -> None:
    """Arguments are the fields of the request, results are models."""
    stored = client.memory.remember(content="We deploy on Tuesdays.", type="decision", org="acme", project="web", wait_ms=5000)
    recalled = client.memory.recall(query="When do we deploy?", org="acme", project="web")
    changed = client.memory.update_memory(stored.id, tags=["deployment"])

    assert (recalled.memories[0].id, recalled.memories[0].content) == (stored.id, "We deploy on Tuesdays.")
    assert (changed.tags, changed.created_at) == (["deployment"], stored.created_at)
    assert client.memory.delete_memory(stored.id) is None
    with pytest.raises(NotFoundError, match="resource_not_found"):
        client.memory.get_memory(stored.id)


def test_iterating_a_list_yields_all_pages(client: Rookery) -> None:
    """Pages as iterators. `items` is one page alone."""
    client.memory.remember_batch(memories=[{"content": f"Fact {number}.", "project": "paged"} for number in range(7)])
    page = client.memory.list_memories(project="paged", per_page=3)
    second = page.next()

    assert (len(page.items), page.total, page.number, page.has_next) == (3, 7, 1, True)
    assert second is not None
    assert (second.number, len(second.items)) == (2, 3)
    assert sorted(memory.content for memory in page) == [f"Fact {number}." for number in range(7)]
    assert len(list(client.memory.list_memories(project="nothing"))) == 0


def test_a_loop_deletes_all_that_it_reads(client: Rookery) -> None:
    """Deleting the entries of a page does not move those of the next."""
    for start in (0, 50):
        client.memory.remember_batch(memories=[{"content": f"Note {start + number}.", "project": "erased"} for number in range(50)])
    deleted = list[str]()
    for memory in client.memory.list_memories(project="erased", per_page=7):
        client.memory.delete_memory(memory.id)
        deleted.append(memory.id)

    assert len(deleted) == len(set(deleted)) == 100
    assert client.memory.list_memories(project="erased").total == 0


async def test_an_asynchronous_loop_reads_each_entry_once(server: Server) -> None:
    """New entries at the beginning of the list do not repeat others; a task is deleted in the middle of its plan."""
    async with AsyncRookery(server.url, server.keys["api_key"], timeout_s=HANG_S) as client:
        await client.memory.remember_batch(memories=[{"content": f"Entry {number}.", "project": "read"} for number in range(40)])
        names = [f"Task {number}" for number in range(20)]
        plan = await client.plans.create_plan(title="Loop", phases=[{"name": "Only", "tasks": [{"name": name} for name in names]}])
        seen, tasks = list[str](), list[str]()
        async for memory in await client.memory.list_memories(project="read", per_page=9):
            seen.append(memory.content)
            await client.memory.remember(content=f"Later entry {len(seen)}.", project="read")
        async for task in await client.plans.list_tasks(plan=plan.id, per_page=3):
            tasks.append(task.name)
            await client.plans.delete_task(task.id)

    assert sorted(seen) == sorted(f"Entry {number}." for number in range(40))
    assert tasks == names


@pytest.mark.parametrize("value", ["u_17", 3.0, 42, True, None, 'a "b" & c=d'])
def test_memories_are_filtered_by_metadata(server: Server, client: Rookery, value: object) -> None:
    """An object in the URL. Values are compared as text."""
    content = f"Ann wants the report of {uuid7()} on Fridays."
    stored = client.memory.remember(content=content, metadata={"user.id": value, "other": 1}, project="x1", wait_ms=5000)
    filters: dict[str, object] = {"user.id": value}
    found = client.memory.list_memories(metadata=filters, project="x1")
    searched = client.memory.search_memories(q="report", metadata={**filters, "other": 1}, project="x1")
    drawn = client.memory.get_memory_map(metadata=filters, project="x1")
    answer = httpx2.get(
        f"{server.url}/v1/brain/memories",
        params={"metadata": json.dumps(filters), "project": "x1"},
        headers={"Authorization": f"Bearer {server.keys['api_key']}"},
    )

    assert [memory.id for memory in found] == [hit.id for hit in searched.hits] == [stored.id]
    assert drawn.total == 1
    assert [memory["id"] for memory in answer.json()["data"]] == [stored.id]
    assert len(client.memory.list_memories(metadata={"user.id": "nobody"}, project="x1").items) == 0
    client.memory.delete_memory(stored.id)


def test_null_clears_a_field_and_unset_keeps_it(client: Rookery) -> None:
    """A PATCH sends what is given, and None as null."""
    plan = client.plans.create_plan(
        title="Release", description="Of the spring.", phases=[{"name": "Build", "tasks": [{"name": "Compile"}]}]
    )
    renamed = client.plans.update_plan(plan.id, title="Summer release")
    cleared = client.plans.update_plan(plan.id, description=None)

    assert (renamed.title, renamed.description) == ("Summer release", "Of the spring.")
    assert (cleared.title, cleared.description) == ("Summer release", "")
    task = client.plans.claim_next_task(plan=plan.id)
    assert task is not None
    assert task.name == "Compile"


def test_errors_have_the_classes_of_their_codes(server: Server, client: Rookery) -> None:
    """A key without the scope, an unknown key, and a wrong field."""
    key = client.keys.create_api_key(name="reader", scopes=["brain:read"])
    with Rookery(server.url, key.plaintext_key) as reader, pytest.raises(ScopeMissing) as missing:
        reader.memory.remember(content="x")
    with Rookery(server.url, "sk_live_" + "x" * 32) as stranger, pytest.raises(Unauthorised):
        stranger.memory.list_memories()
    with pytest.raises(ValidationError) as wrong:
        client.memory.recall(query="", top_k=1000)

    assert missing.value.detail["required_scope"] == "brain:write"
    assert missing.value.request_id
    assert cast("dict[str, object]", wrong.value.detail["errors"]).keys() == {"query", "top_k"}


def test_a_tool_is_called(client: Rookery) -> None:
    """The tools of the built-in server, and a tool's own failure, which is not repeated."""
    tools = client.tools.list_tools("brain").tools
    called = client.tools.call_server_tool("brain", "remember", body={"content": "Called as a tool.", "type": "fact"})

    assert "recall" in {tool.name for tool in tools}
    assert called.success
    with pytest.raises(ApiError):
        client.tools.call_tool(server="brain", tool="recall", arguments={"query": ""})


def test_events_of_a_session_are_streamed(client: Rookery) -> None:
    """Streams as iterators."""
    session = client.sessions.start_session(agent_id="rook", goal="Watch at night").session
    client.sessions.add_session_event(session.id, type="note", message="Something happened.")
    client.sessions.end_session(session.id)
    with client.sessions.stream_session(session.id) as events:
        kinds = [event.event for event in events]

    assert len(kinds) >= 2


async def test_the_asynchronous_client_does_the_same(server: Server) -> None:
    """Sync and async over one core."""
    async with AsyncRookery(server.url, server.keys["api_key"], timeout_s=HANG_S) as client:
        await asyncio.gather(*(client.memory.remember(content=f"Rook {number}.", project="async", type="fact") for number in range(5)))
        contents = [memory.content async for memory in await client.memory.list_memories(project="async", per_page=2)]
        with pytest.raises(NotFoundError):
            await client.plans.get_plan("plan_01954000-0000-7000-8000-000000000001")
        session = (await client.sessions.start_session(agent_id="rook", goal="Watch at day")).session
        await client.sessions.end_session(session.id)
        async with client.sessions.stream_session(session.id) as events:
            count = len([event async for event in events])

    assert sorted(contents) == [f"Rook {number}." for number in range(5)]
    assert count >= 1


async def test_a_lost_answer_stores_nothing_twice(server: Server) -> None:
    """The connection breaks before the answer is complete; the repeated request gets the stored response."""
    key = server.keys["api_key"]
    with FaultProxy(urlsplit(server.url).port or 0) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        proxy.cut_after_bytes = 20
        async with AsyncRookery(url, key, max_retries=0) as client:
            with pytest.raises(ConnectionFailed) as lost:
                await client.memory.remember(content="Stored, but not heard of.", project="lost")
        async with AsyncRookery(url, key, max_retries=50) as client, asyncio.timeout(HANG_S):
            before = proxy.connection_count
            storing = asyncio.create_task(client.memory.remember(content="Stored once.", project="lost"))
            await eventually(lambda: proxy.connection_count >= before + 2)
            proxy.heal()
            stored = await storing
    async with AsyncRookery(server.url, key) as client:
        contents = {memory.id: memory.content async for memory in await client.memory.list_memories(project="lost")}

    assert lost.value.may_have_acted
    assert contents[stored.id] == "Stored once."
    assert sorted(contents.values()) == ["Stored once.", "Stored, but not heard of."]


def test_a_server_that_is_away_is_named() -> None:
    """No response is no `ApiError`, and nothing can have been done."""
    with FaultProxy(1) as proxy, Rookery(f"http://127.0.0.1:{proxy.port}", "sk_live_x", max_retries=1) as client:
        proxy.refuse()
        with pytest.raises(ConnectionFailed, match="list_plans has no response") as away:
            client.plans.list_plans()

    assert not away.value.may_have_acted


def test_a_client_without_a_key_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the argument and the variable."""
    monkeypatch.delenv("ROOKERY_KEY", raising=False)
    with pytest.raises(ValueError, match="ROOKERY_KEY"):
        Rookery("http://127.0.0.1:1")
