"""Faults during dispatch, and that no delivery is lost (issue 7, D-81)."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import httpx2
import orjson
import pytest
from sqlalchemy import delete, select, update
from structlog.testing import capture_logs

from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.worker_ids import make_worker_id
from rookery.memory.store.tables import memories
from rookery.webhooks.models import DeliveryState, EndpointChange, Outcome, ReceiverResponse
from rookery.webhooks.store import queue
from rookery.webhooks.store.tables import deliveries, endpoints, events
from tests.conftest import FakeClock, eventually, lend_model
from tests.processes import Server, earlier_worker_id
from tests.webhooks.receiver import Receiver, Reply, run_receiver
from tests.webhooks.rig import WebhookRig, run_webhooks


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that thanks for everything."""
    async with run_receiver() as up:
        yield up


@pytest.fixture
async def webhooks(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[WebhookRig]:
    """Webhooks that are at work, on a store of each dialect in turn."""
    async with run_webhooks(database, data_dir, clock) as at_work:
        yield at_work


async def test_a_receiver_that_never_answers_delays_no_other(webhooks: WebhookRig, receiver: Receiver) -> None:
    """Issue 7: 500 events for both; behind the dead one, each four of them would be ten seconds."""
    async with run_receiver(lambda _: Reply(mode="silence")) as dead:
        waiting = await webhooks.create_endpoint(dead.url)
        healthy = await webhooks.create_endpoint(receiver.url)
        await webhooks.add_events(*map(str, range(500)))
        found = await webhooks.wait_until_finished(healthy)

        assert {each.state for each in found} == {DeliveryState.DELIVERED}
        assert len(receiver.received) == 500
        assert dead.max_waiting == waiting.concurrency
        await webhooks.services.dispatcher.stop()


class _Odd:
    """A receiver whose answer no store takes: half a character."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        return ReceiverResponse(status=200, headers={}, excerpt="\ud800")

    async def close(self) -> None:
        """Do nothing."""


async def test_what_cannot_be_written_down_stops_nobody_elses_deliveries(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """Issue 7: one poisoned row, of whichever tenant, must not hold up all others; it is put aside, and the log of ours says so."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as webhooks:
        dispatcher = webhooks.services.dispatcher
        dispatcher.pause_s = 0.01
        honest, dispatcher.sender = dispatcher.sender, replace(dispatcher.sender, client=_Odd())
        unreadable, odd = await webhooks.create_endpoint(receiver.url), await webhooks.create_endpoint(receiver.url)
        await webhooks.add_events("first")
        poison = update(endpoints).where(endpoints.c.id == unreadable.id).values(disabled_reason="of another version")
        await database.write(lambda tx: tx.execute(poison))
        with capture_logs() as logged:
            await dispatcher.start()
            (delivery,) = await webhooks.wait_until_finished(odd)
            assert (delivery.state, delivery.status) == (DeliveryState.DELIVERED, 200)

            dispatcher.sender = honest
            other = await webhooks.create_endpoint(receiver.url)
            await webhooks.add_events("second")
            assert [each.state for each in await webhooks.wait_until_finished(other)] == [DeliveryState.DELIVERED]
    assert {each["event"] for each in logged} == {"webhooks.round_failed", "webhooks.set_aside"}
    assert len(receiver.received) == 2  # "second", by the odd one's endpoint too


async def test_a_delivery_whose_event_is_gone_fails_alone(webhooks: WebhookRig, receiver: Receiver, database: Database) -> None:
    """D-17: a delivery whose event is deleted during a resend has nothing to send."""
    endpoint = await webhooks.create_endpoint(receiver.url, enabled=False)
    await webhooks.add_events("first")
    (held,) = await webhooks.list_deliveries(endpoint)
    await database.write(lambda tx: tx.execute(delete(events).where(events.c.id == held.event_id)))
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange(enabled=True))
    await webhooks.services.deliveries.resend_failed(webhooks.tenant, endpoint.id)
    await webhooks.add_events("second")

    found = await webhooks.wait_until_finished(endpoint)
    assert [(each.state.value, each.error) for each in found] == [("failed", "its event no longer exists"), ("delivered", None)]
    assert len(receiver.received) == 1


async def test_two_processes_send_each_delivery_once(
    database: Database, database_url: str, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """Issue 7: several may dispatch from one store."""
    second = open_database(database_url, data_dir=data_dir)
    try:
        async with run_webhooks(database, data_dir, clock) as one, run_webhooks(second, data_dir, clock, tenant=one.tenant) as two:
            endpoints = [
                await one.create_endpoint(receiver.url),
                await two.create_endpoint(receiver.url),
                await two.create_endpoint(receiver.url, strict_order=True),
            ]
            for start in range(0, 100, 10):
                await one.add_events(*map(str, range(start, start + 5)))
                await two.add_events(*map(str, range(start + 5, start + 10)))
            for endpoint in endpoints:
                await one.wait_until_finished(endpoint)
    finally:
        await second.close()

    assert Counter(Counter(receiver.event_ids()).values()) == {3: 100}


async def test_what_a_dead_process_of_another_host_had_is_taken_over_when_its_lease_is_over(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """D-51 for deliveries: an interrupted attempt stays in the log, and costs none of the four."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as idle:
        endpoint = await idle.create_endpoint(receiver.url)
        await idle.add_events("first")
        until = clock() + timedelta(seconds=30)
        await database.write(lambda tx: queue.claim(tx, [(endpoint, 1)], worker_id="elsewhere:1:x", now=clock(), until=until))
        async with run_webhooks(database, data_dir, clock, tenant=idle.tenant) as webhooks:
            await webhooks.services.dispatcher.wait_until_idle()
            assert receiver.received == []

            await webhooks.advance_clock(seconds=30)
            (delivery,) = await webhooks.wait_until_finished(endpoint)
            view = await webhooks.get_delivery(endpoint)

    assert (delivery.state, delivery.attempt_count, delivery.used_attempts) == (DeliveryState.DELIVERED, 2, 1)
    assert [each.outcome for each in view.attempts] == [Outcome.INTERRUPTED, Outcome.SUCCESS]


async def test_deliveries_of_an_earlier_process_with_this_pid_are_taken_over_at_the_start(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """D-81: a server that restarts in a container has the same process id."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as idle:
        endpoint = await idle.create_endpoint(receiver.url)
        await idle.add_events("first")
        until, owner = clock() + timedelta(seconds=30), earlier_worker_id(make_worker_id("x"))
        await database.write(lambda tx: queue.claim(tx, [(endpoint, 1)], worker_id=owner, now=clock(), until=until))
        async with run_webhooks(database, data_dir, clock, tenant=idle.tenant) as webhooks:
            (delivery,) = await webhooks.wait_until_finished(endpoint)

    assert delivery.state == DeliveryState.DELIVERED


async def test_a_stop_gives_back_what_is_not_sent_and_says_what_was_interrupted(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """Issue 7: the log tells the truth; the next process goes on at once."""
    receiver.gate = asyncio.Event()
    async with run_webhooks(database, data_dir, clock) as first:
        endpoint = await first.create_endpoint(receiver.url, concurrency=1)
        await first.add_events("first", "second")
        await eventually(lambda: receiver.waiting == 1)
        await first.services.dispatcher.stop()
        sent, unsent = await first.get_delivery(endpoint), await first.get_delivery(endpoint, 1)
        receiver.gate.set()
        async with run_webhooks(database, data_dir, clock, tenant=first.tenant) as then:
            ended = await then.wait_until_finished(endpoint)

    assert (sent.delivery.state, [each.outcome for each in sent.attempts]) == (DeliveryState.PENDING, [Outcome.INTERRUPTED])
    assert (unsent.delivery.state, unsent.delivery.attempt_count, unsent.attempts) == (DeliveryState.PENDING, 0, ())
    assert [(each.state.value, each.attempt_count) for each in ended] == [("delivered", 2), ("delivered", 1)]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")
@pytest.mark.timeout(180)
async def test_kill_9_loses_nothing_between_birth_claim_send_and_record(tmp_path: Path, model_folder: Path, receiver: Receiver) -> None:
    """
    Issue 7: at least once; every attempt of the dead server stays in the log, as interrupted.

    And deliveries are born in the transaction of what they announce: of memories also that were never acknowledged.
    """
    folder, acknowledged = tmp_path / "home", list[str]()
    lend_model(model_folder, folder)
    receiver.gate, receiver.gated_prefix = asyncio.Event(), "/slow"
    slow = f"http://127.0.0.1:{receiver.port}/slow"
    async with _server(folder) as server:
        strict = _hook(server, {"url": slow, "strict_order": True})
        quick = _hook(server, {"url": receiver.url, "concurrency": 8})
        writing = [asyncio.create_task(asyncio.to_thread(_remember, server, 12, acknowledged)) for _ in range(4)]
        await eventually(lambda: len(receiver.received) > 20 and receiver.waiting, within_s=60)
        # To the one a delivery is sent and not recorded, and those behind it are claimed or not; to the other, whatever is under way.
        server.kill()
        await asyncio.gather(*writing)
    stored, said, told = await _kept(folder)
    assert set(acknowledged) <= stored
    assert sorted(said.values()) == sorted(stored)
    assert told == dict.fromkeys(said, 2)

    receiver.gate.set()
    async with _server(folder) as server:
        await eventually(
            lambda: len(_log(server, strict, "delivered")) == len(_log(server, quick, "delivered")) == len(stored), within_s=60
        )
        log = _log(server, strict)
        attempts = [_attempts(server, strict, each) for each in log]

    came = {path: [each.headers["webhook-id"] for each in receiver.received if each.path == path] for path in ("/slow", "/hook")}
    assert list(dict.fromkeys(came["/slow"])) == [each["event_id"] for each in reversed(log)]
    assert set(came["/hook"]) == set(came["/slow"])
    assert attempts[-1] == ["interrupted", "success"]
    assert {tuple(each) for each in attempts} <= {("interrupted", "success"), ("success",)}


async def _kept(folder: Path) -> tuple[set[str], dict[str, str], Counter[str]]:
    """Return what the store of a dead server has: memories, the memory that each event tells of, and how many deliveries each has."""

    def read(tx: Tx) -> tuple[set[str], dict[str, str], Counter[str]]:
        stored = {row.text("id") for row in tx.fetch_all(select(memories.c.id))}
        bodies = tx.fetch_all(select(events.c.id, events.c.body))
        said = {row.text("id"): cast("str", orjson.loads(row.blob("body"))["data"]["id"]) for row in bodies}
        return stored, said, Counter(row.text("event_id") for row in tx.fetch_all(select(deliveries.c.event_id)))

    db = open_database("embedded:", data_dir=folder)
    try:
        return await db.read(read)
    finally:
        await db.close()


@asynccontextmanager
async def _server(folder: Path) -> AsyncGenerator[Server]:
    """Run a server, and keep this process's loop, where the receiver is, free meanwhile."""
    server = await asyncio.to_thread(Server, folder, egress_allow="127.0.0.0/8")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            await asyncio.to_thread(server.kill)


def _hook(server: Server, fields: dict[str, object]) -> str:
    answer = server.client.post("/api/v1/webhooks", json={"events": ["memory.stored"], **fields}).raise_for_status()
    return cast("str", answer.json()["id"])


def _remember(server: Server, count: int, acknowledged: list[str]) -> None:
    """Store *count* memories, or as many as the server accepts before it is killed."""
    with (
        contextlib.suppress(httpx2.TransportError),
        httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=30) as client,
    ):
        for number in range(count):
            body = {"type": "fact", "content": f"Fact {number} of {threading.get_ident()}, told to others."}
            acknowledged.append(client.post("/v1/brain/remember", json=body).raise_for_status().json()["id"])


def _log(server: Server, hook: str, state: str | None = None) -> list[dict[str, object]]:
    """Return the deliveries of an endpoint, newest first."""
    which = {} if state is None else {"state": state}
    answer = server.client.get(f"/api/v1/webhooks/{hook}/deliveries", params={"per_page": 100, **which}).raise_for_status()
    return cast("list[dict[str, object]]", answer.json()["data"])


def _attempts(server: Server, hook: str, delivery: dict[str, object]) -> list[str]:
    answer = server.client.get(f"/api/v1/webhooks/{hook}/deliveries/{delivery['id']}").raise_for_status().json()
    return [cast("str", each["outcome"]) for each in answer["attempts"]]
