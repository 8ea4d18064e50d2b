"""Session events are stored in order, also with concurrent writers."""

from __future__ import annotations

import asyncio

from rookery.agents.models.sessions import NewSessionEvent
from rookery.agents.sessions.records import SessionRecords, SessionTokenMeter
from rookery.kernel.db import open_database
from rookery.kernel.events import EventBus
from rookery.tools.store import calls as tool_calls
from tests.agents.session_makers import (
    SESSIONS,
    Json,
    append_event,
    end_session,
    error_of,
    get_list,
    get_session,
    parse_body,
    start_session_id,
)
from tests.conftest import Instance, Settings
from tests.memory.makers import make_caller

STORES = 3
WRITERS = 8
EVENTS_PER_WRITER = 6


async def test_event_numbers_have_no_gaps_with_concurrent_writers(instance: Instance, settings: Settings) -> None:
    """append-only, with a seq without gaps, also from several processes. A rejected event leaves no gap."""
    session = await start_session_id(instance.admin)
    caller = make_caller(workspace_id=instance.workspace_id)
    stores = [open_database(settings.database_url.reveal(), data_dir=settings.data_dir) for _ in range(STORES)]

    meter = SessionTokenMeter(ledger=instance.rookery.usage.ledger, price_tokens=lambda _: None)

    async def write(number: int) -> list[int]:
        records = SessionRecords(
            db=stores[number % STORES], bus=EventBus(), clock=instance.rookery.clock, tool_calls=tool_calls, token_meter=meter
        )
        return [
            (await records.append(caller, session, NewSessionEvent(message=f"{number}/{number_}"))).seq
            for number_ in range(EVENTS_PER_WRITER)
        ]

    async def write_as_other_agent() -> None:
        other_agent = make_caller(workspace_id=instance.workspace_id, agent_id="lee", scopes=frozenset({"sessions.write"}))
        records = instance.rookery.agents.sessions.records
        refusals = await asyncio.gather(
            *(records.append(other_agent, session, NewSessionEvent(message="no")) for _ in range(EVENTS_PER_WRITER)), return_exceptions=True
        )
        assert all(isinstance(refusal, Exception) for refusal in refusals)

    try:
        *results, _ = await asyncio.gather(*(write(number) for number in range(WRITERS)), write_as_other_agent())
    finally:
        await asyncio.gather(*(store.close() for store in stores))

    numbers = [seq for result in results if result is not None for seq in result]
    assert sorted(numbers) == list(range(1, WRITERS * EVENTS_PER_WRITER + 1))
    assert all(result == sorted(result) for result in results if result is not None)
    first_page = get_list(parse_body(await instance.admin.get(f"{SESSIONS}/{session}/events?per_page=30")))
    second_page = get_list(parse_body(await instance.admin.get(f"{SESSIONS}/{session}/events?per_page=30&after=30")))
    assert [event["seq"] for event in [*first_page, *second_page]] == sorted(numbers)


async def test_events_are_listed_after_a_number_and_by_type(instance: Instance) -> None:
    """GET …/events?after=&type= is a page, oldest first."""
    session = await start_session_id(instance.agent)
    await append_event(instance.agent, session, type="decision", message="Use SQLite.", data={"why": "one file"})
    await append_event(instance.agent, session, type="checkpoint", state={"step": 3})
    await append_event(instance.agent, session, message="onwards", task_id="t1", tokens={"input": 10, "output": 4})

    async def list_events(query: str = "") -> list[Json]:
        return get_list(parse_body(await instance.agent.get(f"{SESSIONS}/{session}/events{query}")))

    events = await list_events()
    assert [(event["seq"], event["type"], event["message"]) for event in events] == [
        (1, "decision", "Use SQLite."),
        (2, "checkpoint", "hello"),
        (3, "note", "onwards"),
    ]
    assert (events[0]["data"], events[1]["state"], events[2]["task_id"]) == ({"why": "one file"}, {"step": 3}, "t1")
    assert await list_events("?after=1") == events[1:]
    assert await list_events("?after=1&type=note") == events[2:]
    assert await list_events("?page=2&per_page=1") == events[1:2]
    assert (await get_session(instance.agent, session))["stats"] == {
        "events": 3,
        "tool_calls": 0,
        "tasks_completed": 0,
        "tokens_in": 10,
        "tokens_out": 4,
    }


WRONG: list[tuple[Json, str]] = [
    ({"type": "shout", "message": "x"}, "type"),
    ({"type": "note"}, "message"),
    ({"type": "checkpoint", "message": "x"}, "state"),
    ({"type": "note", "message": "x", "state": {}}, "state"),
    ({"type": "checkpoint", "state": {"big": "x" * (256 * 1024)}}, "state"),
    ({"message": "x", "data": {"big": "x" * (64 * 1024)}}, "data"),
    ({"message": "x" * 50_001}, "message"),
    ({"message": "x", "tokens": {"input": -1}}, "tokens.input"),
]


async def test_an_invalid_event_is_rejected_with_its_field(instance: Instance) -> None:
    """A checkpoint has a state of at most 256 KiB, texts have a maximum length, and a rejected event uses no number."""
    session = await start_session_id(instance.agent)
    for body, field in WRONG:
        response = await instance.agent.post(f"{SESSIONS}/{session}/events", body)

        assert error_of(response) == (422, "validation_error"), field
        assert list(response.json()["errors"]) == [field]
    assert (await append_event(instance.agent, session))["seq"] == 1


async def test_a_checkpoint_of_256_kib_is_stored_completely(instance: Instance) -> None:
    """Checkpoint{state ≤ 256 KiB}."""
    session = await start_session_id(instance.agent)
    state = {"big": "x" * (256 * 1024 - len('{"big":""}'))}

    assert (await append_event(instance.agent, session, type="checkpoint", state=state))["state"] == state


async def test_an_event_repeated_with_its_key_is_stored_once(instance: Instance) -> None:
    """POST accepts an Idempotency-Key, so that an agent can repeat a request after a broken connection."""
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}/events"

    first = await instance.agent.post(path, {"message": "once"}, **{"Idempotency-Key": "k"})
    repeated = await instance.agent.post(path, {"message": "once"}, **{"Idempotency-Key": "k"})

    assert parse_body(first, 201) == parse_body(repeated, 201)
    assert repeated.headers["idempotent-replay"] == "true"
    assert parse_body(await instance.agent.get(path))["meta"] == {"current_page": 1, "per_page": 15, "total": 1, "next_cursor": None}


async def test_events_of_an_ended_session_can_be_read(instance: Instance) -> None:
    """The log outlives the session."""
    session = await start_session_id(instance.agent)
    await append_event(instance.agent, session)
    await end_session(instance.agent, session)

    assert parse_body(await instance.agent.get(f"{SESSIONS}/{session}/events"))["meta"] == {
        "current_page": 1,
        "per_page": 15,
        "total": 1,
        "next_cursor": None,
    }
