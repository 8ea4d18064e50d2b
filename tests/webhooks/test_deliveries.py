"""How deliveries go out: when, how often, to whom, and what the log says of it (spec 6.2, D-81)."""

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
from tests.webhooks.office import Office, office
from tests.webhooks.receiver import Received, Receiver, Reply, receiver


@pytest.fixture
async def post(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[Office]:
    """Webhooks that are at work, on a store of each dialect in turn."""
    async with office(database, data_dir, clock) as running:
        yield running


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    """A receiver that thanks for everything."""
    async with receiver() as running:
        yield running


def failing(*names: str, status: int = 503, retry_after: str | None = None) -> Callable[[Received], Reply]:
    """Return what refuses the events of these *names*, or all if there are none."""
    headers = {} if retry_after is None else {"retry-after": retry_after}

    def reply(received: Received) -> Reply:
        data = received.event["data"]
        assert isinstance(data, dict)
        return Reply(status=status, headers=headers) if not names or data["name"] in names else Reply()

    return reply


def names(there: Receiver) -> list[object]:
    """Return the names of the events that came, as they came."""
    return [each.event["data"]["name"] for each in there.received]  # pyright: ignore[reportIndexIssue]


async def test_an_event_arrives_once_as_it_was_written_down(post: Office, there: Receiver) -> None:
    """D-81: the body byte for byte, the event's id in a header, and an attempt in the log that tells what was answered."""
    endpoint = await post.endpoint(there.url)
    await post.tell("first")
    (delivery,) = await post.ended(endpoint)
    view = await post.view(endpoint)

    assert [each.body for each in there.received] == [view.body]
    assert there.received[0].headers["webhook-id"] == there.received[0].event["id"] == delivery.event_id
    assert (delivery.state, delivery.attempt_count, delivery.status) == (DeliveryState.DELIVERED, 1, 200)
    (attempt,) = view.attempts
    assert (attempt.outcome, attempt.status, attempt.response, attempt.error) == (Outcome.SUCCESS, 200, "thanks", None)


async def test_no_answer_repeats_what_a_deleted_memory_said(post: Office, there: Receiver, database: Database, clock: FakeClock) -> None:
    """D-41: what a receiver answered goes with the content that it was sent, also if the answer comes after the memory went."""
    there.reply = lambda received: Reply(body=received.body)
    there.gate, there.gated = asyncio.Event(), "/hook/late"
    quick, late = await post.endpoint(there.url, include_content=True), await post.endpoint(f"{there.url}/late", include_content=True)
    said = NewEvent(type="memory.stored", at=clock(), build_data=lambda _: {"content": "The safe opens with 4711."}, memory_id="safe")
    await database.write(lambda tx: post.services.outbox.add_events(tx, post.tenant.workspace_id, [said]))
    await post.ended(quick)
    await eventually(lambda: there.waiting)
    assert "4711" in str((await post.view(quick)).attempts)

    await database.write(lambda tx: post.services.outbox.redact_memory(tx, post.tenant.workspace_id, "safe"))
    there.gate.set()
    await post.ended(late)

    assert "4711" not in f"{await post.view(quick)}{await post.view(late)}"


async def test_a_failure_is_tried_again_three_times_a_minute_apart_and_no_more(post: Office, there: Receiver, clock: FakeClock) -> None:
    """Spec 6.2, D-81: at 0, 60, 120 and 180 seconds exactly, with the same body under the same id; then it has failed."""
    began = clock()
    endpoint = await post.endpoint(there.url)
    there.reply = failing()
    await post.tell("first")
    for number in (1, 2, 3):
        await post.attempted(endpoint, number)
        await post.pass_time(seconds=59, milliseconds=999)
        await post.services.dispatcher.wait_until_idle()
        assert len(there.received) == number
        await post.pass_time(milliseconds=1)
    (delivery,) = await post.ended(endpoint)
    view = await post.view(endpoint)

    assert [(each.started_at - began).total_seconds() for each in view.attempts] == [0, 60, 120, 180]
    assert {each.body for each in there.received} == {view.body}
    assert len(set(there.ids())) == 1
    assert len({each.headers["webhook-timestamp"] for each in there.received}) == 4
    assert (delivery.state, delivery.attempt_count, delivery.status, delivery.error) == (
        DeliveryState.FAILED,
        4,
        503,
        "The endpoint answered 503.",
    )
    await post.pass_time(days=1)
    assert len(there.received) == 4


async def test_a_receiver_may_ask_for_more_patience_but_not_for_less(post: Office, there: Receiver, clock: FakeClock) -> None:
    """D-81: Retry-After only lengthens."""
    endpoint = await post.endpoint(there.url)
    there.reply = failing(retry_after="300")
    await post.tell("first")
    first = await post.attempted(endpoint, 1)
    assert first.delivery.next_at == clock() + timedelta(seconds=300)

    there.reply = failing(retry_after="5")
    await post.pass_time(seconds=300)
    second = await post.attempted(endpoint, 2)
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


async def test_a_receiver_that_is_gone_is_told_nothing_more(post: Office, there: Receiver) -> None:
    """D-81: 410 disables at once; what happens later is held for when it is enabled again."""
    endpoint = await post.endpoint(there.url)
    there.reply = failing(status=410)
    await post.tell("first")
    (delivery,) = await post.ended(endpoint)
    now = await post.services.endpoints.get(post.tenant, endpoint.id)
    await post.tell("second")

    assert (delivery.state, delivery.attempt_count) == (DeliveryState.FAILED, 1)
    assert (now.enabled, now.disabled_reason) == (False, DisabledReason.GONE)
    assert await post.states(endpoint) == ["failed", "held"]
    assert len(there.received) == 1


async def test_twenty_failures_and_a_day_without_success_disable(post: Office, there: Receiver, clock: FakeClock) -> None:
    """D-81: neither alone: not twenty within an hour, nor a day of few."""
    endpoint = await post.endpoint(there.url)
    there.reply = failing()

    async def fail(*some: str) -> bool:
        await post.tell(*some)
        for _ in range(4):
            await post.services.dispatcher.wait_until_idle()
            await post.pass_time(seconds=60)
        await post.ended(endpoint)
        return (await post.services.endpoints.get(post.tenant, endpoint.id)).enabled

    assert await fail(*(str(number) for number in range(20)))
    there.reply = lambda _: Reply()
    await post.tell("a success")
    await post.ended(endpoint)
    there.reply = failing()
    clock.advance(days=2)
    assert await fail(*(str(number) for number in range(19)))
    assert not await fail("the twentieth")
    now = await post.services.endpoints.get(post.tenant, endpoint.id)
    assert (now.disabled_reason, now.failures) == (DisabledReason.FAILURES, 20)


async def test_in_strict_order_what_fails_holds_up_what_comes_after_it(post: Office, there: Receiver) -> None:
    """D-81: one at a time and in the order of the events, retries included; without it the others go on."""
    strict = await post.endpoint(there.url, strict_order=True)
    there.reply = failing("b")
    await post.tell(*"abcde")
    await post.services.dispatcher.wait_until_idle()
    assert names(there) == ["a", "b"]

    there.reply = failing("d")
    await post.pass_time(seconds=60)
    await post.services.dispatcher.wait_until_idle()
    assert names(there) == ["a", "b", "b", "c", "d"]
    for _ in range(3):
        await post.pass_time(seconds=60)
        await post.services.dispatcher.wait_until_idle()

    assert names(there) == ["a", "b", "b", "c", "d", "d", "d", "d", "e"]
    assert await post.states(strict) == ["delivered", "delivered", "delivered", "failed", "delivered"]
    assert there.most_at_once == 1
    assert [each.attempt_count for each in await post.log(strict)] == [1, 2, 1, 4, 1]


async def test_without_strict_order_a_failure_holds_up_nobody(post: Office, there: Receiver) -> None:
    """D-81: strict order is optional."""
    await post.endpoint(there.url)
    there.reply = failing("b")
    await post.tell(*"abcde")
    await post.services.dispatcher.wait_until_idle()

    assert sorted(map(str, names(there))) == list("abcde")


async def test_no_more_go_to_one_endpoint_at_once_than_it_wants(post: Office, there: Receiver) -> None:
    """Issue 7: per-endpoint concurrency."""
    endpoint = await post.endpoint(there.url, concurrency=3)
    await post.tell(*map(str, range(60)))
    await post.ended(endpoint)

    assert len(there.received) == 60
    assert there.most_at_once <= 3


async def test_what_waits_for_an_endpoint_that_is_deleted_is_cancelled(post: Office, there: Receiver, clock: FakeClock) -> None:
    """Svix 1511: a deleted endpoint is never tried again, nor does anything go round in circles for it."""
    endpoint = await post.endpoint(there.url)
    there.reply = failing()
    await post.tell("first")
    await post.services.dispatcher.wait_until_idle()
    await post.services.endpoints.delete(post.tenant, endpoint.id)
    await post.pass_time(seconds=60)
    await post.services.dispatcher.wait_until_idle()

    assert len(there.received) == 1


async def test_what_waits_for_an_endpoint_that_is_disabled_is_held_and_can_be_sent_when_it_is_enabled(
    post: Office, there: Receiver
) -> None:
    """D-81: re-enable offers all since."""
    endpoint = await post.endpoint(there.url)
    there.reply = failing()
    await post.tell("first")
    await post.services.dispatcher.wait_until_idle()
    await post.services.endpoints.update(post.tenant, endpoint.id, EndpointChange(enabled=False))
    await post.pass_time(seconds=60)
    await post.services.dispatcher.wait_until_idle()
    assert (len(there.received), await post.states(endpoint)) == (1, ["held"])

    there.reply = lambda _: Reply()
    await post.services.endpoints.update(post.tenant, endpoint.id, EndpointChange(enabled=True))
    assert await post.services.deliveries.resend_failed(post.tenant, endpoint.id) == 1
    await post.ended(endpoint)
    assert await post.states(endpoint) == ["delivered"]


async def test_a_delivery_under_way_when_its_endpoint_is_deleted_or_disabled_is_not_tried_again(post: Office, there: Receiver) -> None:
    """Issue 7: the queue knows no endpoint that is not there; the log of one that is disabled tells of the attempt."""
    there.gate, there.reply = asyncio.Event(), failing()
    disabled, deleted = await post.endpoint(there.url), await post.endpoint(there.url)
    await post.tell("first")
    await eventually(lambda: there.waiting == 2)
    await post.services.endpoints.update(post.tenant, disabled.id, EndpointChange(enabled=False))
    await post.services.endpoints.delete(post.tenant, deleted.id)
    there.gate.set()
    await post.services.dispatcher.wait_until_idle()
    await post.pass_time(seconds=60)
    await post.services.dispatcher.wait_until_idle()

    assert len(there.received) == 2
    view = await post.view(disabled)
    assert (view.delivery.state, [each.status for each in view.attempts]) == (DeliveryState.HELD, [503])
