"""The row of every call: when it is written and what it contains."""

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

from rookery.kernel.db import Database, Tx
from rookery.kernel.db.transaction import Dialect
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.tools.call_options import CallOptions
from rookery.tools.calling.analytics import CallAnalytics
from rookery.tools.calling.call_buffer import CallBuffer, redact_arguments, redact_text
from rookery.tools.errors import SessionNotOpen
from rookery.tools.events import ToolCalled
from rookery.tools.models import CallRecord, ToolCallFilter
from rookery.tools.store import calls as store
from tests.conftest import eventually
from tests.processes import run_server
from tests.stopwatch import Stopwatch
from tests.tools.conftest import Start
from tests.tools.makers import Tools, make_call_record, make_caller, make_odd_entry

T = TypeVar("T")
CALLER = make_caller()
KEY = "sk_live_" + "a1B2" * 8


async def stored_rows(db: Database) -> list[CallRecord]:
    """Return the rows on disk, latest first."""
    return await db.read(lambda tx: store.CALLS.find_all(tx, 1, "-called_at", "-id"))


class FailingDatabase:
    """A record store that counts its transactions, and fails them on demand."""

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

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        """Count the transaction, and run it unless the store fails."""
        self.writes += 1
        if self.is_failing:
            raise EngineUnavailable("database", "it is down")
        return await self._db.write(work, is_synced=is_synced)

    async def read(self, work: Callable[[Tx], T]) -> T:
        """Run the transaction, and record how many run at the same time."""
        self.reading += 1
        self.max_reading = max(self.max_reading, self.reading)
        try:
            return await self._db.read(work)
        finally:
            self.reading -= 1

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        """Run *work* as `read` does."""
        return await self.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        """Forward to the wrapped database."""
        return await self._db.lookup(work)

    async def close(self) -> None:
        """Forward to the wrapped database."""
        await self._db.close()


async def test_rows_are_written_shortly_after_and_in_one_transaction(db: Database) -> None:
    """Rows are written right after the responses, in few transactions; events follow once they are on disk."""
    failing_db, bus, events = FailingDatabase(db), EventBus(), list[ToolCalled]()
    bus.subscribe(ToolCalled, events.append)
    buffer = CallBuffer(failing_db, bus=bus)

    for number in range(300):
        buffer.add(make_call_record(number))
    assert events == []
    await eventually(lambda: len(events) == 300)

    assert len(await stored_rows(db)) == 300
    assert failing_db.writes == 1
    await buffer.aclose()


async def test_rows_wait_for_a_store_that_is_down_and_are_written_once(db: Database) -> None:
    """No row is lost or written twice when the store recovers."""
    failing_db = FailingDatabase(db)
    buffer = CallBuffer(failing_db)
    failing_db.is_failing = True
    buffer.add(make_call_record(1))
    with pytest.raises(EngineUnavailable):
        await buffer.flush()

    failing_db.is_failing = False
    buffer.add(make_call_record(2))
    await buffer.flush()
    await buffer.flush()

    assert {row.id for row in await stored_rows(db)} == {make_call_record(1).id, make_call_record(2).id}
    await buffer.aclose()


async def test_a_call_whose_row_cannot_be_stored_is_rejected(start: Start) -> None:
    """Every call needs a row, so with too many unwritten rows a call fails with 503 before the tool is called."""
    tools: Tools = await start({"odd": make_odd_entry()})
    failing_db = FailingDatabase(tools.db)
    tools.runner._buffer = CallBuffer(failing_db, max_calls=2)  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - 10,000 calls would take long
    failing_db.is_failing = True
    for _ in range(2):
        await tools.runner.call(CALLER, "odd", "count", {})

    with pytest.raises(EngineUnavailable):
        await tools.runner.call(CALLER, "odd", "count", {})
    failing_db.is_failing = False
    outcome = await tools.runner.call(CALLER, "odd", "count", {})

    assert json.loads(outcome.result or b"")["content"][0]["text"] == "3"
    await tools.runner._buffer.aclose()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as above
    assert len(await stored_rows(tools.db)) == 3


async def test_a_row_that_no_store_accepts_does_not_block_others(db: Database) -> None:
    """No store accepts half a surrogate pair; such a row is logged and not retried."""
    buffer = CallBuffer(db)
    for number, tool in enumerate(("a", "\ud800", "b")):
        buffer.add(make_call_record(number, tool=tool))

    await buffer.flush()

    assert {row.tool for row in await stored_rows(db)} == {"a", "b"}
    assert buffer.lost == 1
    await buffer.aclose()


@pytest.mark.parametrize("signal_name", ["stop", "kill"])
async def test_a_stopped_server_loses_no_row_and_a_killed_one_only_its_last(tmp_path: Path, signal_name: str) -> None:
    """A stopped server loses no row; a killed one loses at most the rows that were not written yet."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"odd": make_odd_entry()}}))

    def count_rows() -> int:
        with closing(sqlite3.connect(folder / "records.db")) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return int(connection.execute("SELECT count(*) FROM tool_calls").fetchone()[0])

    with run_server(folder) as server:
        for _ in range(10):
            assert server.client.post("/api/v1/mcp/servers/odd/tools/echo", json={"text": "hi"}).status_code == 200
        if signal_name == "kill":
            await eventually(lambda: count_rows() == 10)
        for _ in range(3):
            server.client.post("/api/v1/mcp/servers/odd/tools/echo", json={"text": "hi"})
        if signal_name == "kill":
            server.kill()
        else:
            server.stop()

    assert count_rows() in ({13} if signal_name == "stop" else {10, 11, 12, 13})


async def test_arguments_are_stored_only_if_configured(start: Start) -> None:
    """Arguments only by setting, redacted."""
    without = await start({"odd": make_odd_entry()})
    await without.runner.call(CALLER, "odd", "echo", {"text": "hi"})
    await without.call_buffer.flush()
    assert [row.arguments for row in await stored_rows(without.db)] == [None]

    with_them = await start({"odd": make_odd_entry()}, keep_arguments=True)
    await with_them.runner.call(CALLER, "odd", "echo", {"text": f"my key is {KEY}"})
    await with_them.call_buffer.flush()

    assert (await stored_rows(with_them.db))[0].arguments == '{"text":"my key is sk_live_…"}'


def test_stored_arguments_contain_no_secrets() -> None:
    """Secrets are recognised by argument names at any depth, and by their form."""
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

    redacted = redact_arguments(arguments)

    assert json.loads(redacted) == {
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
def test_any_text_of_a_tool_server_can_be_stored(text: str, max_length: int) -> None:
    """Both stores take UTF-8 without NUL."""
    redacted = redact_text(text, max_length)

    assert redacted.encode().decode() == redacted
    assert "\x00" not in redacted
    assert len(redacted) <= max_length


class OneOpenSession:
    """Agent sessions with a single open one."""

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return whether the ids are those of the open session."""
        return (workspace_id, session_id) == (1, "sess_1")


async def test_a_call_of_a_session_that_is_not_open_is_rejected(start: Start) -> None:
    """An unknown or ended `X-Session-ID` is 422, and the call still has a row."""
    tools = await start({"odd": make_odd_entry()}, agent_sessions=OneOpenSession())

    outcome = await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"}, options=CallOptions(session_id="sess_1"))
    for session_id in ("sess_2", "sess_1" * 100):
        with pytest.raises(SessionNotOpen) as error:
            await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"}, options=CallOptions(session_id=session_id))
        assert error.value.status == 422
    await tools.call_buffer.flush()

    assert outcome.error is None
    sessions_and_codes = [(row.session_id, row.code) for row in reversed(await stored_rows(tools.db))]
    assert sessions_and_codes == [("sess_1", None), ("sess_2", "session_not_open"), (("sess_1" * 100)[:100], "session_not_open")]


async def test_closing_does_not_wait_for_a_store_that_is_down(db: Database) -> None:
    """Closing drops unwritten rows and counts them as lost."""
    failing_db = FailingDatabase(db)
    buffer = CallBuffer(failing_db)
    failing_db.is_failing = True
    buffer.add(make_call_record(1))
    assert (buffer.unwritten, buffer.lost) == (1, 0)

    with Stopwatch() as watch:
        await buffer.aclose()

    assert watch.reference_s < 5

    assert (buffer.unwritten, buffer.lost) == (0, 1)

    assert await stored_rows(db) == []


@pytest.mark.parametrize(("workspaces", "max_reading"), [(1, 1), (3, 2)])
async def test_reports_run_one_at_a_time_per_workspace_and_two_in_all(db: Database, workspaces: int, max_reading: int) -> None:
    """A report over many rows takes seconds, so the limit leaves database readers to other requests."""
    counting_db = FailingDatabase(db)
    analytics = CallAnalytics(counting_db, CallBuffer(counting_db))

    callers = [make_caller(workspace_id=1 + number % workspaces) for number in range(12)]
    loading = (analytics.load_report(caller, ToolCallFilter(workspace_id=caller.workspace_id), "tool", limit=5) for caller in callers)
    reports = await asyncio.gather(*loading)

    assert {report.total.calls for report in reports} == {0}
    assert counting_db.max_reading == max_reading
