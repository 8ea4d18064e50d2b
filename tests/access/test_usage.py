"""The usage of keys: buffered briefly, kept while the store is down, summed by day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import select

from rookery.access.api_keys import ApiKeys
from rookery.access.models import CallFilter, KeyWithSecret
from rookery.access.store.usage import daily_usage
from rookery.access.usage_log import UsageLog
from rookery.kernel.db import Database, Dialect, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access
from tests.conftest import OPERATOR, FakeClock, eventually

T = TypeVar("T")


async def record_call(
    access: Access, new_key: KeyWithSecret, status: int = 200, route: str = "/v1/brain/recall", address: str = "192.0.2.1"
) -> None:
    """Record one call."""
    (await access.admit(new_key, address=address)).record(method="POST", route=route, status=status, duration_ms=2.0)


async def test_usage_is_written_within_a_second(access: Access) -> None:
    """Without a request for it."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    await record_call(access, new_key)

    other_process = ApiKeys(access.db, access.bcrypt, UsageLog(access.db, access.clock), access.audit, access.clock)
    await eventually(lambda: is_counted(other_process, workspace, new_key, 1))
    await record_call(access, new_key)
    await eventually(lambda: is_counted(other_process, workspace, new_key, 2))


async def is_counted(api_keys: ApiKeys, workspace: int, new_key: KeyWithSecret, calls: int) -> bool:
    """Return whether another process reads this number of calls."""
    entry = await api_keys.get(workspace, new_key.key.id)
    return entry.usage.call_count == calls


async def test_a_call_is_visible_immediately_in_the_same_process(access: Access) -> None:
    """Notes 3.4: reads of the same process include the buffer, each call once."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace)
    for number in range(1, 4):
        access.clock.advance(seconds=1)
        await record_call(access, new_key, address=f"192.0.2.{number}")
        use = (await access.agent_keys.get(workspace, new_key.key.id)).usage
        assert (use.call_count, use.last_used_at, use.last_used_ip) == (number, access.clock(), f"192.0.2.{number}")
        assert (await access.agent_keys.list_page(workspace, page=PageSlice(9)))[0][0].usage == use


async def test_the_counts_of_two_processes_are_added(access: Access) -> None:
    """Counts are added, and the latest use is kept, in any order of writing."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    other_log = UsageLog(access.db, access.clock)
    other_log.count_request(new_key.key.id, 5_000_000, "203.0.113.5")
    for _ in range(3):
        await record_call(access, new_key)
    await access.usage.flush()
    await other_log.close()

    use = (await access.api_keys.get(workspace, new_key.key.id)).usage
    assert (use.call_count, use.last_used_at, use.last_used_ip) == (4, access.clock(), "192.0.2.1")


async def test_daily_sums_match_the_calls(access: Access) -> None:
    """Sums by day (UTC), route and status. They are kept when the calls are deleted after 30 days."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    for status, route in ((200, "/a"), (200, "/a"), (404, "/a"), (200, "/b")):
        await record_call(access, new_key, status, route)
        await access.usage.flush()
    access.clock.at = datetime(2026, 11, 21, 23, 59, 59, 999_999, tzinfo=UTC)
    await record_call(access, new_key, 200, "/a")
    access.clock.advance(seconds=1)
    await record_call(access, new_key, 200, "/a")
    assert (await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(2)))[1] == 6
    access.clock.advance(days=30)

    assert await access.usage.delete_old_calls() == 5
    assert (await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(9)))[1] == 1
    rows = await access.db.read(
        lambda tx: tx.fetch_all(select(daily_usage).order_by(daily_usage.c.day, daily_usage.c.route, daily_usage.c.status))
    )
    assert [(row.text("day"), row.text("route"), row.integer("status"), row.integer("calls"), row.number("total_ms")) for row in rows] == [
        ("2026-11-21", "/a", 200, 3, 6.0),
        ("2026-11-21", "/a", 404, 1, 2.0),
        ("2026-11-21", "/b", 200, 1, 2.0),
        ("2026-11-22", "/a", 200, 1, 2.0),
    ]


class FailingStore:
    """A store whose writes fail while it is down."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.is_down = True

    @property
    def dialect(self) -> Dialect:
        return self.db.dialect

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        if self.is_down:
            raise EngineUnavailable("database", "switched off")
        return await self.db.write(work, is_synced=is_synced)

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self.db.read(work)

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        return await self.db.read_from_replica(work)

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await self.db.lookup(work)

    async def close(self) -> None:
        """Do nothing; there is nothing to close."""


async def test_usage_is_kept_while_the_store_is_down(access: Access) -> None:
    """Unwritten usage is kept and written later; counts always, rows up to a limit."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    failing_store = FailingStore(access.db)
    usage = UsageLog(failing_store, access.clock, flush_interval_s=60, max_calls=4)

    def call(number: int) -> None:
        usage.count_request(new_key.key.id, number, "192.0.2.9")
        usage.log_request((new_key.key.id, workspace, number, "GET", "/x", 200, 1.0, 0, "192.0.2.9", f"req_{number}"))

    for number in range(3):
        call(number)
    await usage.flush()
    for number in range(3, 8):
        call(number)
    await usage.flush()
    failing_store.is_down = False
    await usage.close()
    await usage.close()

    assert (await access.api_keys.get(workspace, new_key.key.id)).usage.call_count == 8
    calls, total, *_ = await usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(9))
    assert (total, [call.request_id for call in calls]) == (4, ["req_3", "req_2", "req_1", "req_0"])


async def test_calls_of_a_workspace_deleted_meanwhile_are_dropped(access: Access) -> None:
    """Nothing of a deleted tenant is left, not even buffered usage."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    await record_call(access, new_key)
    await access.workspaces.delete(workspace, by=OPERATOR)

    assert (await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(9)))[:2] == ([], 0)
    assert await access.db.read(lambda tx: tx.fetch_all(select(daily_usage))) == []


async def test_calls_written_while_their_workspace_is_deleted_are_dropped_too(access: Access) -> None:
    """In either order; found as a row left behind on PostgreSQL."""
    for number in range(8):
        workspace = await access.create_workspace(f"short-lived {number}")
        new_key = await access.create_api_key(workspace)
        await record_call(access, new_key)
        await asyncio.gather(access.usage.flush(), access.workspaces.delete(workspace, by=OPERATOR))

        assert (await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(9)))[:2] == ([], 0)


async def test_closing_writes_the_buffer(access: Access, clock: FakeClock) -> None:
    """The buffer is written at shutdown."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    usage = UsageLog(access.db, clock, flush_interval_s=60)
    usage.count_request(new_key.key.id, 7, "192.0.2.1")
    await usage.close()

    assert (await access.api_keys.get(workspace, new_key.key.id)).usage.call_count == 1
