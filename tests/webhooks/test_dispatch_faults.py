"""Faults during dispatch, and that no delivery is lost."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import httpx2
import orjson
import pytest
from sqlalchemy import delete, select, update
from structlog.testing import capture_logs

from rookery.engines.webhook_client.http import HttpWebhookClient
from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.egress import EgressGuard
from rookery.memory.store.tables import memories
from rookery.webhooks.dispatcher import DeliveryMetrics
from rookery.webhooks.models import DeliveryState, EndpointChange, Outcome, ReceiverResponse
from rookery.webhooks.sender import AttemptResult
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import DeliveryResult
from rookery.webhooks.store.tables import deliveries, endpoints, events
from tests.conftest import FakeClock, eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, earlier_worker_id
from tests.webhooks.receiver import Receiver, Reply, run_receiver
from tests.webhooks.rig import WebhookRig, run_webhooks


async def test_a_receiver_that_never_answers_delays_no_other(webhooks: WebhookRig, receiver: Receiver) -> None:
    """500 events for both; behind the dead receiver, each four of them would take ten seconds."""
    dispatcher = webhooks.services.dispatcher
    # After a time-out of ten seconds, the dead receiver would get four more.
    patient = HttpWebhookClient(EgressGuard(allow=["127.0.0.0/8"]), timeout_s=HANG_S)
    dispatcher.sender = replace(dispatcher.sender, client=patient)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(patient.close)
        dead = await stack.enter_async_context(run_receiver(lambda _: Reply(mode="silence")))
        waiting = await webhooks.create_endpoint(dead.url)
        healthy = await webhooks.create_endpoint(receiver.url)
        await webhooks.add_events(*map(str, range(500)))
        finished = await webhooks.wait_until_finished(healthy)

        assert {delivery.state for delivery in finished} == {DeliveryState.DELIVERED}
        assert len(receiver.received) == 500
        assert dead.max_waiting == waiting.concurrency
        await dispatcher.stop()


class _UnstorableResponseClient:
    """A client whose response no store accepts: half a surrogate pair."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        return ReceiverResponse(status=200, headers={}, excerpt="\ud800")

    async def close(self) -> None:
        """Do nothing."""


async def test_an_unstorable_row_stops_no_other_deliveries(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """One unreadable row, of any tenant, must not block others; it is skipped and logged."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as webhooks:
        dispatcher = webhooks.services.dispatcher
        dispatcher.pause_s = 0.01
        working_sender, dispatcher.sender = dispatcher.sender, replace(dispatcher.sender, client=_UnstorableResponseClient())
        unreadable, unstorable = await webhooks.create_endpoint(receiver.url), await webhooks.create_endpoint(receiver.url)
        await webhooks.add_events("first")
        poison = update(endpoints).where(endpoints.c.id == unreadable.id).values(disabled_reason="of another version")
        await database.write(lambda tx: tx.execute(poison))
        with capture_logs() as entries:
            await dispatcher.start()
            (delivery,) = await webhooks.wait_until_finished(unstorable)
            assert (delivery.state, delivery.status) == (DeliveryState.DELIVERED, 200)

            dispatcher.sender = working_sender
            other = await webhooks.create_endpoint(receiver.url)
            await webhooks.add_events("second")
            assert [delivery.state for delivery in await webhooks.wait_until_finished(other)] == [DeliveryState.DELIVERED]
    assert {entry["event"] for entry in entries} == {"webhooks.round_failed", "webhooks.result_reduced", "webhooks.set_aside"}
    assert len(receiver.received) == 2  # "second", also by the endpoint with the unstorable response


class _FailingMetrics(DeliveryMetrics):
    """Metrics that cannot count an attempt."""

    def __init__(self) -> None:
        """Register nothing."""

    def record_attempt(self, attempt: AttemptResult) -> None:
        raise ValueError(attempt.outcome)

    def record_results(self, results: Sequence[DeliveryResult]) -> None:
        """Count nothing."""


async def test_a_fault_after_an_attempt_changes_nothing_about_it(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """The attempt has ended: the dispatcher becomes idle, and its end does not interrupt what was delivered."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as webhooks:
        dispatcher = webhooks.services.dispatcher
        dispatcher.metrics = _FailingMetrics()
        endpoint = await webhooks.create_endpoint(receiver.url)
        await webhooks.add_events("first", "second")
        with capture_logs() as entries:
            await dispatcher.start()
            await webhooks.wait_until_finished(endpoint)
            await dispatcher.wait_until_idle()
            await dispatcher.stop()
        finished = await webhooks.list_deliveries(endpoint)
        details = [await webhooks.services.deliveries.get(webhooks.tenant, endpoint.id, delivery.id) for delivery in finished]

    assert [attempt.outcome for one in details for attempt in one.attempts] == [Outcome.SUCCESS, Outcome.SUCCESS]
    assert {entry["event"] for entry in entries} == {"webhooks.send_failed"}
    assert len(receiver.received) == 2


async def test_a_delivery_whose_event_is_deleted_fails_alone(webhooks: WebhookRig, receiver: Receiver, database: Database) -> None:
    """A delivery whose event is deleted during a resend has nothing to send."""
    endpoint = await webhooks.create_endpoint(receiver.url, enabled=False)
    await webhooks.add_events("first")
    (delivery,) = await webhooks.list_deliveries(endpoint)
    await database.write(lambda tx: tx.execute(delete(events).where(events.c.id == delivery.event_id)))
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange.of(enabled=True))
    await webhooks.services.deliveries.resend_failed(webhooks.tenant, endpoint.id)
    await webhooks.add_events("second")

    finished = await webhooks.wait_until_finished(endpoint)
    assert [(delivery_.state.value, delivery_.error) for delivery_ in finished] == [
        ("failed", "its event no longer exists"),
        ("delivered", None),
    ]
    assert len(receiver.received) == 1


async def test_two_processes_send_each_delivery_once(
    database: Database, database_url: str, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """Several processes may dispatch from one store."""
    second = open_database(database_url, data_dir=data_dir)
    try:
        async with (
            run_webhooks(database, data_dir, clock) as first,
            run_webhooks(second, data_dir, clock, tenant=first.tenant) as second_rig,
        ):
            endpoints = [
                await first.create_endpoint(receiver.url),
                await second_rig.create_endpoint(receiver.url),
                await second_rig.create_endpoint(receiver.url, strict_order=True),
            ]
            for start in range(0, 100, 10):
                await first.add_events(*map(str, range(start, start + 5)))
                await second_rig.add_events(*map(str, range(start + 5, start + 10)))
            for endpoint in endpoints:
                await first.wait_until_finished(endpoint)
    finally:
        await second.close()

    assert Counter(Counter(receiver.event_ids()).values()) == {3: 100}


async def test_deliveries_of_a_dead_process_are_taken_over_when_its_lease_expires(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """An interrupted attempt stays in the log and does not count against the four."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as not_dispatching:
        endpoint = await not_dispatching.create_endpoint(receiver.url)
        await not_dispatching.add_events("first")
        until = clock() + timedelta(seconds=30)
        await database.write(lambda tx: queue.claim(tx, [(endpoint, 1)], worker_id="elsewhere:1:x", now=clock(), until=until))
        async with run_webhooks(database, data_dir, clock, tenant=not_dispatching.tenant) as webhooks:
            await webhooks.services.dispatcher.wait_until_idle()
            assert receiver.received == []

            await webhooks.advance_clock(seconds=30)
            (delivery,) = await webhooks.wait_until_finished(endpoint)
            details = await webhooks.get_delivery(endpoint)

    assert (delivery.state, delivery.attempt_count, delivery.used_attempts) == (DeliveryState.DELIVERED, 2, 1)
    assert [attempt.outcome for attempt in details.attempts] == [Outcome.INTERRUPTED, Outcome.SUCCESS]


async def test_deliveries_of_an_earlier_process_with_this_pid_are_taken_over_at_the_start(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """A server that restarts in a container has the same process id."""
    async with run_webhooks(database, data_dir, clock, is_dispatching=False) as not_dispatching:
        endpoint = await not_dispatching.create_endpoint(receiver.url)
        await not_dispatching.add_events("first")
        until, owner = clock() + timedelta(seconds=30), earlier_worker_id(make_worker_id("x"))
        await database.write(lambda tx: queue.claim(tx, [(endpoint, 1)], worker_id=owner, now=clock(), until=until))
        async with run_webhooks(database, data_dir, clock, tenant=not_dispatching.tenant) as webhooks:
            (delivery,) = await webhooks.wait_until_finished(endpoint)

    assert delivery.state == DeliveryState.DELIVERED


async def test_a_stop_releases_unsent_deliveries_and_logs_interrupted_ones(
    database: Database, data_dir: Path, clock: FakeClock, receiver: Receiver
) -> None:
    """The next process continues at once."""
    receiver.gate = asyncio.Event()
    async with run_webhooks(database, data_dir, clock) as first:
        endpoint = await first.create_endpoint(receiver.url, concurrency=1)
        await first.add_events("first", "second")
        await eventually(lambda: receiver.waiting == 1)
        await first.services.dispatcher.stop()
        interrupted, unsent = await first.get_delivery(endpoint), await first.get_delivery(endpoint, 1)
        receiver.gate.set()
        async with run_webhooks(database, data_dir, clock, tenant=first.tenant) as next_rig:
            finished = await next_rig.wait_until_finished(endpoint)

    assert (interrupted.delivery.state, [attempt.outcome for attempt in interrupted.attempts]) == (
        DeliveryState.PENDING,
        [Outcome.INTERRUPTED],
    )
    assert (unsent.delivery.state, unsent.delivery.attempt_count, unsent.attempts) == (DeliveryState.PENDING, 0, ())
    assert [(delivery.state.value, delivery.attempt_count) for delivery in finished] == [("delivered", 2), ("delivered", 1)]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")
async def test_kill_9_loses_nothing_between_creation_claim_send_and_record(tmp_path: Path, model_folder: Path, receiver: Receiver) -> None:
    """
    Deliveries are sent at least once; attempts of the killed server stay in the log as interrupted.

    Deliveries are created in the transaction of the change, also for memories that were never acknowledged.
    """
    folder, acknowledged = tmp_path / "home", list[str]()
    lend_model(model_folder, folder)
    receiver.gate, receiver.gated_prefix = asyncio.Event(), "/slow"
    slow = f"http://127.0.0.1:{receiver.port}/slow"
    async with _server(folder) as server:
        strict = _create_webhook(server, {"url": slow, "strict_order": True})
        quick = _create_webhook(server, {"url": receiver.url, "concurrency": 8})
        writers = [asyncio.create_task(asyncio.to_thread(_remember, server, 12, acknowledged)) for _ in range(4)]
        # Soon enough for the first delivery to wait still, which times out after ten seconds.
        await eventually(lambda: len(receiver.received) > 8 and receiver.waiting)
        # The strict endpoint has one sent and unrecorded delivery, and others claimed or not; the quick one has any in flight.
        server.kill()
        await asyncio.gather(*writers)
    stored, memory_by_event, counts = await _read_store(folder)
    assert set(acknowledged) <= stored
    assert sorted(memory_by_event.values()) == sorted(stored)
    assert counts == dict.fromkeys(memory_by_event, 2)

    receiver.gate.set()
    async with _server(folder) as server:
        await eventually(
            lambda: len(_list_deliveries(server, strict, "delivered")) == len(_list_deliveries(server, quick, "delivered")) == len(stored),
        )
        deliveries_ = _list_deliveries(server, strict)
        attempts = [_list_outcomes(server, strict, delivery) for delivery in deliveries_]

    received_ids = {
        path: [request.headers["webhook-id"] for request in receiver.received if request.path == path] for path in ("/slow", "/hook")
    }
    assert list(dict.fromkeys(received_ids["/slow"])) == [delivery["event_id"] for delivery in reversed(deliveries_)]
    assert set(received_ids["/hook"]) == set(received_ids["/slow"])
    assert attempts[-1] == ["interrupted", "success"]
    assert {tuple(outcomes) for outcomes in attempts} <= {("interrupted", "success"), ("success",)}


async def _read_store(folder: Path) -> tuple[set[str], dict[str, str], Counter[str]]:
    """Return from the store of a killed server: memory ids, the memory of each event, and the number of its deliveries."""

    def read(tx: Tx) -> tuple[set[str], dict[str, str], Counter[str]]:
        stored = {row.text("id") for row in tx.fetch_all(select(memories.c.id))}
        bodies = tx.fetch_all(select(events.c.id, events.c.body))
        memory_by_event = {row.text("id"): cast("str", orjson.loads(row.blob("body"))["data"]["id"]) for row in bodies}
        return stored, memory_by_event, Counter(row.text("event_id") for row in tx.fetch_all(select(deliveries.c.event_id)))

    db = open_database("embedded:", data_dir=folder)
    try:
        return await db.read(read)
    finally:
        await db.close()


@asynccontextmanager
async def _server(folder: Path) -> AsyncGenerator[Server]:
    """Run a server without blocking the event loop of this process, which runs the receiver."""
    server = await asyncio.to_thread(Server, folder, egress_allow="127.0.0.0/8")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            await asyncio.to_thread(server.kill)


def _create_webhook(server: Server, fields: dict[str, object]) -> str:
    response = server.client.post("/api/v1/webhooks", json={"events": ["memory.stored"], **fields}).raise_for_status()
    return cast("str", response.json()["id"])


def _remember(server: Server, count: int, acknowledged: list[str]) -> None:
    """Store *count* memories, or as many as the server accepts before it is killed."""
    with (
        contextlib.suppress(httpx2.TransportError),
        httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=HANG_S) as client,
    ):
        for number in range(count):
            body = {"type": "fact", "content": f"Fact {number} of {threading.get_ident()}, announced to others."}
            acknowledged.append(client.post("/v1/brain/remember", json=body).raise_for_status().json()["id"])


def _list_deliveries(server: Server, hook: str, status: str | None = None) -> list[dict[str, object]]:
    """Return the deliveries of an endpoint, newest first."""
    filters = {} if status is None else {"status": status}
    response = server.client.get(f"/api/v1/webhooks/{hook}/deliveries", params={"per_page": 100, **filters}).raise_for_status()
    return cast("list[dict[str, object]]", response.json()["data"])


def _list_outcomes(server: Server, hook: str, delivery: dict[str, object]) -> list[str]:
    body = server.client.get(f"/api/v1/webhooks/{hook}/deliveries/{delivery['id']}").raise_for_status().json()
    return [cast("str", attempt["outcome"]) for attempt in body["attempts"]]
