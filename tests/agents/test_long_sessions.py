"""Sessions of coding agents that are compacted, resumed, left and run in parallel."""

from __future__ import annotations

import asyncio

import pytest

from tests.agents.session_makers import SESSIONS, Json, get_list, get_nested, parse_body
from tests.agents.test_agent_hooks import QUESTION, TUESDAY, end, list_messages, list_sessions, prompt, start, stop, text_of
from tests.conftest import Caller, FakeClock, Instance


async def write_handoff(caller: Caller, session: Json, summary: str) -> None:
    """End a session with a hand-off."""
    parse_body(await caller.post(f"{SESSIONS}/{session['id']}/end", {"handoff": {"summary": summary}}))


async def open_session(caller: Caller, name: str, *, query: str = "project=web") -> Json:
    """Start a client's session and return its agent session."""
    await start(caller, name, query=query)
    return (await list_sessions(caller))[0]


async def test_each_compaction_and_resume_gives_the_text_and_the_memories_again(clocked_instance: Instance, clock: FakeClock) -> None:
    """The conversation has lost what was given before, so a start gives it again, and so does the same prompt after it."""
    kim = clocked_instance.agent
    await start(kim, "c0")
    await stop(kim, "c0", "The form is drawn.")
    await kim.remember(TUESDAY, project="web")
    for source in ("startup", "compact", "compact", "resume", "clear", "resume", "startup"):
        clock.advance(seconds=1)
        assert "The form is drawn." in text_of(await start(kim, "c1", source=source))
        clock.advance(seconds=1)
        assert "Tuesday" in text_of(await prompt(kim, "c1", QUESTION))
        clock.advance(seconds=1)
        assert "Tuesday" not in text_of(await prompt(kim, "c1", f"{QUESTION} I forgot."))


async def test_the_same_start_within_seconds_is_a_double(clocked_instance: Instance, clock: FakeClock) -> None:
    """Two sets of hooks report one compaction; the next one, seconds later and without a prompt, is another event."""
    kim = clocked_instance.agent
    await start(kim, "c0")
    await stop(kim, "c0", "The form is drawn.")
    await start(kim, "c1")
    for _ in range(2):
        clock.advance(seconds=4)
        answers = await asyncio.gather(*(start(kim, "c1", client=client, source="compact") for client in ("claude-code", "vscode") * 2))
        assert sorted(bool(answer) for answer in answers) == [False, False, False, True]
    clock.advance(seconds=4)
    assert text_of(await start(kim, "c1", source="compact"))
    clock.advance(seconds=1)
    await prompt(kim, "c1", "Go on.")
    clock.advance(seconds=1)
    assert await start(kim, "c1", client="vscode", source="compact") == {}  # the hooks of the other client, which came late
    assert text_of(await start(kim, "c1", source="compact"))


async def test_a_session_that_is_left_and_resumed_at_once_gets_its_text(clocked_instance: Instance) -> None:
    """An exit lies between two starts, so the second one is no double."""
    kim = clocked_instance.agent
    await start(kim, "c0")
    await stop(kim, "c0", "The form is drawn.")
    for _ in range(3):
        assert "The form is drawn." in text_of(await start(kim, "c1", source="resume"))
        await end(kim, "c1")


async def test_a_repeated_message_and_turn_are_recorded_later(clocked_instance: Instance, clock: FakeClock) -> None:
    """A client that was started again counts its turns from the first one, and an agent may say the same twice."""
    kim = clocked_instance.agent
    await start(kim, "c1")
    for _ in range(2):
        clock.advance(seconds=4)
        for client in ("claude-code", "codex"):
            await stop(kim, "c1", "Done.", client=client, turn_id="1")
    (session,) = await list_sessions(kim)
    assert await list_messages(kim, session["id"]) == ["Done.", "Done."]


@pytest.mark.parametrize("count", [1, 40])
async def test_a_hand_off_is_found_behind_empty_sessions(clocked_instance: Instance, clock: FakeClock, count: int) -> None:
    """Windows that were opened and closed hide nothing, nor do sessions in another org with a project of the same name."""
    kim = clocked_instance.agent
    await write_handoff(kim, await open_session(kim, "first", query="project=web&org=acme"), "The backfill is not started.")
    for number in range(count):
        clock.advance(seconds=1)
        await start(kim, f"empty-{number}", query="project=web&org=acme")
        await end(kim, f"empty-{number}")
        await start(kim, f"other-{number}", query="project=web&org=globex")
        await stop(kim, f"other-{number}", "Something else.")
    assert "The backfill is not started." in text_of(await start(kim, "next", query="project=web&org=acme"))


async def test_hand_offs_in_parallel_are_all_named(clocked_instance: Instance, clock: FakeClock) -> None:
    """Nobody saw the hand-off of a session in parallel. The newest is shown in full, each other one in a line."""
    kim = clocked_instance.agent
    sessions = [await open_session(kim, name) for name in ("parser", "printer", "lexer")]
    for session, name in zip(sessions, ("parser", "printer", "lexer"), strict=True):
        clock.advance(seconds=1)
        await write_handoff(kim, session, f"The {name} is half done.")
    for name in ("next", "after"):
        text = text_of(await start(kim, name))
        assert "Hand-off note of the last session (agent, just now): The lexer is half done." in text
        for other, session in zip(("parser", "printer"), sessions, strict=False):
            assert f"Hand-off note of a session in parallel (agent, just now, {session['id']}): The {other} is half done." in text

    clock.advance(seconds=1)
    await stop(kim, "after", "All three are done.")
    text = text_of(await start(kim, "last"))
    assert "All three are done." in text
    assert "Hand-off" not in text  # the text of the session "after" had them


async def test_a_hand_off_written_beside_a_newer_session_comes_before_its_message(clocked_instance: Instance, clock: FakeClock) -> None:
    """The session that started last could not know the hand-off, so both are shown."""
    kim = clocked_instance.agent
    older = await open_session(kim, "older")
    clock.advance(seconds=1)
    await start(kim, "newer")
    clock.advance(seconds=1)
    await write_handoff(kim, older, "The parser is half done.")
    await stop(kim, "newer", "The colours are chosen.")
    text = text_of(await start(kim, "next"))
    assert "Hand-off note of the last session (agent, just now): The parser is half done." in text
    assert "The last message of the last session (agent, just now): The colours are chosen." in text


async def recall(caller: Caller, session_id: object) -> list[str]:
    """Return the memories of scope session that recall finds by the id of a session."""
    body = {"query": "Which file holds the parser?", "session_id": session_id, "project": "web", "include_scopes": ["session"]}
    return sorted(str(memory["content"]) for memory in get_list(parse_body(await caller.post("/v1/brain/recall", body)), "memories"))


async def list_memories(caller: Caller, session_id: object) -> list[str]:
    """Return the memories that the list shows for a session."""
    listed = get_list(parse_body(await caller.get(f"/v1/brain/memories?session_id={session_id}&project=web")))
    return sorted(str(memory["content"]) for memory in listed)


async def test_a_session_that_is_left_and_resumed_again_and_again_keeps_its_memories(clocked_instance: Instance, clock: FakeClock) -> None:
    """An exit ends the session, and its successors find its memories in recall, search, lists and prompts."""
    kim = clocked_instance.agent
    contents = list[str]()
    for day in range(4):
        await start(kim, "c1", source="resume" if day else "startup")
        session = (await list_sessions(kim))[0]
        contents.append(f"The parser is in file src/forms/part{day}.ts.")
        await kim.remember(contents[-1], project="web", memory_scope="session", session_id=session["id"])
        assert await recall(kim, session["id"]) == contents
        assert await list_memories(kim, session["id"]) == contents
        found = parse_body(await kim.get(f"/v1/brain/search?q=parser&session_id={session['id']}&project=web"))
        assert found["total"] == len(contents)
        assert "part0.ts" in text_of(await prompt(kim, "c1", "Which file holds the parser?"))
        await end(kim, "c1")
        clock.advance(days=5)
        await clocked_instance.rookery.agents.sessions.sweeper.sweep()

    last = (await list_sessions(kim))[0]
    assert await recall(kim, last["id"]) == contents
    clock.advance(days=3)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert await list_memories(kim, last["id"]) == []  # nobody resumed it for seven days


async def test_the_memories_of_a_chain_go_with_its_last_session(clocked_instance: Instance, clock: FakeClock) -> None:
    """They stay while a successor works, for longer than seven days too, and go when it completes."""
    kim = clocked_instance.agent
    session = await open_session(kim, "c1")
    await kim.remember("The parser is in src/forms/date.ts.", project="web", memory_scope="session", session_id=session["id"])
    await end(kim, "c1")
    await start(kim, "c1", source="resume")
    successor = (await list_sessions(kim))[0]
    for _ in range(12):
        clock.advance(hours=23)
        await prompt(kim, "c1", "Go on.")
        parse_body(await kim.post(f"{SESSIONS}/{successor['id']}/heartbeat"))
        await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert len(await recall(kim, successor["id"])) == 1
    parse_body(await kim.post(f"{SESSIONS}/{successor['id']}/end"))
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert await recall(kim, successor["id"]) == []


async def test_a_session_after_a_hand_off_recalls_the_memories_of_the_one_it_resumes(instance: Instance) -> None:
    """By the id of the successor, not only by that of the first session; other sessions and workspaces find none."""
    kim = instance.agent
    first = await open_session(kim, "c1")
    content = "The parser is in src/forms/date.ts."
    await kim.remember(content, project="web", memory_scope="session", session_id=first["id"])
    await write_handoff(kim, first, "The parser is half done.")
    resumed = parse_body(await kim.post(f"{SESSIONS}/{first['id']}/resume"), 201)
    successor = get_nested(resumed, "session")["id"]
    assert await recall(kim, successor) == await recall(kim, first["id"]) == [content]
    stranger = await open_session(kim, "c2")
    assert await recall(kim, stranger["id"]) == []
    other = await instance.agent_key(workspace_id=await instance.workspace("other"))
    assert await recall(other, successor) == []


LOG = "".join(
    f"2026-11-22T05:5{n % 10}:0{n % 7}Z info worker-{n % 4} request id={n * 7919} path=/static/app.{n}.js took={n}ms\n" for n in range(40)
)


@pytest.mark.parametrize("prompt_text", [f"{LOG}\n\n{QUESTION}", f"{QUESTION}\n\n{LOG}", f"{LOG}\n{QUESTION}\n{LOG * 200}"])
async def test_a_question_beside_a_log_finds_what_the_question_finds(instance: Instance, prompt_text: str) -> None:
    """At a prompt of any length, and by recall within its limit. The error of a longer query says to send the question alone."""
    kim = instance.agent
    for content in ("The kettle of the office needs descaling.", "Gulls nest behind the shed.", "The app logs requests by id.", TUESDAY):
        await kim.remember(content, project="web")
    await start(kim, "c1")
    assert "Tuesday" in text_of(await prompt(kim, "c1", prompt_text))

    query = f"{LOG[:1_900]}\n{QUESTION}"
    for mode in ("hybrid", "semantic", "keyword"):
        found = get_list(parse_body(await kim.post("/v1/brain/recall", {"query": query, "project": "web", "mode": mode})), "memories")
        assert found[0]["content"] == TUESDAY
    rejected = await kim.post("/v1/brain/recall", {"query": LOG + QUESTION})
    assert rejected.status_code == 422
    assert "send the question alone" in rejected.text
