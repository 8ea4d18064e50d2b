"""The dispatcher: times, retries, targets and the log of deliveries (spec 6.2, D-81)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Database
from rookery.webhooks.models import DeliveryState, DisabledReason, EndpointChange, Outcome
from rookery.webhooks.outbox import NewEvent
from rookery.webhooks.retry_policy import next_attempt_at
from tests.conftest import FakeClock, eventually
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver
from tests.webhooks.rig import WebhookRig, run_webhooks


@pytest.fixture
async def webhooks(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[WebhookRig]:
    """Webhooks that are at work, on a store of each dialect in turn."""
    async with run_webhooks(database, data_dir, clock) as running:
        yield running


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that thanks for everything."""
    async with run_receiver() as running:
        yield running


def failing(*names: str, status: int = 503, retry_after: str | None = None) -> Callable[[ReceivedRequest], Reply]:
    """Return a reply function that fails events of these *names*, or all events without names."""
    headers = {} if retry_after is None else {"retry-after": retry_after}

    def reply(received: ReceivedRequest) -> Reply:
        data = received.event["data"]
        assert isinstance(data, dict)
        return Reply(status=status, headers=headers) if not names or data["name"] in names else Reply()

    return reply


def names(receiver: Receiver) -> list[object]:
    """Return the names of the events that came, as they came."""
    return [each.event["data"]["name"] for each in receiver.received]  # pyright: ignore[reportIndexIssue]


async def test_an_event_arrives_once_as_it_was_written_down(webhooks: WebhookRig, receiver: Receiver) -> None:
    """D-81: the body byte for byte, the event's id in a header, and an attempt in the log that tells what was answered."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    await webhooks.add_events("first")
    (delivery,) = await webhooks.wait_until_finished(endpoint)
    view = await webhooks.get_delivery(endpoint)

    assert [each.body for each in receiver.received] == [view.body]
    assert receiver.received[0].headers["webhook-id"] == receiver.received[0].event["id"] == delivery.event_id
    assert (delivery.state, delivery.attempt_count, delivery.status) == (DeliveryState.DELIVERED, 1, 200)
    (attempt,) = view.attempts
    assert (attempt.outcome, attempt.status, attempt.response, attempt.error) == (Outcome.SUCCESS, 200, "thanks", None)


async def test_no_answer_repeats_what_a_deleted_memory_said(
    webhooks: WebhookRig, receiver: Receiver, database: Database, clock: FakeClock
) -> None:
    """D-41: what a receiver answered goes with the content that it was sent, also if the answer comes after the memory went."""
    receiver.reply = lambda received: Reply(body=received.body)
    receiver.gate, receiver.gated_prefix = asyncio.Event(), "/hook/late"
    quick, late = (
        await webhooks.create_endpoint(receiver.url, include_content=True),
        await webhooks.create_endpoint(f"{receiver.url}/late", include_content=True),
    )
    said = NewEvent(type="memory.stored", at=clock(), build_data=lambda _: {"content": "The safe opens with 4711."}, memory_id="safe")
    await database.write(lambda tx: webhooks.services.outbox.add_events(tx, webhooks.tenant.workspace_id, [said]))
    await webhooks.wait_until_finished(quick)
    await eventually(lambda: receiver.waiting)
    assert "4711" in str((await webhooks.get_delivery(quick)).attempts)

    await database.write(lambda tx: webhooks.services.outbox.redact_memory(tx, webhooks.tenant.workspace_id, "safe"))
    receiver.gate.set()
    await webhooks.wait_until_finished(late)

    assert "4711" not in f"{await webhooks.get_delivery(quick)}{await webhooks.get_delivery(late)}"


async def test_a_failure_is_tried_again_three_times_a_minute_apart_and_no_more(
    webhooks: WebhookRig, receiver: Receiver, clock: FakeClock
) -> None:
    """Spec 6.2, D-81: at 0, 60, 120 and 180 seconds exactly, with the same body under the same id; then it has failed."""
    began = clock()
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()
    await webhooks.add_events("first")
    for number in (1, 2, 3):
        await webhooks.wait_for_attempts(endpoint, number)
        await webhooks.advance_clock(seconds=59, milliseconds=999)
        await webhooks.services.dispatcher.wait_until_idle()
        assert len(receiver.received) == number
        await webhooks.advance_clock(milliseconds=1)
    (delivery,) = await webhooks.wait_until_finished(endpoint)
    view = await webhooks.get_delivery(endpoint)

    assert [(each.started_at - began).total_seconds() for each in view.attempts] == [0, 60, 120, 180]
    assert {each.body for each in receiver.received} == {view.body}
    assert len(set(receiver.event_ids())) == 1
    assert len({each.headers["webhook-timestamp"] for each in receiver.received}) == 4
    assert (delivery.state, delivery.attempt_count, delivery.status, delivery.error) == (
        DeliveryState.FAILED,
        4,
        503,
        "The endpoint answered 503.",
    )
    await webhooks.advance_clock(days=1)
    assert len(receiver.received) == 4


async def test_a_receiver_may_ask_for_more_patience_but_not_for_less(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """D-81: Retry-After only lengthens."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing(retry_after="300")
    await webhooks.add_events("first")
    first = await webhooks.wait_for_attempts(endpoint, 1)
    assert first.delivery.next_at == clock() + timedelta(seconds=300)

    receiver.reply = failing(retry_after="5")
    await webhooks.advance_clock(seconds=300)
    second = await webhooks.wait_for_attempts(endpoint, 2)
    assert second.delivery.next_at == clock() + timedelta(seconds=60)


@given(
    spent=st.integers(1, 4),
    took=st.integers(0, 10),
    status=st.none() | st.integers(100, 599),
    retry_after=st.none()
    | st.integers(-10, 10**9).map(str)
    | st.floats().map(str)
    | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda at: format_datetime(at.replace(tzinfo=UTC)))  # noqa: DTZ001
    | st.integers(10**4, 10**30).map("Mon, 01 Jan {} 00:00:00 GMT".format)
    | st.integers(0, 10**30).map("Mon, 01 Jan 2026 00:00:00 +{}".format)
    | st.text(max_size=30),
)
def test_the_next_attempt_is_a_minute_to_an_hour_away_whatever_is_answered(
    spent: int, took: int, status: int | None, retry_after: str | None
) -> None:
    """D-81: 60 seconds, more if the receiver says so, never for ever, and never a fifth time or after 410."""
    started = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    ended = started + timedelta(seconds=took)
    at = next_attempt_at(spent, started_at=started, ended_at=ended, status=status, retry_after=retry_after)

    if spent == 4 or status == 410:
        assert at is None
    else:
        assert at is not None
        assert started + timedelta(seconds=60) <= at <= ended + timedelta(hours=1)


async def test_a_receiver_that_is_gone_is_told_nothing_more(webhooks: WebhookRig, receiver: Receiver) -> None:
    """D-81: 410 disables at once; what happens later is held for when it is enabled again."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing(status=410)
    await webhooks.add_events("first")
    (delivery,) = await webhooks.wait_until_finished(endpoint)
    now = await webhooks.services.endpoints.get(webhooks.tenant, endpoint.id)
    await webhooks.add_events("second")

    assert (delivery.state, delivery.attempt_count) == (DeliveryState.FAILED, 1)
    assert (now.enabled, now.disabled_reason) == (False, DisabledReason.GONE)
    assert await webhooks.list_states(endpoint) == ["failed", "held"]
    assert len(receiver.received) == 1


async def test_twenty_failures_and_a_day_without_success_disable(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """D-81: neither alone: not twenty within an hour, nor a day of few."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()

    async def fail(*some: str) -> bool:
        await webhooks.add_events(*some)
        for _ in range(4):
            await webhooks.services.dispatcher.wait_until_idle()
            await webhooks.advance_clock(seconds=60)
        await webhooks.wait_until_finished(endpoint)
        return (await webhooks.services.endpoints.get(webhooks.tenant, endpoint.id)).enabled

    assert await fail(*(str(number) for number in range(20)))
    receiver.reply = lambda _: Reply()
    await webhooks.add_events("a success")
    await webhooks.wait_until_finished(endpoint)
    receiver.reply = failing()
    clock.advance(days=2)
    assert await fail(*(str(number) for number in range(19)))
    assert not await fail("the twentieth")
    now = await webhooks.services.endpoints.get(webhooks.tenant, endpoint.id)
    assert (now.disabled_reason, now.failures) == (DisabledReason.FAILURES, 20)


async def test_in_strict_order_what_fails_holds_up_what_comes_after_it(webhooks: WebhookRig, receiver: Receiver) -> None:
    """D-81: one at a time and in the order of the events, retries included; without it the others go on."""
    strict = await webhooks.create_endpoint(receiver.url, strict_order=True)
    receiver.reply = failing("b")
    await webhooks.add_events(*"abcde")
    await webhooks.services.dispatcher.wait_until_idle()
    assert names(receiver) == ["a", "b"]

    receiver.reply = failing("d")
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()
    assert names(receiver) == ["a", "b", "b", "c", "d"]
    for _ in range(3):
        await webhooks.advance_clock(seconds=60)
        await webhooks.services.dispatcher.wait_until_idle()

    assert names(receiver) == ["a", "b", "b", "c", "d", "d", "d", "d", "e"]
    assert await webhooks.list_states(strict) == ["delivered", "delivered", "delivered", "failed", "delivered"]
    assert receiver.max_waiting == 1
    assert [each.attempt_count for each in await webhooks.list_deliveries(strict)] == [1, 2, 1, 4, 1]


async def test_without_strict_order_a_failure_holds_up_nobody(webhooks: WebhookRig, receiver: Receiver) -> None:
    """D-81: strict order is optional."""
    await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing("b")
    await webhooks.add_events(*"abcde")
    await webhooks.services.dispatcher.wait_until_idle()

    assert sorted(map(str, names(receiver))) == list("abcde")


async def test_no_more_go_to_one_endpoint_at_once_than_it_wants(webhooks: WebhookRig, receiver: Receiver) -> None:
    """Concurrent deliveries to one endpoint stay within its `concurrency` (issue 7)."""
    endpoint = await webhooks.create_endpoint(receiver.url, concurrency=3)
    await webhooks.add_events(*map(str, range(60)))
    await webhooks.wait_until_finished(endpoint)

    assert len(receiver.received) == 60
    assert receiver.max_waiting <= 3


async def test_what_waits_for_an_endpoint_that_is_deleted_is_cancelled(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """Svix 1511: a deleted endpoint is never tried again, nor does anything go round in circles for it."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()
    await webhooks.add_events("first")
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.services.endpoints.delete(webhooks.tenant, endpoint.id)
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()

    assert len(receiver.received) == 1


async def test_what_waits_for_an_endpoint_that_is_disabled_is_held_and_can_be_sent_when_it_is_enabled(
    webhooks: WebhookRig, receiver: Receiver
) -> None:
    """D-81: re-enable offers all since."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()
    await webhooks.add_events("first")
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange(enabled=False))
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()
    assert (len(receiver.received), await webhooks.list_states(endpoint)) == (1, ["held"])

    receiver.reply = lambda _: Reply()
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange(enabled=True))
    assert await webhooks.services.deliveries.resend_failed(webhooks.tenant, endpoint.id) == 1
    await webhooks.wait_until_finished(endpoint)
    assert await webhooks.list_states(endpoint) == ["delivered"]


async def test_a_delivery_under_way_when_its_endpoint_is_deleted_or_disabled_is_not_tried_again(
    webhooks: WebhookRig, receiver: Receiver
) -> None:
    """Issue 7: the queue knows no endpoint that is not there; the log of one that is disabled tells of the attempt."""
    receiver.gate, receiver.reply = asyncio.Event(), failing()
    disabled, deleted = await webhooks.create_endpoint(receiver.url), await webhooks.create_endpoint(receiver.url)
    await webhooks.add_events("first")
    await eventually(lambda: receiver.waiting == 2)
    await webhooks.services.endpoints.update(webhooks.tenant, disabled.id, EndpointChange(enabled=False))
    await webhooks.services.endpoints.delete(webhooks.tenant, deleted.id)
    receiver.gate.set()
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()

    assert len(receiver.received) == 2
    view = await webhooks.get_delivery(disabled)
    assert (view.delivery.state, [each.status for each in view.attempts]) == (DeliveryState.HELD, [503])
