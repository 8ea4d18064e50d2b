"""The outbox: subscribers of an event, stored in the transaction of the change (D-80, D-81)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus, MemoryStored
from rookery.kernel.ids import uuid7
from rookery.webhooks.event_types import EVENT_TYPES, EVENT_TYPES_BY_NAME, find_pattern_error, is_subscribed
from rookery.webhooks.models import Delivery, DeliveryState
from rookery.webhooks.outbox import BACKLOG_FULL_MESSAGE, HELD_MESSAGE, NewEvent, Outbox
from rookery.webhooks.store import deliveries, endpoints, events
from tests.conftest import FakeClock
from tests.memory.makers import make_memory
from tests.webhooks.makers import AT, WORKSPACE, add_event, build_payload, list_deliveries, store_endpoint

_NAMES = [each.name for each in EVENT_TYPES]
_GROUPS = sorted({f"{name.partition('.')[0]}.*" for name in _NAMES})


@pytest.fixture
def recorder(clock: FakeClock) -> Outbox:
    """An outbox without a dispatcher."""
    return Outbox(clock, uuid7)


@given(st.sampled_from(_NAMES), st.lists(st.sampled_from([*_NAMES, *_GROUPS, "*"]), min_size=1))
def test_a_name_means_itself_a_group_what_is_in_it_and_a_star_all_but_what_must_be_named(name: str, patterns: list[str]) -> None:
    """D-80: exact names, `memory.*`, or `*` = all but tool.called, which must be named."""
    by_wildcard = name not in {"tool.called", "webhook.test"} and ("*" in patterns or f"{name.partition('.')[0]}.*" in patterns)

    assert is_subscribed(patterns, name) is (name in patterns or by_wildcard)


@given(st.text(max_size=30))
def test_whatever_is_no_pattern_is_told_why_and_means_nothing(text: str) -> None:
    """D-80: a pattern that means no event is refused, so none is kept that would never be heard of again."""
    means_some = any(is_subscribed([text], name) for name in EVENT_TYPES_BY_NAME)

    assert (find_pattern_error(text) is None) is means_some


def test_a_pattern_that_is_nearly_right_is_told_what_may_have_been_meant() -> None:
    """D-80, and house style: a message says what to do."""
    assert "did you mean 'memory.stored'?" in (find_pattern_error("memory.store") or "")
    assert "did you mean 'session.*'?" in (find_pattern_error("sesion.*") or "")
    assert "did you mean" not in (find_pattern_error("zzzz") or "")


async def test_where_nobody_listens_nothing_is_written_or_portrayed(database: Database, recorder: Outbox) -> None:
    """D-80: no subscriber, no row; and what it looks like is not even asked."""
    other = await store_endpoint(database, workspace_id=2, public_workspace_id=2)
    deaf = await store_endpoint(database, events=("plan.*",))

    def never(_: bool) -> Mapping[str, object]:
        pytest.fail("portrayed")

    await add_event(database, recorder, data=never)

    assert [await list_deliveries(database, each) for each in (other, deaf)] == [[], []]
    assert await database.read(lambda tx: events.delete_old(tx, before=AT + timedelta(days=1), limit=1)) == 0


async def test_each_hearer_gets_one_delivery_of_one_event(database: Database, recorder: Outbox, clock: FakeClock) -> None:
    """D-81: body {id, type, created_at, workspace_id, data}; the workspace shown is the parent of a sandbox (D-25)."""
    first = await store_endpoint(database, public_workspace_id=7)
    second = await store_endpoint(database, public_workspace_id=7, events=("memory.stored", "memory.*"))

    await add_event(database, recorder)

    logs = [await list_deliveries(database, each) for each in (first, second)]
    (one, body), (two, same) = logs[0][0], logs[1][0]
    assert [len(log) for log in logs] == [1, 1]
    assert body == same
    assert body == {
        "id": one.event_id,
        "type": "memory.stored",
        "created_at": "2026-11-21T09:30:00.000000Z",
        "workspace_id": 7,
        "data": {"id": "a"},
    }
    assert one.event_id == two.event_id
    assert len(one.event_id) == len("evt_") + 24
    assert (one.state, one.next_at, one.attempt_count, one.created_at) == (DeliveryState.PENDING, clock.at, 0, clock.at)


async def test_content_goes_to_those_alone_who_asked_for_it(database: Database, recorder: Outbox) -> None:
    """D-81: memories without content unless the endpoint asks `include_content`."""
    lean, rich = await store_endpoint(database), await store_endpoint(database, include_content=True)

    await add_event(database, recorder)

    assert [body["data"] for _, body in await list_deliveries(database, lean)] == [{"id": "a"}]
    assert [body["data"] for _, body in await list_deliveries(database, rich)] == [{"id": "a", "content": "We deploy on Tuesdays."}]


async def test_many_are_told_in_their_order_and_by_one_look(database: Database, recorder: Outbox) -> None:
    """D-81, strict order: ids of deliveries sort as the events were told, also of one transaction."""
    endpoint = await store_endpoint(database, events=("memory.*", "tool.called"))
    told = [
        NewEvent(type=name, at=AT, build_data=build_payload(id=number)) for number, name in enumerate(["memory.stored", "tool.called"] * 50)
    ]

    await database.write(lambda tx: recorder.add_events(tx, WORKSPACE, told))

    log = sorted(await list_deliveries(database, endpoint), key=lambda each: each[0].id)
    assert [body["data"] for _, body in log] == [{"id": number} for number in range(100)]


async def test_what_is_undone_is_not_told_and_what_is_done_is(database: Database, recorder: Outbox) -> None:
    """Issue 7: born in the same transaction as what they announce."""
    endpoint, woken = await store_endpoint(database), list[str]()
    recorder.wake = lambda: woken.append("up")

    def undone(tx: Tx) -> None:
        recorder.add_event(tx, "memory.stored", WORKSPACE, build_payload(id="undone"), AT)
        msg = "something went wrong after it"
        raise RuntimeError(msg)

    with pytest.raises(RuntimeError):
        await database.write(undone)
    assert (await list_deliveries(database, endpoint), woken) == ([], [])
    await add_event(database, recorder, data=build_payload(id="done"))

    assert [body["data"] for _, body in await list_deliveries(database, endpoint)] == [{"id": "done"}]
    assert woken == ["up"]


async def test_a_recorder_of_the_bus_undoes_what_it_cannot_write_down_and_listeners_hear_of_what_is_done(database: Database) -> None:
    """Issue 7: `publish_on_commit` is in the transaction for recorders and after it for listeners."""
    bus, heard, wrong = EventBus(), list[str](), [True]
    event = MemoryStored(workspace_id=WORKSPACE, memory=make_memory(FakeClock(AT), workspace_id=WORKSPACE), at=AT)
    endpoint = await store_endpoint(database)

    def recorder(tx: Tx, event: MemoryStored) -> None:
        endpoints.remove(tx, event.workspace_id, endpoint.id)
        if wrong.pop():
            msg = "no room"
            raise RuntimeError(msg)

    bus.add_recorder(MemoryStored, recorder)
    bus.subscribe(MemoryStored, lambda each: heard.append(each.memory_id))
    with pytest.raises(RuntimeError):
        await database.write(lambda tx: bus.publish_on_commit(tx, event))
    assert (await database.read(lambda tx: endpoints.count(tx, WORKSPACE)), heard) == (1, [])

    wrong.append(False)
    await database.write(lambda tx: bus.publish_on_commit(tx, event))

    assert (await database.read(lambda tx: endpoints.count(tx, WORKSPACE)), heard) == (0, [event.memory_id])


async def test_a_disabled_endpoint_is_told_later_and_one_that_it_is_about_not_at_all(database: Database, recorder: Outbox) -> None:
    """D-81: what happens while it is disabled is held; webhook.disabled goes to the others."""
    disabled, itself = await store_endpoint(database, enabled=False), await store_endpoint(database)
    told = NewEvent(type="webhook.disabled", at=AT, build_data=build_payload(id=itself.id))

    await database.write(lambda tx: recorder.add_events(tx, WORKSPACE, [told], excluded_endpoint_id=itself.id))

    assert [(each.state, each.next_at, each.error) for each, _ in await list_deliveries(database, disabled)] == [
        (DeliveryState.HELD, None, HELD_MESSAGE)
    ]
    assert await list_deliveries(database, itself) == []


async def test_beyond_what_may_wait_deliveries_are_born_failed_and_what_they_announce_goes_on(database: Database, clock: FakeClock) -> None:
    """D-17: the backlog of a workspace is bounded, and `remember` never fails because of it."""
    recorder = Outbox(clock, uuid7, max_open=5)
    endpoint = await store_endpoint(database)
    other = await store_endpoint(database, workspace_id=2, public_workspace_id=2)

    for _ in range(7):
        await add_event(database, recorder)
    await add_event(database, recorder, workspace_id=2)
    log = [each for each, _ in await list_deliveries(database, endpoint)]
    assert sorted(each.state for each in log) == [DeliveryState.FAILED] * 2 + [DeliveryState.PENDING] * 5
    assert {each.error for each in log if each.state is DeliveryState.FAILED} == {BACKLOG_FULL_MESSAGE}
    assert [each.state for each, _ in await list_deliveries(database, other)] == [DeliveryState.PENDING]

    await database.write(lambda tx: deliveries.hold(tx, WORKSPACE, endpoint.id, error="away"))
    clock.advance(seconds=2)
    await add_event(database, recorder)
    assert [each.state for each, _ in await list_deliveries(database, endpoint)][-1] is DeliveryState.PENDING


async def test_an_event_goes_with_its_log_when_it_is_too_old(database: Database, recorder: Outbox) -> None:
    """D-17: deliveries and events are kept 30 days."""
    endpoint = await store_endpoint(database)
    for days in range(3):
        await add_event(database, recorder, data=build_payload(id=days), at=AT + timedelta(days=days))

    assert await database.write(lambda tx: events.delete_old(tx, before=AT + timedelta(days=1), limit=10)) == 1
    assert [body["data"] for _, body in await list_deliveries(database, endpoint)] == [{"id": 1}, {"id": 2}]


async def test_no_query_of_a_store_finds_what_is_another_tenants(database: Database, recorder: Outbox) -> None:
    """D-10, house rule on tenancy: every store method is tried as another workspace."""
    endpoint = await store_endpoint(database)
    await add_event(database, recorder)
    delivery: Delivery = (await list_deliveries(database, endpoint))[0][0]

    def as_other(tx: Tx) -> list[object]:
        return [
            endpoints.find(tx, 2, endpoint.id),
            endpoints.count(tx, 2),
            *endpoints.list_page(tx, 2, limit=10, offset=0),
            *endpoints.list_subscriptions(tx, 2),
            endpoints.remove(tx, 2, endpoint.id),
            events.find(tx, 2, delivery.event_id),
            deliveries.find(tx, 2, endpoint.id, delivery.id),
            deliveries.count_open(tx, 2, limit=10),
            deliveries.count_held(tx, 2, endpoint.id),
            *deliveries.list_resendable(tx, 2, endpoint.id, since=None, until=AT + timedelta(days=1), limit=10),
            deliveries.hold(tx, 2, endpoint.id, error=""),
            deliveries.cancel(tx, 2, endpoint.id, error="", at=AT),
            deliveries.requeue(tx, 2, endpoint.id, [delivery.id], at=AT),
            *deliveries.list_attempts(tx, 2, delivery.id),
            events.purge(tx, 2),
            endpoints.purge(tx, 2),
        ]

    assert not any(await database.write(as_other))
    assert [each for each, _ in await list_deliveries(database, endpoint)] == [delivery]
