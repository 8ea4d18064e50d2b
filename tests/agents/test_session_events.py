"""Session events are stored in order, also with concurrent writers (D-62)."""

from __future__ import annotations

import asyncio

from rookery.agents.models.sessions import NewSessionEvent
from rookery.agents.sessions.records import SessionRecords
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
EACH = 6


async def test_events_have_numbers_without_gaps_whoever_writes(instance: Instance, settings: Settings) -> None:
    """D-62: append-only, gap-free seq, also where several processes append at once; a refused one leaves no gap."""
    session = await start_session_id(instance.admin)
    caller = make_caller(workspace_id=instance.workspace_id)
    stores = [open_database(settings.database_url.reveal(), data_dir=settings.data_dir) for _ in range(STORES)]

    async def write(number: int) -> list[int]:
        working = SessionRecords(db=stores[number % STORES], bus=EventBus(), clock=instance.rookery.clock, tool_calls=tool_calls)
        return [(await working.append(caller, session, NewSessionEvent(message=f"{number}/{each}"))).seq for each in range(EACH)]

    async def intrude() -> None:
        lee = make_caller(workspace_id=instance.workspace_id, agent_id="lee", scopes=frozenset({"sessions.write"}))
        working = instance.rookery.agents.sessions.records
        refusals = await asyncio.gather(
            *(working.append(lee, session, NewSessionEvent(message="no")) for _ in range(EACH)), return_exceptions=True
        )
        assert all(isinstance(each, Exception) for each in refusals)

    try:
        *written, _ = await asyncio.gather(*(write(number) for number in range(WRITERS)), intrude())
    finally:
        await asyncio.gather(*(store.close() for store in stores))

    given = [seq for each in written if each is not None for seq in each]
    assert sorted(given) == list(range(1, WRITERS * EACH + 1))
    assert all(each == sorted(each) for each in written if each is not None)
    listed = get_list(parse_body(await instance.admin.get(f"{SESSIONS}/{session}/events?per_page=30")))
    more = get_list(parse_body(await instance.admin.get(f"{SESSIONS}/{session}/events?per_page=30&after=30")))
    assert [each["seq"] for each in [*listed, *more]] == sorted(given)


async def test_events_are_listed_after_a_number_and_by_type(instance: Instance) -> None:
    """D-12, D-65: GET …/events?after=&type= is a page, oldest first."""
    session = await start_session_id(instance.agent)
    await append_event(instance.agent, session, type="decision", message="Use SQLite.", data={"why": "one file"})
    await append_event(instance.agent, session, type="checkpoint", state={"step": 3})
    await append_event(instance.agent, session, message="onwards", task_id="t1", tokens={"input": 10, "output": 4})

    async def listed(query: str = "") -> list[Json]:
        return get_list(parse_body(await instance.agent.get(f"{SESSIONS}/{session}/events{query}")))

    every = await listed()
    assert [(each["seq"], each["type"], each["message"]) for each in every] == [
        (1, "decision", "Use SQLite."),
        (2, "checkpoint", "hello"),
        (3, "note", "onwards"),
    ]
    assert (every[0]["data"], every[1]["state"], every[2]["task_id"]) == ({"why": "one file"}, {"step": 3}, "t1")
    assert await listed("?after=1") == every[1:]
    assert await listed("?after=1&type=note") == every[2:]
    assert await listed("?page=2&per_page=1") == every[1:2]
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


async def test_a_wrong_event_says_what_is_wrong(instance: Instance) -> None:
    """D-10, D-62: a checkpoint has a state of at most 256 KiB; what is said is bounded; no number is spent on a refusal."""
    session = await start_session_id(instance.agent)
    for body, field in WRONG:
        answer = await instance.agent.post(f"{SESSIONS}/{session}/events", body)

        assert error_of(answer) == (422, "validation_error"), field
        assert list(answer.json()["errors"]) == [field]
    assert (await append_event(instance.agent, session))["seq"] == 1


async def test_a_checkpoint_of_256_kib_is_kept_whole(instance: Instance) -> None:
    """D-62: checkpoint{state ≤ 256 KiB}."""
    session = await start_session_id(instance.agent)
    state = {"big": "x" * (256 * 1024 - len('{"big":""}'))}

    assert (await append_event(instance.agent, session, type="checkpoint", state=state))["state"] == state


async def test_the_same_event_sent_again_is_written_once(instance: Instance) -> None:
    """D-14: POST takes an Idempotency-Key, so that an agent whose connection broke may send again."""
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}/events"

    first = await instance.agent.post(path, {"message": "once"}, **{"Idempotency-Key": "k"})
    again = await instance.agent.post(path, {"message": "once"}, **{"Idempotency-Key": "k"})

    assert parse_body(first, 201) == parse_body(again, 201)
    assert again.headers["idempotent-replay"] == "true"
    assert parse_body(await instance.agent.get(path))["meta"] == {"current_page": 1, "per_page": 15, "total": 1}


async def test_events_of_an_ended_session_stay_to_be_read(instance: Instance) -> None:
    """D-62: the log outlives the session."""
    session = await start_session_id(instance.agent)
    await append_event(instance.agent, session)
    await end_session(instance.agent, session)

    assert parse_body(await instance.agent.get(f"{SESSIONS}/{session}/events"))["meta"] == {"current_page": 1, "per_page": 15, "total": 1}
