"""The row that every call leaves: when it is written, what of a call stands in it (D-38)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database, Tx
from rookery.kernel.db.transaction import Dialect
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus, ToolCalled
from rookery.tools.call_stats import ToolCallFilter
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.call_buffer import CallBuffer
from rookery.tools.calling.redaction import redact_arguments, redact_text
from rookery.tools.calling.tool_call import CallOptions
from rookery.tools.errors import SessionNotOpen
from rookery.tools.models import CallRecord
from rookery.tools.store import calls as store
from tests.conftest import eventually
from tests.processes import run_server
from tests.tools.conftest import Start
from tests.tools.makers import Tools, make_caller, make_odd_entry

T = TypeVar("T")
CALLER = make_caller()
KEY = "sk_live_" + "a1B2" * 8


def row(number: int, **fields: object) -> CallRecord:
    """Make a row."""
    values: dict[str, object] = {
        "id": f"{number:032d}",
        "workspace_id": 1,
        "server_id": "s",
        "tool": "t",
        "key_id": "k",
        "key_kind": "api",
        "agent_id": None,
        "session_id": None,
        "success": True,
        "code": None,
        "duration_ms": 1.0,
        "arguments_bytes": 2,
        "result_bytes": 0,
        "request_id": "r",
        "called_at": utc_now(),
        **fields,
    }
    return CallRecord(**values)  # pyright: ignore[reportArgumentType] - fields by name


async def stored_rows(db: Database) -> list[CallRecord]:
    """Return what is on the disk."""
    return await db.read(lambda tx: store.list_latest_calls(tx, workspace_id=1, limit=2000))


class FailingDatabase:
    """A record store that counts its transactions, and refuses them while it is ill."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.is_failing = False
        self.writes = 0
        self.reading = 0
        self.max_reading = 0

    @property
    def dialect(self) -> Dialect:
        """The dialect of the wrapped database."""
        return self._db.dialect

    async def write(self, work: Callable[[Tx], T]) -> T:
        """Count, and do it if well."""
        self.writes += 1
        if self.is_failing:
            raise EngineUnavailable("database", "it has a cold")
        return await self._db.write(work)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Count how many read at once."""
        self.reading += 1
        self.max_reading = max(self.max_reading, self.reading)
        try:
            return await self._db.read(work)
        finally:
            self.reading -= 1

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Pass on."""
        return await self._db.lookup(work)

    async def close(self) -> None:
        """Pass on."""
        await self._db.close()


async def test_rows_are_written_soon_and_many_at_once(db: Database) -> None:
    """D-38: right after the answers, in few transactions; told of once they are on the disk."""
    sick, bus, heard = FailingDatabase(db), EventBus(), list[ToolCalled]()
    bus.subscribe(ToolCalled, heard.append)
    journal = CallBuffer(sick, bus=bus)

    for number in range(300):
        journal.add(row(number))
    assert heard == []
    await eventually(lambda: len(heard) == 300)

    assert len(await stored_rows(db)) == 300
    assert sick.writes == 1
    await journal.aclose()


async def test_rows_wait_for_a_store_that_is_down_and_are_written_once(db: Database) -> None:
    """D-38: no row is lost by a store that comes back, nor written twice."""
    sick = FailingDatabase(db)
    journal = CallBuffer(sick)
    sick.is_failing = True
    journal.add(row(1))
    with pytest.raises(EngineUnavailable):
        await journal.flush()

    sick.is_failing = False
    journal.add(row(2))
    await journal.flush()
    await journal.flush()

    assert {each.id for each in await stored_rows(db)} == {row(1).id, row(2).id}
    await journal.aclose()


async def test_a_call_that_could_leave_no_row_is_not_made(start: Start) -> None:
    """D-38: every call leaves a row, so with too many unwritten none is made: 503, before the tool is asked."""
    tools: Tools = await start({"odd": make_odd_entry()})
    sick = FailingDatabase(tools.db)
    tools.runner._buffer = CallBuffer(sick, max_calls=2)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - 10,000 calls would take long
    sick.is_failing = True
    for _ in range(2):
        await tools.runner.call(CALLER, "odd", "count", {})

    with pytest.raises(EngineUnavailable):
        await tools.runner.call(CALLER, "odd", "count", {})
    sick.is_failing = False
    outcome = await tools.runner.call(CALLER, "odd", "count", {})

    assert json.loads(outcome.result or b"")["content"][0]["text"] == "3"
    await tools.runner._buffer.aclose()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as above
    assert len(await stored_rows(tools.db)) == 3


async def test_a_row_that_no_store_takes_holds_up_no_other(db: Database) -> None:
    """D-38: half a surrogate is no text for any store; such a row is logged, not tried for ever."""
    journal = CallBuffer(db)
    for number, tool in enumerate(("a", "\ud800", "b")):
        journal.add(row(number, tool=tool))

    await journal.flush()

    assert {each.tool for each in await stored_rows(db)} == {"a", "b"}
    assert journal.lost == 1
    await journal.aclose()


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_server_that_ends_has_written_every_row_but_those_of_its_last_moment(tmp_path: Path, how: str) -> None:
    """D-38: one that is stopped loses none; one that is killed what it answered in the last moment, and nothing that was written."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"odd": make_odd_entry()}}))

    def count() -> int:
        with closing(sqlite3.connect(folder / "records.db")) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return int(raw.execute("SELECT count(*) FROM tool_calls").fetchone()[0])

    with run_server(folder) as server:
        for _ in range(10):
            assert server.client.post("/api/v1/mcp/servers/odd/tools/echo", json={"text": "hi"}).status_code == 200
        if how == "kill":
            await eventually(lambda: count() == 10)
        for _ in range(3):
            server.client.post("/api/v1/mcp/servers/odd/tools/echo", json={"text": "hi"})
        if how == "kill":
            server.kill()
        else:
            server.stop()

    assert count() in ({13} if how == "stop" else {10, 11, 12, 13})


async def test_arguments_are_kept_only_where_the_operator_wants_it(start: Start) -> None:
    """D-38: arguments only by setting, redacted."""
    without = await start({"odd": make_odd_entry()})
    await without.runner.call(CALLER, "odd", "echo", {"text": "hi"})
    await without.call_buffer.flush()
    assert [each.arguments for each in await stored_rows(without.db)] == [None]

    with_them = await start({"odd": make_odd_entry()}, keep_arguments=True)
    await with_them.runner.call(CALLER, "odd", "echo", {"text": f"my key is {KEY}"})
    await with_them.call_buffer.flush()

    assert (await stored_rows(with_them.db))[0].arguments == '{"text":"my key is sk_live_…"}'


def test_secrets_are_no_part_of_kept_arguments() -> None:
    """D-38: by the names of their arguments, at any depth, and by what they look like."""
    arguments: dict[str, object] = {
        "user": "ada",
        "password": "hunter2",
        "auth": {"apiKey": "k", "list": [{"Authorization": "Bearer x"}, {"access_token": 1}], "pin": 1234},
        "text": f"see {KEY}",
        "pinned": True,
        "pwd": "p",
        "jwt": "j",
        "connectionString": "Server=db",
        "accessKey": "a",
    }

    shown = redact_arguments(arguments)

    assert json.loads(shown) == {
        "user": "ada",
        "password": "…",
        "auth": {"apiKey": "…", "list": [{"Authorization": "…"}, {"access_token": "…"}], "pin": "…"},
        "text": "see sk_live_…",
        "pinned": True,
        "pwd": "…",
        "jwt": "…",
        "connectionString": "…",
        "accessKey": "…",
    }
    assert len(redact_arguments({"text": "x" * 100_000})) == 4096


@given(st.text(alphabet=st.characters(), max_size=200), st.integers(1, 50))
def test_whatever_an_upstream_says_can_be_kept(text: str, most: int) -> None:
    """D-38: both stores take UTF-8 without NUL."""
    shown = redact_text(text, most)

    assert shown.encode().decode() == shown
    assert "\x00" not in shown
    assert len(shown) <= most


class Open:
    """Agent sessions, of which one is open."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Tell whether it is that one."""
        return (workspace_id, session_id) == (1, "sess_1")


async def test_a_call_of_a_session_that_is_not_open_is_refused(start: Start) -> None:
    """D-38: `X-Session-ID` unknown or ended: 422; a row tells of that too."""
    tools = await start({"odd": make_odd_entry()}, agent_sessions=Open())

    done = await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"}, options=CallOptions(session_id="sess_1"))
    for session_id in ("sess_2", "sess_1" * 100):
        with pytest.raises(SessionNotOpen) as refused:
            await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"}, options=CallOptions(session_id=session_id))
        assert refused.value.status == 422
    await tools.call_buffer.flush()

    assert done.error is None
    found = [(each.session_id, each.code) for each in reversed(await stored_rows(tools.db))]
    assert found == [("sess_1", None), ("sess_2", "session_not_open"), (("sess_1" * 100)[:100], "session_not_open")]


async def test_closing_does_not_wait_for_a_store_that_is_down(db: Database) -> None:
    """D-05: a stop is a stop. Issue 14 (attack 9): the rows that are lost are counted."""
    sick = FailingDatabase(db)
    journal = CallBuffer(sick)
    sick.is_failing = True
    journal.add(row(1))
    assert (journal.unwritten, journal.lost) == (1, 0)

    await asyncio.wait_for(journal.aclose(), 5)

    assert (journal.unwritten, journal.lost) == (0, 1)

    assert await stored_rows(db) == []


@pytest.mark.parametrize(("workspaces", "at_once"), [(1, 1), (3, 2)])
async def test_reports_leave_readers_to_others(db: Database, workspaces: int, at_once: int) -> None:
    """D-38: a report over many rows takes seconds; one of each workspace is read at a time, and two in all."""
    store_of_many = FailingDatabase(db)
    analytics = CallAnalytics(store_of_many, CallBuffer(store_of_many))

    callers = [make_caller(workspace_id=1 + each % workspaces) for each in range(12)]
    asked = (analytics.load_report(each, ToolCallFilter(workspace_id=each.workspace_id), "tool", limit=5) for each in callers)
    reports = await asyncio.gather(*asked)

    assert {report.total.calls for report in reports} == {0}
    assert store_of_many.max_reading == at_once
