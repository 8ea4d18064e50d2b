"""The counters on a server of Valkey or Redis: the contract on both, and what happens if the server fails."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, cast

import pytest
import redis
import redis.asyncio

from rookery.access.ports import RateLimitCounter, WindowCount
from rookery.engines.counters import open as open_counter
from rookery.engines.counters.valkey import ValkeyCounter
from rookery.kernel.config import Settings
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret
from tests.conftest import eventually, run_instance
from tests.deadlines import HANG_S
from tests.engines.counter_contract import START, WINDOW, CounterContract
from tests.engines.engine_contracts import HowTested
from tests.fault_proxy import FaultProxy
from tests.valkey import REDIS, VALKEY, Program, ValkeyServer, run_valkey

pytestmark = pytest.mark.external_service

_SERVER_PORT = "ROOKERY_TEST_VALKEY_PORT"
"""The environment variable with the port of the class's server, which the processes of the contract read."""

_SHORT_TIMEOUT_S = 0.3


class ServerCounterContract(CounterContract):
    """The contract, for counters in a server of *program*, and what a server adds to it. Each folder has a database of its own."""

    tested_on = HowTested.REAL_SERVER
    lacks = ValkeyCounter.lacks

    program: ClassVar[Program]

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Generator[ValkeyServer]:
        """Run a server for the class."""
        folder = tmp_path_factory.mktemp("counters")
        with run_valkey(folder, program=cls.program) as server, pytest.MonkeyPatch.context() as patch:
            patch.setenv(_SERVER_PORT, str(server.port))
            yield server

    @staticmethod
    def open_engine(folder: Path) -> RateLimitCounter:
        port = int(os.environ[_SERVER_PORT])
        return ValkeyCounter.from_address(f"valkey://127.0.0.1:{port}/{_choose_database(folder, port)}", timeout_s=HANG_S)

    async def test_a_cancelled_request_does_not_shift_replies(self, counter: RateLimitCounter) -> None:
        """A connection whose reply was not read is closed, so no request gets the reply of another."""
        source = random.Random(1)

        async def spend(number: int) -> WindowCount:
            return await counter.spend(f"key {number}", limit=9, window_us=WINDOW, now_us=START + number)

        for _ in range(20):
            tasks = [asyncio.create_task(spend(number)) for number in range(100)]
            await asyncio.wait(tasks[: source.randrange(1, 60)], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if source.random() < 0.5:
                    task.cancel()
            for number, result in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                if not isinstance(result, asyncio.CancelledError):
                    assert isinstance(result, WindowCount), result
                    assert result.started_at_us == START + number

    async def test_counts_of_past_windows_are_deleted(self, tmp_path: Path, counter: RateLimitCounter, server: ValkeyServer) -> None:
        """The server deletes a count some time after the end of its window."""
        await counter.spend("short", limit=9, window_us=1_000, now_us=START)

        async with redis.asyncio.Redis(port=server.port, db=_choose_database(tmp_path, server.port)) as client:

            async def is_empty() -> bool:
                return int(await client.dbsize()) == 0  # pyright: ignore[reportUnknownMemberType] - keyword arguments without a type

            await eventually(is_empty)


class TestTheCounterInValkey(ServerCounterContract):
    """The contract on Valkey."""

    engine = "`valkey:`"
    tested_with = VALKEY.name

    program = VALKEY


class TestTheCounterInRedis(ServerCounterContract):
    """The contract on Redis."""

    engine = "`redis:`"
    tested_with = REDIS.name

    program = REDIS


def _choose_database(folder: Path, port: int) -> int:
    """Return the database of *folder*: the one of its first call in any process, and of no other folder. Database 0 lists them."""
    with redis.Redis(port=port) as client:
        database = client.incr("last database")
        client.set(f"database of {folder}", database, nx=True)
        return int(cast("bytes", client.get(f"database of {folder}")))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ValkeyServer]:
    """Run a server."""
    with run_valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server


async def test_counts_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    """A killed server makes the counter unavailable; it is used again when it has restarted."""
    with run_valkey(tmp_path) as first:
        counter = open_counter(first.address(), data_dir=tmp_path)
        await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        first.process.kill()
        first.process.wait()
        with pytest.raises(EngineUnavailable) as error:
            await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
    with run_valkey(tmp_path, port=first.port):
        assert await counter.spend("key", limit=9, window_us=WINDOW, now_us=START) == WindowCount(2, START)
    await counter.close()

    assert error.value.engine == "counters"


_BURST = 120
"""Counts at the same time: more than a process has connections."""


async def _spend_burst(counter: RateLimitCounter) -> list[int]:
    """Count a burst for one key; return the counts that it got, in their order."""
    spending = (counter.spend("burst", limit=_BURST, window_us=WINDOW, now_us=START) for _ in range(_BURST))
    return sorted(count.used for count in await asyncio.gather(*spending))


async def test_the_first_burst_after_a_restart_is_counted_exactly(tmp_path: Path) -> None:
    """The server has closed all connections of the pool. None of them makes a count fail."""
    with run_valkey(tmp_path) as first:
        counter = open_counter(first.address(), data_dir=tmp_path)
        await asyncio.gather(*(counter.spend("warm", limit=9, window_us=WINDOW, now_us=START) for _ in range(_BURST)))
    with run_valkey(tmp_path, port=first.port):
        counts = await _spend_burst(counter)
    await counter.close()

    assert counts == list(range(1, _BURST + 1))


async def test_connections_that_a_firewall_forgot_are_replaced_together(server: ValkeyServer) -> None:
    """Packets to idle connections are lost, and nobody closes them. A new connection answers, so no count fails."""
    with FaultProxy(server.port) as proxy:
        counter = ValkeyCounter.from_address(f"redis://127.0.0.1:{proxy.port}", timeout_s=_SHORT_TIMEOUT_S)
        await asyncio.gather(*(counter.spend("warm", limit=9, window_us=WINDOW, now_us=START) for _ in range(_BURST)))
        proxy.freeze()
        counts = await _spend_burst(counter)
        await counter.close()

    assert counts == list(range(1, _BURST + 1))


async def test_a_burst_during_a_restart_is_counted_exactly(tmp_path: Path) -> None:
    """Counts wait for a server that is back within a second. Those that had run before it ended are not counted twice."""
    with run_valkey(tmp_path) as first:
        counter = open_counter(first.address(), data_dir=tmp_path)
        await counter.spend("warm", limit=9, window_us=WINDOW, now_us=START)
        burst = asyncio.create_task(_spend_burst(counter))
        await asyncio.sleep(0)
        first.process.kill()
    with run_valkey(tmp_path, port=first.port):
        counts = await burst
    await counter.close()

    assert counts == list(range(1, _BURST + 1))


async def test_a_server_that_lags_counts_exactly(server: ValkeyServer) -> None:
    """A count without a reply in time is sent again. If the first one arrives too, it is counted once."""
    counter = ValkeyCounter.from_address(server.address(), timeout_s=_SHORT_TIMEOUT_S)
    await eventually(lambda: _can_spend(counter, "warm"))
    server.process.send_signal(signal.SIGSTOP)
    burst = asyncio.create_task(_spend_burst(counter))
    await asyncio.wait([burst], timeout=1.5 * _SHORT_TIMEOUT_S)
    server.process.send_signal(signal.SIGCONT)
    counts = await burst
    await counter.close()

    assert counts == list(range(1, _BURST + 1))


async def test_a_server_that_does_not_answer_is_unavailable_in_time(tmp_path: Path) -> None:
    """A request waits a bounded time, and late replies reach no other request."""
    with run_valkey(tmp_path) as server:
        counter = ValkeyCounter.from_address(server.address(), timeout_s=_SHORT_TIMEOUT_S)
        await eventually(lambda: _can_spend(counter, "warm"))
        server.process.send_signal(signal.SIGSTOP)
        with pytest.raises(EngineUnavailable, match="no reply within"):
            await counter.spend("stopped", limit=9, window_us=WINDOW, now_us=START)
        server.process.send_signal(signal.SIGCONT)
        await eventually(lambda: _can_spend(counter, "later"))
        count = await counter.peek("later", window_us=WINDOW, now_us=START)
        await counter.close()

    assert count.started_at_us == START


@pytest.mark.parametrize("program", [VALKEY, REDIS], ids=["valkey", "redis"])
async def test_counting_goes_on_with_the_new_primary_after_a_failover(program: Program, tmp_path: Path) -> None:
    """The old primary is a replica now and keeps its connections open. The name of the server leads to the new one."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    with (
        run_valkey(tmp_path / "old", program=program) as old,
        run_valkey(tmp_path / "new", program=program) as new,
        FaultProxy(old.port) as proxy,
    ):
        counter = open_counter(f"redis://127.0.0.1:{proxy.port}/0", data_dir=tmp_path)
        before = await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        async with redis.asyncio.Redis(port=old.port) as client:
            await client.replicaof("127.0.0.1", str(new.port))  # pyright: ignore[reportUnknownMemberType] - untyped
        proxy.lead_to(new.port)
        with pytest.raises(EngineUnavailable, match="accepts only reads"):
            await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        after = await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        await counter.close()

    assert (before, after) == (WindowCount(1, START), WindowCount(1, START))


_SLOTS = 16_384


@pytest.mark.parametrize("program", [VALKEY, REDIS], ids=["valkey", "redis"])
async def test_a_cluster_of_one_shard_counts(program: Program, tmp_path: Path) -> None:
    """A server in cluster mode, as some providers sell it, runs a script only if all its names are in one slot."""
    with run_valkey(tmp_path, options=["--cluster-enabled", "yes"], program=program) as server:
        async with redis.asyncio.Redis(port=server.port) as client:
            await client.execute_command("CLUSTER ADDSLOTS", *range(_SLOTS))  # pyright: ignore[reportUnknownMemberType] - untyped
        counter = open_counter(server.address(), data_dir=tmp_path)
        await eventually(lambda: _can_spend(counter, "warm"))
        keys = ("one", "other", "other", "tool:x:srv/{a}", "tool:x:srv/a}b", "tool:x:{}a", "tool:x:%7B%7Da")
        counts = [(await counter.spend(key, limit=9, window_us=WINDOW, now_us=START)).used for key in keys]
        await counter.refund("other", limit=9, started_at_us=START)
        left = await counter.peek("other", window_us=WINDOW, now_us=START)
        await counter.close()

    assert counts == [1, 1, 2, 1, 1, 1, 1]
    assert left == WindowCount(1, START)


async def test_all_names_have_the_documented_beginning(tmp_path: Path) -> None:
    """A user of the server that may use only these names suffices."""
    with run_valkey(tmp_path) as server:
        async with redis.asyncio.Redis(port=server.port) as client:
            await client.execute_command("ACL SETUSER", "rook", "on", ">pw", "~rookery:counts:*", "+@all")  # pyright: ignore[reportUnknownMemberType] - untyped
        counter = open_counter(f"redis://rook:pw@127.0.0.1:{server.port}", data_dir=tmp_path)
        count = await counter.spend("tool:x:{a}", limit=9, window_us=WINDOW, now_us=START)
        await counter.refund("tool:x:{a}", limit=9, started_at_us=START)
        left = await counter.peek("tool:x:{a}", window_us=WINDOW, now_us=START)
        await counter.close()

    assert (count.used, left.used) == (1, 0)


async def _can_spend(counter: RateLimitCounter, key: str) -> bool:
    try:
        await counter.spend(key, limit=9, window_us=WINDOW, now_us=START)
    except EngineUnavailable:
        return False
    return True


async def test_a_wrong_password_is_not_in_the_error(tmp_path: Path) -> None:
    """A server that refuses the password is unavailable. The password appears nowhere."""
    with run_valkey(tmp_path, options=["--requirepass", "right"]) as server:
        right = open_counter(f"redis://:right@127.0.0.1:{server.port}", data_dir=tmp_path)
        wrong = open_counter(f"redis://:mistaken@127.0.0.1:{server.port}", data_dir=tmp_path)
        used = (await right.spend("key", limit=9, window_us=WINDOW, now_us=START)).used
        with pytest.raises(EngineUnavailable) as error:
            await wrong.spend("key", limit=9, window_us=WINDOW, now_us=START)
        await right.close()
        await wrong.close()

    assert used == 1
    assert "mistaken" not in str(error.value)


@pytest.mark.parametrize("address", ["redis:///0", "redis://host:99999", "redis://host/name", "rediss://u:secret@host?ssl=no", "redis://"])
def test_an_invalid_address_is_rejected(address: str, tmp_path: Path) -> None:
    """The error is one clear line without the password."""
    with pytest.raises(WrongSettings, match="invalid address; use redis://") as error:
        open_counter(address, data_dir=tmp_path)

    assert "secret" not in str(error.value)


async def test_two_servers_share_exact_limits(settings: Settings, tmp_path: Path, server: ValkeyServer) -> None:
    """With N processes on one counter store, exactly L requests pass; a failed store is reported."""
    address = Secret(server.address(_choose_database(tmp_path, server.port)))
    async with (
        run_instance(replace(settings, counters=address)) as one,
        run_instance(replace(settings, counters=address)) as two,
    ):
        first, second = (one.caller(one.agent.key), two.caller(one.agent.key))
        before = int((await first.get("/api/agent/rate-limit")).headers["x-ratelimit-remaining"])
        for caller in (first, second, first, second):
            await caller.get("/v1/plans")
        after = int((await second.get("/api/agent/rate-limit")).headers["x-ratelimit-remaining"])
        health = (await one.caller(None).get("/readyz")).json()

    assert before - after == 4
    assert health["engines"]["counters"] == "ok"
