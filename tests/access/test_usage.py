"""The use of keys: buffered a moment, never lost while the store is down, added up by day (spec 2.2, 5.3; D-17, D-29)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from sqlalchemy import select

from rookery.access.api_keys import ApiKeys
from rookery.access.models import CallFilter, KeyWithSecret
from rookery.access.store.usage import daily_usage
from rookery.access.usage_log import UsageLog
from rookery.kernel.db import Database, Dialect, Tx
from rookery.kernel.errors import EngineUnavailable
from tests.access.makers import Access
from tests.conftest import OPERATOR, FakeClock, eventually

T = TypeVar("T")


async def record_call(
    access: Access, minted: KeyWithSecret, status: int = 200, route: str = "/v1/brain/recall", address: str = "192.0.2.1"
) -> None:
    """Make one call."""
    (await access.admit(minted, address=address)).record(method="POST", route=route, status=status, duration_ms=2.0)


async def test_use_is_written_by_itself_within_a_second(access: Access) -> None:
    """D-29: without anybody asking for it."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    await record_call(access, minted)

    other = ApiKeys(access.db, access.bcrypt, UsageLog(access.db, access.clock), access.audit, access.clock)
    await eventually(lambda: is_counted(other, workspace, minted, 1))
    await record_call(access, minted)
    await eventually(lambda: is_counted(other, workspace, minted, 2))


async def is_counted(api_keys: ApiKeys, workspace: int, minted: KeyWithSecret, calls: int) -> bool:
    """Tell what another process sees."""
    entry = await api_keys.get(workspace, minted.key.id)
    return entry.usage.call_count == calls


async def test_who_calls_and_then_looks_sees_the_call(access: Access) -> None:
    """Notes 3.4: reads of the same process see what is still in the buffer, each call once."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace)
    for number in range(1, 4):
        access.clock.advance(seconds=1)
        await record_call(access, minted, address=f"192.0.2.{number}")
        use = (await access.agent_keys.get(workspace, minted.key.id)).usage
        assert (use.call_count, use.last_used_at, use.last_used_ip) == (number, access.clock(), f"192.0.2.{number}")
        assert (await access.agent_keys.list_page(workspace, limit=9))[0][0].usage == use


async def test_two_processes_add_up(access: Access) -> None:
    """D-29: counts are added, and the later of two last uses stays, in any order of writing."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    other = UsageLog(access.db, access.clock)
    other.count_request(minted.key.id, 5_000_000, "203.0.113.5")
    for _ in range(3):
        await record_call(access, minted)
    await access.usage.flush()
    await other.close()

    use = (await access.api_keys.get(workspace, minted.key.id)).usage
    assert (use.call_count, use.last_used_at, use.last_used_ip) == (4, access.clock(), "192.0.2.1")


async def test_days_add_up_what_calls_say(access: Access) -> None:
    """D-29: rollups by day (UTC), route and status; they stay when the calls are forgotten after 30 days (D-17)."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    for status, route in ((200, "/a"), (200, "/a"), (404, "/a"), (200, "/b")):
        await record_call(access, minted, status, route)
        await access.usage.flush()
    access.clock.at = datetime(2026, 11, 21, 23, 59, 59, 999_999, tzinfo=UTC)
    await record_call(access, minted, 200, "/a")
    access.clock.advance(seconds=1)
    await record_call(access, minted, 200, "/a")
    assert (await access.usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=2, offset=0))[1] == 6
    access.clock.advance(days=30)

    assert await access.usage.delete_old_calls() == 5
    assert (await access.usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=9, offset=0))[1] == 1
    rows = await access.db.read(
        lambda tx: tx.fetch_all(select(daily_usage).order_by(daily_usage.c.day, daily_usage.c.route, daily_usage.c.status))
    )
    assert [(row.text("day"), row.text("route"), row.integer("status"), row.integer("calls"), row.number("total_ms")) for row in rows] == [
        ("2026-11-21", "/a", 200, 3, 6.0),
        ("2026-11-21", "/a", 404, 1, 2.0),
        ("2026-11-21", "/b", 200, 1, 2.0),
        ("2026-11-22", "/a", 200, 1, 2.0),
    ]


class Failing:
    """A store whose writes fail while it is down."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.is_down = True

    @property
    def dialect(self) -> Dialect:
        return self.db.dialect

    async def write(self, work: Callable[[Tx], T]) -> T:
        if self.is_down:
            raise EngineUnavailable("database", "switched off")
        return await self.db.write(work)

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self.db.read(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await self.db.lookup(work)

    async def close(self) -> None:
        """Do nothing; there is nothing to close."""


async def test_use_outlives_a_store_that_is_down(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-29: what could not be written is kept and written later; counts always, rows up to a bound."""
    monkeypatch.setattr("rookery.access.usage_log._MAX_BUFFERED_CALLS", 4)
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    failing = Failing(access.db)
    usage = UsageLog(failing, access.clock, flush_interval_s=60)

    def call(number: int) -> None:
        usage.count_request(minted.key.id, number, "192.0.2.9")
        usage.log_request((minted.key.id, workspace, number, "GET", "/x", 200, 1.0, "192.0.2.9", f"req_{number}"))

    for number in range(3):
        call(number)
    await usage.flush()
    for number in range(3, 8):
        call(number)
    await usage.flush()
    failing.is_down = False
    await usage.close()
    await usage.close()

    assert (await access.api_keys.get(workspace, minted.key.id)).usage.call_count == 8
    calls, total = await usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=9, offset=0)
    assert (total, [call.request_id for call in calls]) == (4, ["req_3", "req_2", "req_1", "req_0"])


async def test_calls_of_a_workspace_deleted_meanwhile_are_dropped(access: Access) -> None:
    """Spec 2.8: nothing is left of a deleted tenant, not even what was still in a buffer."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    await record_call(access, minted)
    await access.workspaces.delete(workspace, by=OPERATOR)

    assert (await access.usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=9, offset=0)) == ([], 0)
    assert await access.db.read(lambda tx: tx.fetch_all(select(daily_usage))) == []


async def test_calls_written_while_their_workspace_is_deleted_are_dropped_too(access: Access) -> None:
    """Spec 2.8: whichever comes first; found as a row left behind on PostgreSQL."""
    for number in range(8):
        workspace = await access.create_workspace(f"short-lived {number}")
        minted = await access.create_api_key(workspace)
        await record_call(access, minted)
        await asyncio.gather(access.usage.flush(), access.workspaces.delete(workspace, by=OPERATOR))

        assert (await access.usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=9, offset=0)) == ([], 0)


async def test_closing_writes_what_is_left(access: Access, clock: FakeClock) -> None:
    """D-29: flushed at shutdown."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    usage = UsageLog(access.db, clock, flush_interval_s=60)
    usage.count_request(minted.key.id, 7, "192.0.2.1")
    await usage.close()

    assert (await access.api_keys.get(workspace, minted.key.id)).usage.call_count == 1
