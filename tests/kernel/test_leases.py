"""Leases and worker ids: a row is held until it is released, the lease is over, or the process of its worker has exited."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import BigInteger, Column, MetaData, Table, Text, bindparam, delete, insert, select, text

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database
from rookery.kernel.db.leases import Leases, find_dead_workers, make_worker_id
from tests.conftest import FakeClock
from tests.deadlines import HANG_S
from tests.processes import earlier_worker_id

_LEASE = timedelta(seconds=30)
_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
_PRINT_ID = "from rookery.kernel.db.leases import make_worker_id; print(make_worker_id('x'), flush=True); input()"


@contextmanager
def run_worker() -> Generator[str]:
    """Run another process and yield the id of a worker of it."""
    command = [sys.executable, "-c", _PRINT_ID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()


async def find_dead(database: Database, *worker_ids: str) -> list[str]:
    """Return the dead ones of *worker_ids*."""
    return await database.read(lambda tx: find_dead_workers(tx, worker_ids))


async def test_all_workers_of_this_process_are_alive(database: Database) -> None:
    """Claims of a running process are never taken over."""
    assert await find_dead(database, make_worker_id("one"), make_worker_id("two")) == []


async def test_a_worker_of_an_earlier_process_with_this_pid_is_dead(database: Database) -> None:
    """A server in a container is process 1 after each restart."""
    earlier = earlier_worker_id(make_worker_id("x"))

    assert await find_dead(database, earlier, make_worker_id("x")) == [earlier]


async def test_a_worker_of_another_process_is_alive_until_that_exits(database: Database) -> None:
    """The claims of a process that has exited are free immediately."""
    with run_worker() as worker_id:
        assert worker_id.split(":")[1] != str(os.getpid())
        assert await find_dead(database, worker_id) == []

    assert await find_dead(database, worker_id) == [worker_id]


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc has the start of other processes")
async def test_a_worker_whose_pid_now_belongs_to_another_process_is_dead(database: Database) -> None:
    """The system reuses process ids."""
    with run_worker() as worker_id:
        earlier = earlier_worker_id(worker_id)

        assert await find_dead(database, earlier) == [earlier]


async def test_a_container_with_the_same_host_name_and_pid_is_alive_in_a_shared_store(database: Database) -> None:
    """The worker below is process 1 of a container with the name of this host. Only a lease shows whether it is alive."""
    command = [*_CONTAINER, sys.executable, "-c", _PRINT_ID]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as container:
        assert container.stdin is not None
        assert container.stdout is not None
        worker_id = container.stdout.readline().strip()
        if not worker_id:
            pytest.skip("this user may not make containers")
        host, pid, *_ = worker_id.split(":")
        dead = await find_dead(database, worker_id)

    assert (f"{host}:", pid) == (make_worker_id("x").partition(":")[0] + ":", "1")
    assert dead == ([worker_id] if database.dialect == "sqlite" else [])


async def test_a_worker_before_a_reboot_is_dead_only_where_no_other_machine_works(database: Database) -> None:
    """A machine of the same name may use a shared store; all processes of a SQLite store run on this machine."""
    host, pid, start, unique = make_worker_id("x").split(":")
    rebooted = f"{host}:{pid}:00000000-0000-4000-8000-000000000000-{start.rpartition('-')[2]}:{unique}"

    assert await find_dead(database, rebooted) == ([rebooted] if database.dialect == "sqlite" else [])


def test_two_processes_with_one_pid_have_different_ids() -> None:
    """Each child below is process 1 of a container of its own, if the system allows this test to make them."""
    command = [*_CONTAINER, sys.executable, "-c", _PRINT_ID]
    try:
        outputs = [subprocess.run(command, input="\n", capture_output=True, text=True, check=True, timeout=HANG_S).stdout for _ in range(2)]
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("this user may not make containers")
    first, second = (output.strip().split(":") for output in outputs)

    assert first[:2] == second[:2]
    assert first[1] == "1"
    assert first != second


async def test_a_worker_on_another_host_is_never_dead(database: Database) -> None:
    """Its claims end with their leases."""
    earlier = earlier_worker_id(make_worker_id("x"))

    assert await find_dead(database, f"another-{earlier}") == []


tickets = Table(
    "tickets",
    MetaData(),
    Column("id", Text, primary_key=True),
    Column("owner", Text),
    Column("until", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
)
_LEASES = Leases(tickets, owner=tickets.c.owner, until=tickets.c.until, on_acquire={"attempts": tickets.c.attempts + 1})
_BY_ID = select(tickets).where(tickets.c.id == bindparam("of_id"))
_DELETE_HELD = delete(tickets).where(_LEASES.is_held)


@pytest.fixture
async def store(database: Database, clock: FakeClock) -> AsyncIterator[Database]:
    """A record store with two free rows."""
    columns = "id TEXT PRIMARY KEY, owner TEXT, until BIGINT NOT NULL, attempts BIGINT NOT NULL"
    rows = [{"id": name, "owner": None, "until": to_micros(clock()), "attempts": 0} for name in ("a", "b")]
    await database.write(lambda tx: tx.execute(text(f"CREATE TABLE IF NOT EXISTS tickets ({columns})")))
    await database.write(lambda tx: tx.execute_many(insert(tickets), rows))
    yield database
    await database.write(lambda tx: tx.execute(delete(tickets)))


async def is_free(store: Database, name: str, clock: FakeClock) -> bool:
    """Return whether the lease of a row is over."""
    row = await store.read(lambda tx: tx.fetch_one(_BY_ID, {"of_id": name}))
    assert row is not None
    return await store.read(lambda tx: _LEASES.is_over(tx, row, now=clock()))


async def acquire(store: Database, names: list[str], holder: str, clock: FakeClock) -> None:
    """Lease rows to a worker for 30 seconds."""
    await store.write(lambda tx: _LEASES.acquire(tx, names, holder, until=clock() + _LEASE))


async def test_a_held_row_is_free_when_its_lease_is_over(store: Database, clock: FakeClock) -> None:
    """Without a renewal, another worker may take the row over at the end of the lease."""
    assert await is_free(store, "a", clock)
    await acquire(store, ["a"], make_worker_id("one"), clock)

    assert not await is_free(store, "a", clock)
    assert await is_free(store, "b", clock)
    clock.advance(seconds=30)
    assert await is_free(store, "a", clock)


async def test_a_renewed_lease_lasts_longer(store: Database, clock: FakeClock) -> None:
    """A worker may renew some of its leases or all."""
    me = make_worker_id("one")
    await acquire(store, ["a", "b"], me, clock)

    clock.advance(seconds=15)
    assert await store.write(lambda tx: _LEASES.renew(tx, me, until=clock() + _LEASE, ids=["a"])) == 1
    clock.advance(seconds=15)
    assert (await is_free(store, "a", clock), await is_free(store, "b", clock)) == (False, True)

    assert await store.write(lambda tx: _LEASES.renew(tx, me, until=clock() + _LEASE)) == 2
    assert not await is_free(store, "b", clock)


async def test_a_worker_that_was_taken_over_changes_nothing(store: Database, clock: FakeClock) -> None:
    """Renewal, release and results need the lease."""
    slow, quick = make_worker_id("slow"), make_worker_id("quick")
    await acquire(store, ["a"], slow, clock)
    clock.advance(seconds=30)
    await acquire(store, ["a"], quick, clock)

    assert await store.write(lambda tx: _LEASES.renew(tx, slow, until=clock() + _LEASE, ids=["a"])) == 0
    assert await store.write(lambda tx: _LEASES.release(tx, ["a"], slow, at=clock())) == 0
    assert await store.write(lambda tx: tx.execute(_DELETE_HELD, {"held_ids": ["a"], "holder": slow})) == 0
    assert not await is_free(store, "a", clock)
    assert await store.write(lambda tx: tx.execute(_DELETE_HELD, {"held_ids": ["a"], "holder": quick})) == 1


async def test_a_released_row_has_no_owner(store: Database, clock: FakeClock) -> None:
    """A row may be released for a later time, as for a retry."""
    me = make_worker_id("one")
    await acquire(store, ["a"], me, clock)
    assert await store.write(lambda tx: _LEASES.release(tx, ["a"], me, at=clock() + timedelta(seconds=5))) == 1

    row = await store.read(lambda tx: tx.fetch_one(_BY_ID, {"of_id": "a"}))
    assert row is not None
    assert (row.maybe_text("owner"), row.integer("attempts")) == (None, 1)
    assert not await is_free(store, "a", clock)
    clock.advance(seconds=5)
    assert await is_free(store, "a", clock)


async def test_the_rows_of_a_dead_worker_are_free_at_once(store: Database, clock: FakeClock) -> None:
    """Only leases of processes that have exited end before their time."""
    dead = earlier_worker_id(make_worker_id("x"))
    await acquire(store, ["a"], dead, clock)
    await acquire(store, ["b"], make_worker_id("one"), clock)
    assert (await is_free(store, "a", clock), await is_free(store, "b", clock)) == (True, False)

    assert await store.write(lambda tx: _LEASES.end_orphaned(tx, at=clock())) == 1

    row = await store.read(lambda tx: tx.fetch_one(_BY_ID, {"of_id": "a"}))
    assert row is not None
    assert (row.integer("until"), row.maybe_text("owner")) == (to_micros(clock()), dead), "the owner shows that it was taken over"
    assert not await is_free(store, "b", clock)
