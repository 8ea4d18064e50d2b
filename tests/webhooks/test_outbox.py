"""The outbox: subscribers of an event, stored in the transaction of the change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.pages import PageSlice
from rookery.memory.events import MemoryStored
from rookery.webhooks.events import DISABLED_EVENT
from rookery.webhooks.models import Delivery, DeliveryState
from rookery.webhooks.outbox import BACKLOG_FULL_MESSAGE, HELD_MESSAGE, NewEvent, Outbox
from rookery.webhooks.store import deliveries, endpoints, events
from rookery.webhooks.store.tables import ATTEMPTS, DELIVERIES, ENDPOINTS, EVENTS
from tests.conftest import FakeClock
from tests.memory.makers import make_memory
from tests.webhooks.makers import AT, CATALOGUE, WORKSPACE, add_event, build_payload, list_deliveries, store_endpoint

_NAMES = [event_type.name for event_type in CATALOGUE.types]
_GROUPS = sorted({f"{name.partition('.')[0]}.*" for name in _NAMES})


@pytest.fixture
def recorder(clock: FakeClock) -> Outbox:
    """An outbox without a dispatcher."""
    return Outbox(clock, uuid7)


@given(st.sampled_from(_NAMES), st.lists(st.sampled_from([*_NAMES, *_GROUPS, "*"]), min_size=1))
def test_subscriptions_match_names_groups_and_the_star(name: str, patterns: list[str]) -> None:
    """Patterns are exact names, `memory.*`, or `*`, which is all but tool.called."""
    by_wildcard = name not in {"tool.called", "webhook.test"} and ("*" in patterns or f"{name.partition('.')[0]}.*" in patterns)

    assert CATALOGUE.by_name[name].matches(patterns) is (name in patterns or by_wildcard)


@given(st.text(max_size=30))
def test_a_pattern_has_an_error_exactly_if_it_matches_no_event(text: str) -> None:
    """A pattern without any event is rejected."""
    matches_some = any(event_type.matches([text]) for event_type in CATALOGUE.types)

    assert (CATALOGUE.find_pattern_error(text) is None) is matches_some


def test_the_error_of_a_pattern_suggests_the_nearest_one() -> None:
    """The message suggests the nearest pattern if one is close."""
    assert "did you mean 'memory.stored'?" in (CATALOGUE.find_pattern_error("memory.store") or "")
    assert "did you mean 'session.*'?" in (CATALOGUE.find_pattern_error("sesion.*") or "")
    assert "did you mean" not in (CATALOGUE.find_pattern_error("zzzz") or "")


async def test_an_event_without_subscribers_is_neither_built_nor_stored(database: Database, recorder: Outbox) -> None:
    """Without subscribers there is no row, and the payload is not built."""
    other = await store_endpoint(database, workspace_id=2, public_workspace_id=2)
    unsubscribed = await store_endpoint(database, events=("plan.*",))

    def fail_build(_: bool) -> Mapping[str, object]:
        pytest.fail("the payload was built")

    await add_event(database, recorder, data=fail_build)

    assert [await list_deliveries(database, endpoint) for endpoint in (other, unsubscribed)] == [[], []]
    assert await database.read(lambda tx: events.delete_old(tx, before=AT + timedelta(days=1), limit=1)) == 0


async def test_each_subscriber_gets_one_delivery_of_one_event(database: Database, recorder: Outbox, clock: FakeClock) -> None:
    """Body {id, type, created_at, workspace_id, data}; the workspace shown is the parent of a sandbox."""
    first = await store_endpoint(database, public_workspace_id=7)
    second = await store_endpoint(database, public_workspace_id=7, events=("memory.stored", "memory.*"))

    await add_event(database, recorder)

    logs = [await list_deliveries(database, endpoint) for endpoint in (first, second)]
    (first_delivery, body), (second_delivery, same_body) = logs[0][0], logs[1][0]
    assert [len(log) for log in logs] == [1, 1]
    assert body == same_body
    assert body == {
        "id": first_delivery.event_id,
        "type": "memory.stored",
        "created_at": "2026-11-21T09:30:00.000000Z",
        "workspace_id": 7,
        "data": {"id": "a"},
    }
    assert first_delivery.event_id == second_delivery.event_id
    assert len(first_delivery.event_id) == len("evt_") + 24
    assert (first_delivery.state, first_delivery.next_at, first_delivery.attempt_count, first_delivery.created_at) == (
        DeliveryState.PENDING,
        clock.at,
        0,
        clock.at,
    )


async def test_content_goes_only_to_endpoints_that_include_it(database: Database, recorder: Outbox) -> None:
    """Events have the content only with `include_content`."""
    without_content, with_content = await store_endpoint(database), await store_endpoint(database, include_content=True)

    await add_event(database, recorder)

    assert [body["data"] for _, body in await list_deliveries(database, without_content)] == [{"id": "a"}]
    assert [body["data"] for _, body in await list_deliveries(database, with_content)] == [{"id": "a", "content": "We deploy on Tuesdays."}]


async def test_delivery_ids_sort_in_the_order_of_the_events(database: Database, recorder: Outbox) -> None:
    """Strict order: also within one transaction."""
    endpoint = await store_endpoint(database, events=("memory.*", "tool.called"))
    new_events = [
        NewEvent(type=CATALOGUE.by_name[name], at=AT, build_data=build_payload(id=number))
        for number, name in enumerate(["memory.stored", "tool.called"] * 50)
    ]

    await database.write(lambda tx: recorder.add_events(tx, WORKSPACE, new_events))

    log = sorted(await list_deliveries(database, endpoint), key=lambda pair: pair[0].id)
    assert [body["data"] for _, body in log] == [{"id": number} for number in range(100)]


async def test_a_rolled_back_change_has_no_event_and_a_committed_one_has(database: Database, recorder: Outbox) -> None:
    """Events are stored in the transaction of the change."""
    endpoint, wake_calls = await store_endpoint(database), list[str]()
    recorder.wake = lambda: wake_calls.append("up")

    def fail(tx: Tx) -> None:
        recorder.add_event(tx, CATALOGUE.by_name["memory.stored"], WORKSPACE, build_payload(id="undone"), AT)
        msg = "something went wrong after it"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        await database.write(fail)
    assert (await list_deliveries(database, endpoint), wake_calls) == ([], [])
    await add_event(database, recorder, data=build_payload(id="done"))

    assert [body["data"] for _, body in await list_deliveries(database, endpoint)] == [{"id": "done"}]
    assert wake_calls == ["up"]


async def test_a_failing_recorder_rolls_back_and_listeners_get_committed_events(database: Database) -> None:
    """`publish_on_commit` calls recorders in the transaction and listeners after it."""
    bus, memory_ids, failures = EventBus(), list[str](), [True]
    event = MemoryStored(workspace_id=WORKSPACE, memory=make_memory(FakeClock(AT), workspace_id=WORKSPACE), at=AT)
    endpoint = await store_endpoint(database)

    def recorder(tx: Tx, event: MemoryStored) -> None:
        ENDPOINTS.delete(tx, event.workspace_id, id=endpoint.id)
        if failures.pop():
            msg = "no room"
            raise RuntimeError(msg)

    bus.add_recorder(MemoryStored, recorder)
    bus.subscribe(MemoryStored, lambda stored: memory_ids.append(stored.memory_id))
    with pytest.raises(RuntimeError):
        await database.write(lambda tx: bus.publish_on_commit(tx, event))
    assert (await database.read(lambda tx: ENDPOINTS.count(tx, WORKSPACE)), memory_ids) == (1, [])

    failures.append(False)
    await database.write(lambda tx: bus.publish_on_commit(tx, event))

    assert (await database.read(lambda tx: ENDPOINTS.count(tx, WORKSPACE)), memory_ids) == (0, [event.memory_id])


async def test_deliveries_of_a_disabled_endpoint_are_held_and_the_subject_is_excluded(database: Database, recorder: Outbox) -> None:
    """Events during the time are held; webhook.disabled goes to other endpoints."""
    disabled, subject = await store_endpoint(database, enabled=False), await store_endpoint(database)
    event = NewEvent(type=DISABLED_EVENT, at=AT, build_data=build_payload(id=subject.id))

    await database.write(lambda tx: recorder.add_events(tx, WORKSPACE, [event], excluded_endpoint_id=subject.id))

    assert [(delivery.state, delivery.next_at, delivery.error) for delivery, _ in await list_deliveries(database, disabled)] == [
        (DeliveryState.HELD, None, HELD_MESSAGE)
    ]
    assert await list_deliveries(database, subject) == []


async def test_deliveries_over_the_backlog_limit_fail_without_failing_the_change(database: Database, clock: FakeClock) -> None:
    """The backlog of a workspace is bounded, and `remember` never fails because of it."""
    recorder = Outbox(clock, uuid7, max_open=5)
    endpoint = await store_endpoint(database)
    other = await store_endpoint(database, workspace_id=2, public_workspace_id=2)

    for _ in range(7):
        await add_event(database, recorder)
    await add_event(database, recorder, workspace_id=2)
    log = [delivery for delivery, _ in await list_deliveries(database, endpoint)]
    assert sorted(delivery.state for delivery in log) == [DeliveryState.FAILED] * 2 + [DeliveryState.PENDING] * 5
    assert {delivery.error for delivery in log if delivery.state is DeliveryState.FAILED} == {BACKLOG_FULL_MESSAGE}
    assert [delivery.state for delivery, _ in await list_deliveries(database, other)] == [DeliveryState.PENDING]

    await database.write(lambda tx: deliveries.hold(tx, WORKSPACE, endpoint.id, error="away"))
    clock.advance(seconds=2)
    await add_event(database, recorder)
    assert [delivery.state for delivery, _ in await list_deliveries(database, endpoint)][-1] is DeliveryState.PENDING


async def test_old_events_are_deleted_with_their_deliveries(database: Database, recorder: Outbox) -> None:
    """Deliveries and events are kept 30 days."""
    endpoint = await store_endpoint(database)
    for days in range(3):
        await add_event(database, recorder, data=build_payload(id=days), at=AT + timedelta(days=days))

    assert await database.write(lambda tx: events.delete_old(tx, before=AT + timedelta(days=1), limit=10)) == 1
    assert [body["data"] for _, body in await list_deliveries(database, endpoint)] == [{"id": 1}, {"id": 2}]


async def test_no_query_of_a_store_finds_what_is_another_tenants(database: Database, recorder: Outbox) -> None:
    """Every store method is called as another workspace."""
    endpoint = await store_endpoint(database)
    await add_event(database, recorder)
    delivery: Delivery = (await list_deliveries(database, endpoint))[0][0]

    def as_other(tx: Tx) -> list[object]:
        return [
            ENDPOINTS.find(tx, 2, id=endpoint.id),
            ENDPOINTS.count(tx, 2),
            *endpoints.list_page(tx, 2, page=PageSlice(10))[:2],
            *endpoints.list_subscriptions(tx, 2),
            ENDPOINTS.delete(tx, 2, id=endpoint.id) > 0,
            EVENTS.find(tx, 2, id=delivery.event_id),
            DELIVERIES.find(tx, 2, endpoint_id=endpoint.id, id=delivery.id),
            deliveries.count_open(tx, 2, limit=10),
            DELIVERIES.count(tx, 2, endpoint_id=endpoint.id),
            *deliveries.list_resendable(tx, 2, endpoint.id, since=None, until=AT + timedelta(days=1), limit=10),
            deliveries.hold(tx, 2, endpoint.id, error=""),
            deliveries.cancel(tx, 2, endpoint.id, error="", at=AT),
            deliveries.requeue(tx, 2, endpoint.id, [delivery.id], at=AT),
            *ATTEMPTS.find_all(tx, 2, "number", delivery_id=delivery.id),
            events.purge(tx, 2),
            endpoints.purge(tx, 2),
        ]

    assert not any(await database.write(as_other))
    assert [stored for stored, _ in await list_deliveries(database, endpoint)] == [delivery]
