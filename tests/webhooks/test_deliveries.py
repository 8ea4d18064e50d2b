"""The dispatcher: times, retries, targets and the log of deliveries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Database
from rookery.webhooks.models import DeliveryState, DisabledReason, EndpointChange, Outcome
from rookery.webhooks.outbox import NewEvent
from rookery.webhooks.retry_policy import next_attempt_at
from tests.conftest import FakeClock, eventually
from tests.webhooks.makers import CATALOGUE
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply
from tests.webhooks.rig import WebhookRig


def failing(*names: str, status: int = 503, retry_after: str | None = None) -> Callable[[ReceivedRequest], Reply]:
    """Return a reply function that fails events of these *names*, or all events without names."""
    headers = {} if retry_after is None else {"retry-after": retry_after}

    def reply(request: ReceivedRequest) -> Reply:
        data = request.event["data"]
        assert isinstance(data, dict)
        return Reply(status=status, headers=headers) if not names or data["name"] in names else Reply()

    return reply


def list_names(receiver: Receiver) -> list[object]:
    """Return the names of the received events, in order."""
    return [request.event["data"]["name"] for request in receiver.received]  # pyright: ignore[reportIndexIssue]


async def test_an_event_is_delivered_once_as_it_was_stored(webhooks: WebhookRig, receiver: Receiver) -> None:
    """The body is unchanged, a header has the event id, and the logged attempt has the response."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    await webhooks.add_events("first")
    (delivery,) = await webhooks.wait_until_finished(endpoint)
    details = await webhooks.get_delivery(endpoint)

    assert [request.body for request in receiver.received] == [details.body]
    assert receiver.received[0].headers["webhook-id"] == receiver.received[0].event["id"] == delivery.event_id
    assert (delivery.state, delivery.attempt_count, delivery.status) == (DeliveryState.DELIVERED, 1, 200)
    (attempt,) = details.attempts
    assert (attempt.outcome, attempt.status, attempt.response, attempt.error) == (Outcome.SUCCESS, 200, "thanks", None)


async def test_no_logged_response_repeats_a_deleted_memory(
    webhooks: WebhookRig, receiver: Receiver, database: Database, clock: FakeClock
) -> None:
    """A response is deleted with the content that was sent, also if it arrives after the deletion of the memory."""
    receiver.reply = lambda request: Reply(body=request.body)
    receiver.gate, receiver.gated_prefix = asyncio.Event(), "/hook/late"
    quick, late = (
        await webhooks.create_endpoint(receiver.url, include_content=True),
        await webhooks.create_endpoint(f"{receiver.url}/late", include_content=True),
    )
    event = NewEvent(
        type=CATALOGUE.by_name["memory.stored"],
        at=clock(),
        build_data=lambda _: {"content": "The safe opens with 4711."},
        memory_id="safe",
    )
    await database.write(lambda tx: webhooks.services.outbox.add_events(tx, webhooks.tenant.workspace_id, [event]))
    await webhooks.wait_until_finished(quick)
    await eventually(lambda: receiver.waiting)
    assert "4711" in str((await webhooks.get_delivery(quick)).attempts)

    await database.write(lambda tx: webhooks.services.outbox.redact_memory(tx, webhooks.tenant.workspace_id, "safe"))
    receiver.gate.set()
    await webhooks.wait_until_finished(late)

    assert "4711" not in f"{await webhooks.get_delivery(quick)}{await webhooks.get_delivery(late)}"


async def test_a_failed_delivery_is_retried_three_times_a_minute_apart(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """Attempts at exactly 0, 60, 120 and 180 seconds have the same body and id; then the delivery has failed."""
    started = clock()
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
    details = await webhooks.get_delivery(endpoint)

    assert [(attempt.started_at - started).total_seconds() for attempt in details.attempts] == [0, 60, 120, 180]
    assert {request.body for request in receiver.received} == {details.body}
    assert len(set(receiver.event_ids())) == 1
    assert len({request.headers["webhook-timestamp"] for request in receiver.received}) == 4
    assert (delivery.state, delivery.attempt_count, delivery.status, delivery.error) == (
        DeliveryState.FAILED,
        4,
        503,
        "The endpoint answered 503.",
    )
    await webhooks.advance_clock(days=1)
    assert len(receiver.received) == 4


async def test_retry_after_may_lengthen_the_delay_but_not_shorten_it(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """The default delay is 60 seconds."""
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
    attempts=st.integers(1, 4),
    duration_s=st.integers(0, 10),
    status=st.none() | st.integers(100, 599),
    retry_after=st.none()
    | st.integers(-10, 10**9).map(str)
    | st.floats().map(str)
    | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda time: format_datetime(time.replace(tzinfo=UTC)))  # noqa: DTZ001
    | st.integers(10**4, 10**30).map("Mon, 01 Jan {} 00:00:00 GMT".format)
    | st.integers(0, 10**30).map("Mon, 01 Jan 2026 00:00:00 +{}".format)
    | st.text(max_size=30),
)
def test_the_next_attempt_is_a_minute_to_an_hour_away_for_any_response(
    attempts: int, duration_s: int, status: int | None, retry_after: str | None
) -> None:
    """60 seconds, or longer by Retry-After up to an hour; none after four attempts or after 410."""
    started = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
    ended = started + timedelta(seconds=duration_s)
    next_at = next_attempt_at(attempts, started_at=started, ended_at=ended, status=status, retry_after=retry_after)

    if attempts == 4 or status == 410:
        assert next_at is None
    else:
        assert next_at is not None
        assert started + timedelta(seconds=60) <= next_at <= ended + timedelta(hours=1)


async def test_a_410_disables_the_endpoint(webhooks: WebhookRig, receiver: Receiver) -> None:
    """The endpoint is disabled at once; later deliveries are held."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing(status=410)
    await webhooks.add_events("first")
    (delivery,) = await webhooks.wait_until_finished(endpoint)
    updated = await webhooks.services.endpoints.get(webhooks.tenant, endpoint.id)
    await webhooks.add_events("second")

    assert (delivery.state, delivery.attempt_count) == (DeliveryState.FAILED, 1)
    assert (updated.enabled, updated.disabled_reason) == (False, DisabledReason.GONE)
    assert await webhooks.list_states(endpoint) == ["failed", "held"]
    assert len(receiver.received) == 1


async def test_twenty_failures_and_a_day_without_success_disable(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """Twenty failures within an hour, or few failures in a day, do not disable."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()

    async def fail(*names: str) -> bool:
        await webhooks.add_events(*names)
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
    updated = await webhooks.services.endpoints.get(webhooks.tenant, endpoint.id)
    assert (updated.disabled_reason, updated.failures) == (DisabledReason.FAILURES, 20)


async def test_in_strict_order_a_failure_delays_later_events(webhooks: WebhookRig, receiver: Receiver) -> None:
    """Deliveries are sent one at a time in the order of the events, retries included."""
    strict = await webhooks.create_endpoint(receiver.url, strict_order=True)
    receiver.reply = failing("b")
    await webhooks.add_events(*"abcde")
    await webhooks.services.dispatcher.wait_until_idle()
    assert list_names(receiver) == ["a", "b"]

    receiver.reply = failing("d")
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()
    assert list_names(receiver) == ["a", "b", "b", "c", "d"]
    for _ in range(3):
        await webhooks.advance_clock(seconds=60)
        await webhooks.services.dispatcher.wait_until_idle()

    assert list_names(receiver) == ["a", "b", "b", "c", "d", "d", "d", "d", "e"]
    assert await webhooks.list_states(strict) == ["delivered", "delivered", "delivered", "failed", "delivered"]
    assert receiver.max_waiting == 1
    assert [delivery.attempt_count for delivery in await webhooks.list_deliveries(strict)] == [1, 2, 1, 4, 1]


async def test_without_strict_order_a_failure_delays_no_other_event(webhooks: WebhookRig, receiver: Receiver) -> None:
    """Strict order is optional."""
    await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing("b")
    await webhooks.add_events(*"abcde")
    await webhooks.services.dispatcher.wait_until_idle()

    assert sorted(map(str, list_names(receiver))) == list("abcde")


async def test_concurrent_deliveries_stay_within_the_limit_of_the_endpoint(webhooks: WebhookRig, receiver: Receiver) -> None:
    """Concurrent deliveries to one endpoint stay within its `concurrency`."""
    endpoint = await webhooks.create_endpoint(receiver.url, concurrency=3)
    await webhooks.add_events(*map(str, range(60)))
    await webhooks.wait_until_finished(endpoint)

    assert len(receiver.received) == 60
    assert receiver.max_waiting <= 3


async def test_pending_deliveries_of_a_deleted_endpoint_are_cancelled(webhooks: WebhookRig, receiver: Receiver, clock: FakeClock) -> None:
    """A deleted endpoint is never tried again, and nothing loops on it (Svix 1511)."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()
    await webhooks.add_events("first")
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.services.endpoints.delete(webhooks.tenant, endpoint.id)
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()

    assert len(receiver.received) == 1


async def test_pending_deliveries_of_a_disabled_endpoint_are_held_and_can_be_resent(webhooks: WebhookRig, receiver: Receiver) -> None:
    """After re-enabling, resend-failed sends the held deliveries."""
    endpoint = await webhooks.create_endpoint(receiver.url)
    receiver.reply = failing()
    await webhooks.add_events("first")
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange.of(enabled=False))
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()
    assert (len(receiver.received), await webhooks.list_states(endpoint)) == (1, ["held"])

    receiver.reply = lambda _: Reply()
    await webhooks.services.endpoints.update(webhooks.tenant, endpoint.id, EndpointChange.of(enabled=True))
    assert await webhooks.services.deliveries.resend_failed(webhooks.tenant, endpoint.id) == 1
    await webhooks.wait_until_finished(endpoint)
    assert await webhooks.list_states(endpoint) == ["delivered"]


async def test_a_delivery_in_flight_is_not_retried_after_its_endpoint_is_deleted_or_disabled(
    webhooks: WebhookRig, receiver: Receiver
) -> None:
    """The queue drops a deleted endpoint; the log of a disabled one has the attempt."""
    receiver.gate, receiver.reply = asyncio.Event(), failing()
    disabled, deleted = await webhooks.create_endpoint(receiver.url), await webhooks.create_endpoint(receiver.url)
    await webhooks.add_events("first")
    await eventually(lambda: receiver.waiting == 2)
    await webhooks.services.endpoints.update(webhooks.tenant, disabled.id, EndpointChange.of(enabled=False))
    await webhooks.services.endpoints.delete(webhooks.tenant, deleted.id)
    receiver.gate.set()
    await webhooks.services.dispatcher.wait_until_idle()
    await webhooks.advance_clock(seconds=60)
    await webhooks.services.dispatcher.wait_until_idle()

    assert len(receiver.received) == 2
    details = await webhooks.get_delivery(disabled)
    assert (details.delivery.state, [attempt.status for attempt in details.attempts]) == (DeliveryState.HELD, [503])
