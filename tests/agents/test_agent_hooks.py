"""The hooks of coding agents over HTTP: texts, records, doubles and failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from rookery.access.errors import Unauthorised
from rookery.access.models import Caller as AccessCaller
from rookery.access.models import KeyRestrictions
from rookery.agents.api.hooks import HookApi
from rookery.agents.hooks.agent_hooks import AgentHooks, HookMetrics
from rookery.agents.hooks.client_sessions import ClientSessions
from rookery.agents.hooks.project_names import ProjectNames
from rookery.agents.models.agent_hooks import HookCall, HookOutcome, HookProject, PastMemory
from rookery.coding_agents.hook_declarations import EVENTS
from rookery.kernel.data_folder import DiskSpace
from rookery.kernel.db import Database, open_database
from rookery.kernel.errors import EngineUnavailable, StorageFull
from rookery.kernel.http.edge import EdgeMiddleware
from rookery.kernel.http.routes import AdmissionResult, RouteTable, mount_routes
from rookery.kernel.metrics import Metrics
from tests.agents.session_makers import SESSIONS, Json, error_of, get_list, get_nested, make_plan, parse_body
from tests.conftest import Caller, FakeClock, Instance, Settings, run_instance
from tests.deadlines import HANG_S
from tests.memory.makers import make_caller
from tests.stopwatch import Stopwatch

CODE = "/api/agent/hooks/claude-code"
TUESDAY = "Releases of billing go out on Tuesday mornings, never before a holiday."
QUESTION = "When may I deploy billing?"


async def start(caller: Caller, session: str, *, client: str = "claude-code", query: str = "project=web", **payload: object) -> Json:
    """Report the start of a session and return the answer."""
    body = {"session_id": session, "source": "startup", "cwd": "/srv/web", "hook_event_name": "SessionStart"} | payload
    return parse_body(await caller.post(f"/api/agent/hooks/{client}/session-start?{query}", body))


async def prompt(caller: Caller, session: str, text: str, *, client: str = "claude-code", query: str = "", **payload: object) -> Json:
    """Report a prompt and return the answer."""
    body = {"session_id": session, "prompt": text, "hook_event_name": "UserPromptSubmit"} | payload
    return parse_body(await caller.post(f"/api/agent/hooks/{client}/prompt?{query}", body))


async def stop(caller: Caller, session: str, message: object, *, client: str = "claude-code", query: str = "", **payload: object) -> Json:
    """Report the end of a turn and return the answer."""
    body = {"session_id": session, "last_assistant_message": message, "stop_hook_active": False} | payload
    return parse_body(await caller.post(f"/api/agent/hooks/{client}/stop?{query}", body))


async def end(caller: Caller, session: str, *, client: str = "claude-code") -> Json:
    """Report the end of a session and return the answer."""
    return parse_body(await caller.post(f"/api/agent/hooks/{client}/end", {"session_id": session, "reason": "other"}))


def text_of(answer: Json) -> str:
    """Return the text in an answer, or an empty text for an empty answer."""
    if not answer:
        return ""
    return str(answer.get("additional_context") or get_nested(answer, "hookSpecificOutput")["additionalContext"])


async def list_sessions(caller: Caller) -> list[Json]:
    """Return the agent sessions that *caller* may read, newest first."""
    return get_list(parse_body(await caller.get(f"{SESSIONS}?per_page=100")))


async def list_messages(caller: Caller, session_id: object) -> list[object]:
    """Return the messages of the events of a session."""
    return [event["message"] for event in get_list(parse_body(await caller.get(f"{SESSIONS}/{session_id}/events")))]


async def test_a_session_is_recorded_and_its_record_reaches_the_next_one(instance: Instance) -> None:
    """Start, prompt, stop and end of Claude Code; the next session gets the last message, memories and ready tasks."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")
    await make_plan(instance, "Move the billing release to Wednesday", project="web")

    first = text_of(await start(kim, "c1", query="project=web&branch=billing-release&commit=Plan+the+release"))
    assert "- Move the billing release to Wednesday (plan ship-it)" in first
    assert "Releases of billing" in first
    assert "last session" not in first
    assert text_of(await prompt(kim, "c1", "Who was Ada Lovelace?")) == ""
    assert await stop(kim, "c1", "The release day is moved. <rookery_memory>\n- x\n</rookery_memory> Tests are left.") == {}
    assert await end(kim, "c1") == {}

    (session,) = await list_sessions(kim)
    assert (session["agent_type"], session["project"], session["status"]) == ("claude-code", "web", "completed")
    messages = await list_messages(kim, session["id"])
    assert [str(message).split() for message in messages] == ["The release day is moved. Tests are left.".split()]

    second = text_of(await start(kim, "c2"))
    assert "The last message of the last session (agent, just now): The release day is moved. Tests are left." in second
    assert "Releases of billing" in second  # the last message is the question


async def test_copilot_cli_finds_the_text_where_it_reads_it(instance: Instance) -> None:
    """It runs the hooks of VS Code, and drops `hookSpecificOutput`. Payloads of Copilot CLI 1.0.102."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")

    answer = await prompt(kim, "8fb32c77", QUESTION, client="vscode", query="project=web", cwd="/srv/web")

    assert answer["additionalContext"] == text_of(answer)
    assert TUESDAY in text_of(answer)
    assert get_nested(answer, "hookSpecificOutput")["hookEventName"] == "UserPromptSubmit"


async def test_gemini_cli_is_answered_to_the_prompt_of_its_user(instance: Instance) -> None:
    """With -p, the texts of the start stand before it. Payloads of Gemini CLI 0.61.0."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")
    context = "<hook_context>&lt;rookery_memory&gt;\nReleases of billing, Tuesday mornings\n&lt;/rookery_memory&gt;</hook_context>\n\n"
    asked, unrelated = f"{context}{QUESTION}", f"{context}Who was Ada Lovelace?"

    first = await prompt(kim, "0338f821", unrelated, client="gemini", query="project=web", hook_event_name="BeforeAgent")
    second = await prompt(kim, "0338f821", asked, client="gemini", query="project=web", hook_event_name="BeforeAgent")
    await stop(kim, "0338f821", None, client="gemini", query="project=web", prompt=asked, prompt_response="Billing is deployed.")
    await end(kim, "0338f821", client="gemini")

    assert first == {}
    assert TUESDAY in text_of(second)
    assert get_nested(second, "hookSpecificOutput")["hookEventName"] == "BeforeAgent"
    (session,) = await list_sessions(kim)
    assert (session["agent_type"], session["status"]) == ("gemini", "completed")
    assert await list_messages(kim, session["id"]) == ["Billing is deployed."]


async def test_qwen_code_reports_results_of_tools_as_an_empty_prompt(instance: Instance) -> None:
    """They are no question of the user. Payloads of Qwen Code 0.24.4."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")

    asked = await prompt(kim, "d6e35617", QUESTION, client="qwen-code", query="project=web", prompt_id="d6e35617########0")
    empty = await prompt(kim, "d6e35617", "", client="qwen-code", query="project=web", prompt_id="d6e35617########1")
    await stop(kim, "d6e35617", "On Tuesday.", client="qwen-code", query="project=web", prompt_id="d6e35617########0")

    assert TUESDAY in text_of(asked)
    assert empty == {}
    (session,) = await list_sessions(kim)
    assert await list_messages(kim, session["id"]) == ["On Tuesday."]


async def test_a_hand_off_is_told_in_place_of_the_last_message(clocked_instance: Instance, clock: FakeClock) -> None:
    """The hand-off note of the project's last session, with its age; an agent writes it in the session of its start."""
    kim = clocked_instance.agent
    await start(kim, "c1")
    (session,) = await list_sessions(kim)
    notes = {"summary": "The parser is half done.", "next_steps": ["Write the lexer tests"]}
    parse_body(await kim.send("PATCH", f"{SESSIONS}/{session['id']}", {"handoff": notes}))
    await stop(kim, "c1", "I wrote a hand-off.")
    await end(kim, "c1")
    assert (await list_sessions(kim))[0]["status"] == "handed_off"
    clock.advance(hours=3)

    text = text_of(await start(kim, "c2", client="codex"))
    assert "Hand-off note of the last session (agent, 3 hours ago): The parser is half done." in text
    assert "Next steps noted then: Write the lexer tests" in text
    assert "I wrote a hand-off" not in text
    other = text_of(await start(kim, "c3", query="project=other"))
    assert "It is still empty." in other
    assert "parser" not in other


async def test_a_memory_that_did_not_fit_at_the_start_is_given_at_a_prompt(instance: Instance) -> None:
    """A prompt gets memories that were not given in this session; one that was only found is not one that was given."""
    kim = instance.agent
    colours = ("red", "green", "blue", "yellow", "black")
    for colour in colours:
        await kim.remember(f"The {colour} lexer tests need the {colour} fixture. " + f"They are {colour}. " * 30, project="web")
    await start(kim, "c1")
    (session,) = await list_sessions(kim)
    steps = [f"Write the {colour} lexer tests with the {colour} fixture" for colour in colours]
    notes = {"summary": "s" * 900, "next_steps": steps} | {
        name: ["x" * 240] for name in ("completed", "remaining", "blockers", "decisions")
    }
    parse_body(await kim.send("PATCH", f"{SESSIONS}/{session['id']}", {"handoff": notes}))
    await end(kim, "c1")

    text = text_of(await start(kim, "c2"))
    left_out = [colour for colour in colours if f"The {colour} lexer" not in text]
    assert 0 < len(left_out) < len(colours)
    asked = text_of(await prompt(kim, "c2", f"What do the {left_out[0]} lexer tests need?"))
    assert f"The {left_out[0]} lexer" in asked


async def test_a_start_is_answered_once_for_each_source(instance: Instance) -> None:
    """Once per (session_id, source), also when two arrive at the same moment; a compaction is another source."""
    kim = instance.agent
    await start(kim, "c0")
    await stop(kim, "c0", "The cache is warm.")

    answers = await asyncio.gather(*(start(kim, "c1", client=client) for client in ("claude-code", "vscode", "claude-code", "vscode")))
    assert sorted(bool(answer) for answer in answers) == [False, False, False, True]
    assert await start(kim, "c1") == {}
    assert "The cache is warm." in text_of(await start(kim, "c1", source="compact"))
    assert [session["context"] for session in await list_sessions(kim)].count({"client": "claude-code", "client_session": "c1"}) <= 1
    assert len(await list_sessions(kim)) == 2


async def test_a_prompt_gets_a_memory_once_in_a_session(instance: Instance) -> None:
    """Only hits above the threshold, at most 1,200 characters, and not those already given in this session."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")
    await kim.remember("Pictures of animals are drawn by Hana in Warsaw.", project="web")
    await kim.remember("Releases of billing go out on Fridays.", project="shop")
    assert "It is still empty." in text_of(await start(kim, "c1"))

    text = text_of(await prompt(kim, "c1", QUESTION))
    assert "Tuesday" in text
    assert "Friday" not in text
    assert len(text) <= 1_200
    assert "Tuesday" not in text_of(await prompt(kim, "c1", "On which day does a release of billing go out?"))
    assert "Hana" in text_of(await prompt(kim, "c1", "Who draws the pictures of animals?"))
    assert text_of(await prompt(kim, "c1", "How tall is the Eiffel tower?")) == ""
    await start(kim, "c2")
    assert "Tuesday" in text_of(await prompt(kim, "c2", QUESTION))


async def test_19_of_20_prompts_take_at_most_50_ms(instance: Instance) -> None:
    """
    p95 at most 50 ms. Each prompt is another question and ends with a turn, and there are memories to look through.

    The best of three rounds counts: what else the machine does can only make a round longer.
    """
    kim = instance.agent
    for number in range(50):
        await kim.remember(f"Service {number} is deployed by team {number % 7} on port {9000 + number}.", project="web")
    await start(kim, "c1")
    await prompt(kim, "c1", "The model of the embedder is loaded for the first prompt.")
    p95s_s = list[float]()
    for first in (0, 60, 120):
        times_s = list[float]()
        with Stopwatch() as stopwatch:
            for number in range(first, first + 60):
                started = time.perf_counter()
                await prompt(kim, "c1", f"Which team deploys service {number}?")
                times_s.append(time.perf_counter() - started)
                await stop(kim, "c1", f"Answer {number}.")
        p95s_s.append(sorted(times_s)[56] / stopwatch.slowness)
        if p95s_s[-1] <= 0.05:
            break
    assert min(p95s_s) <= 0.05


async def test_the_double_of_an_event_changes_nothing(instance: Instance) -> None:
    """Doubles from clients that also run another's hooks are dropped by (session, event, turn); Stop is idempotent."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")
    await start(kim, "c1")
    answers = await asyncio.gather(*(prompt(kim, "c1", QUESTION, client=client) for client in ("claude-code", "codex")))
    assert sorted(bool(answer) for answer in answers) == [False, True]
    await asyncio.gather(*(stop(kim, "c1", "Done.", client=client) for client in ("claude-code", "vscode", "codex")))
    await stop(kim, "c1", "Done.")
    await prompt(kim, "c1", "And now the tests.")
    await stop(kim, "c1", "Done.")  # the same words in another turn

    # Codex and Cursor send the id of the turn.
    await start(kim, "c2", client="cursor")
    for turn in ("t1", "t1", "t2"):
        await stop(kim, "c2", None, client="cursor", text="Fixed.", conversation_id="c2", generation_id=turn)

    cursor, claude = await list_sessions(kim)
    assert await list_messages(kim, claude["id"]) == ["Done.", "Done."]
    assert await list_messages(kim, cursor["id"]) == ["Fixed.", "Fixed."]


async def test_the_payload_of_another_client_is_read(instance: Instance) -> None:
    """Cursor and VS Code run Claude Code's hooks with their own field names. Nothing fails."""
    kim = instance.agent
    body = {"conversation_id": "c1", "generation_id": "g1", "workspace_roots": ["/w"], "is_background_agent": False}
    assert "Project in Rookery: web." in text_of(parse_body(await kim.post(f"{CODE}/session-start?project=web", body)))
    assert parse_body(await kim.post(f"{CODE}/stop", body | {"text": "Fixed."})) == {}
    assert [session["status"] for session in await list_sessions(kim)] == ["active"]
    for odd in ({}, {"session_id": None}, {"session_id": {"a": 1}, "prompt": [3]}, {"session_id": "c1", "prompt": 5}):
        assert parse_body(await kim.post(f"{CODE}/prompt", odd)) == {}
    assert len(await list_sessions(kim)) == 1


async def test_a_session_without_a_known_project_is_not_recorded(instance: Instance) -> None:
    """The start names the project. Without it, as when ROOKERY_HOOKS=off for the command, prompts and turns leave no trace."""
    kim = instance.agent
    await kim.remember(TUESDAY, project="web")
    assert await prompt(kim, "c1", QUESTION) == {}
    assert await stop(kim, "c1", "A secret plan.") == {}
    assert await end(kim, "c1") == {}
    assert await list_sessions(kim) == []

    # The same turn is recorded if the request names the project.
    assert await stop(kim, "c1", "A public plan.", query="project=web") == {}
    assert await list_messages(kim, (await list_sessions(kim))[0]["id"]) == ["A public plan."]


async def test_a_session_that_ended_is_continued_by_its_successor(instance: Instance) -> None:
    """`claude --resume` starts the successor of the ended session, which is not told of itself."""
    kim = instance.agent
    await start(kim, "c1")
    await stop(kim, "c1", "First half.")
    await end(kim, "c1")
    await end(kim, "c1")
    assert "First half" not in text_of(await start(kim, "c1", source="resume"))
    await stop(kim, "c1", "Second half.")

    successor, first = await list_sessions(kim)
    assert (successor["resumed_from"], first["resumed_by"]) == (first["id"], successor["id"])
    assert (successor["status"], first["status"], successor["project"]) == ("active", "completed", "web")
    assert await list_messages(kim, successor["id"]) == ["Second half."]


async def test_a_key_gets_only_what_it_could_read_itself(instance: Instance) -> None:
    """The route needs sessions.write; memories, tasks and the hand-off need the scopes of their own routes."""
    await instance.agent.remember(TUESDAY, project="web")
    await make_plan(instance, "Move the billing release", project="web")
    await start(instance.agent, "c0")
    await stop(instance.agent, "c0", "The release of billing is planned.")
    query = "project=web&branch=billing-release"

    texts = {
        scopes: text_of(await start(await instance.agent_key(*scopes), "/".join(scopes), query=query))
        for scopes in (
            ("sessions.write",),
            ("sessions.write", "sessions.read"),
            ("sessions.write", "plans.read"),
            ("sessions.write", "brain:read"),
        )
    }
    parts = ("The release of billing is planned.", "Move the billing release", "Tuesday")
    assert [tuple(part in text for part in parts) for text in texts.values()] == [
        (False, False, False),
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    for path in ("session-start?project=web", "prompt", "stop", "end"):
        stranger = await instance.agent_key("brain:read", "sessions.read")
        assert error_of(await stranger.post(f"{CODE}/{path}", {"session_id": "c1"})) == (403, "permission_denied")
        assert error_of(await instance.caller("ak_" + "x" * 32).post(f"{CODE}/{path}", {"session_id": "c1"})) == (401, "unauthorised")


async def test_agents_and_allow_lists_are_those_of_recall(instance: Instance) -> None:
    """Another agent's own memories, and projects outside the key's list, are not shown; such a session is not recorded."""
    kim = await instance.agent_key(agent_id="kim")
    lee = await instance.agent_key(agent_id="lee", restrictions=KeyRestrictions(projects=frozenset({"web"})))
    await kim.remember(TUESDAY, project="web", memory_scope="agent")

    await start(kim, "k1")
    assert "Tuesday" in text_of(await prompt(kim, "k1", QUESTION))
    await start(lee, "l1")
    assert await prompt(lee, "l1", QUESTION) == {}
    assert await start(lee, "l2", query="project=shop") == {}
    assert await stop(lee, "l2", "Shop.", query="project=shop") == {}
    # A session belongs to its agent: another one reads and writes nothing in it.
    assert await prompt(lee, "k1", QUESTION) == {}
    assert await stop(lee, "k1", "Mine.") == {}
    assert await end(lee, "k1") == {}
    kims = next(session for session in await list_sessions(kim) if session["agent_id"] == "kim")
    assert (kims["status"], await list_messages(kim, kims["id"])) == ("active", [])
    assert {session["project"] for session in await list_sessions(instance.admin)} == {"web"}


async def test_two_tenants_share_nothing(instance: Instance) -> None:
    """The same session id, project and prompt in another workspace read and change nothing here."""
    kim = instance.agent
    other = await instance.agent_key(workspace_id=await instance.workspace("other"))
    await kim.remember(TUESDAY, project="web")
    await make_plan(instance, "Move the billing release", project="web")
    await start(kim, "c1")
    await stop(kim, "c1", "Ours.")

    for session, query in (("c1", "project=web"), ("c2", "project=web&branch=billing-release")):
        text = text_of(await start(other, session, source="resume", query=query))
        assert "It is still empty." in text
        assert "illing" not in text
    assert await prompt(other, "c1", QUESTION) == {}
    await stop(other, "c1", "Theirs.")
    await end(other, "c1")
    (ours,) = await list_sessions(kim)
    assert (ours["status"], await list_messages(kim, ours["id"])) == ("active", ["Ours."])
    assert "Tuesday" in text_of(await prompt(kim, "c3", QUESTION, query="project=web"))


async def test_unknown_clients_and_events_are_named(instance: Instance) -> None:
    """A wrong set-up is an error that names the value; it is not hidden as an outage."""
    for path, message in (
        ("/api/agent/hooks/emacs/stop", "There is no client 'emacs' of hooks; use claude-code, codex, vscode, cursor, gemini, qwen-code."),
        (f"{CODE}/pre-tool-use", "There is no event 'pre-tool-use' of hooks; use session-start, prompt, stop, end."),
    ):
        response = await instance.agent.post(path, {"session_id": "c1"})
        assert error_of(response) == (404, "resource_not_found")
        assert response.json()["message"] == message
    assert error_of(await instance.agent.post(f"{CODE}/stop", ["no object"])) == (422, "validation_error")
    for query in ("project=%20", "project=web%0Ashop", "project=web&org=%09", f"project={'w' * 256}"):
        response = await instance.agent.post(f"{CODE}/stop?{query}", {"session_id": "c1"})
        assert error_of(response) == (422, "validation_error")


@pytest.mark.parametrize("escape", [r"\u0000", r"\ud83d", r"\udE00", r"\uD83d\ud83d"])
async def test_a_text_that_no_store_takes_loses_only_that_character(instance: Instance, escape: str) -> None:
    """A message cut within an emoji, or with NUL from a terminal, is recorded; whole pairs and escaped backslashes stay."""
    kim = instance.agent
    await start(kim, "c1")
    for event, field, text in (("prompt", "prompt", QUESTION), ("stop", "last_assistant_message", "Done.")):
        raw = rf'{{"session_id": "c1", "{field}": "{text} {escape} \ud83d\ude00 \\u0000 end"}}'
        response = await kim.http.post(f"{CODE}/{event}", content=raw, headers={"Content-Type": "application/json"})
        assert response.status_code == 200, response.text
    (session,) = await list_sessions(kim)
    replaced = "\ufffd" * escape.count("u")
    assert await list_messages(kim, session["id"]) == [f"Done. {replaced} \U0001f600 \\u0000 end"]


async def test_hooks_that_the_operator_switched_off_do_nothing(settings: Settings) -> None:
    """ROOKERY_HOOKS=off. The route answers with nothing and records nothing."""
    settings_off = Settings(**{name: getattr(settings, name) for name in settings.__dataclass_fields__ if name != "hooks"}, hooks=False)
    async with run_instance(settings_off) as instance:
        assert await start(instance.agent, "c1") == {}
        assert await stop(instance.agent, "c1", "Done.", query="project=web") == {}
        assert await list_sessions(instance.admin) == []


async def test_old_records_of_hooks_are_deleted(clocked_instance: Instance, clock: FakeClock) -> None:
    """The records by which hooks find doubles are deleted 30 days later; the sessions with their events stay."""
    kim = clocked_instance.agent
    await start(kim, "c1")
    await stop(kim, "c1", "Done.")
    hooks = clocked_instance.rookery.agents.hooks
    assert await hooks.delete_old() == 0
    clock.advance(days=31)
    assert await hooks.delete_old() == 3  # the client's session, its start and its stop
    assert len(await list_sessions(kim)) == 1


@dataclass
class UnreliableMemories:
    """A finder of memories that waits until a test ends, or raises."""

    error: Exception | None = None

    async def find_related(
        self,
        caller: AccessCaller,
        queries: Sequence[str],
        *,
        org: str | None,
        project: str,
        session_id: str | None,
        without: Collection[str],
        limit: int,
        min_relevance: float,
    ) -> Sequence[PastMemory]:
        """Raise the error, or wait."""
        del caller, queries, org, project, session_id, without, limit, min_relevance
        if self.error is not None:
            raise self.error
        await asyncio.sleep(HANG_S)
        return ()


@dataclass
class FullDisk:
    """A disk without free space."""

    def require(self) -> None:
        """Raise the error of a full disk."""
        msg = "The disk is full."
        raise StorageFull(msg)


def make_hooks(
    instance: Instance,
    *,
    memories: UnreliableMemories | None = None,
    disk: FullDisk | None = None,
    db: Database | None = None,
    deadline_s: float = 0.5,
) -> AgentHooks:
    """Return the hooks of *instance* with another finder of memories, disk, record store or deadline."""
    sessions, services = instance.rookery.agents.sessions, instance.rookery
    return AgentHooks(
        db=db or services.db,
        clock=services.clock,
        sessions=ClientSessions(starter=sessions.starter, records=sessions.records),
        projects=ProjectNames(db=db or services.db, clock=services.clock, disk=disk or services.runtime.use(DiskSpace)),
        ender=sessions.ender,
        memories=memories or services.memory.related,
        disk=disk or services.runtime.use(DiskSpace),
        deadline_s=deadline_s,
    )


@pytest.mark.parametrize("error", [EngineUnavailable("vectors", "down"), RuntimeError("a bug")])
async def test_a_failing_engine_costs_the_agent_its_memories(instance: Instance, error: Exception) -> None:
    """An empty answer if the server fails. A failing engine costs the memories."""
    caller, web = make_caller(workspace_id=instance.workspace_id), HookProject(project="web", branch="billing")
    await start(instance.agent, "c0")
    await stop(instance.agent, "c0", "The cache is warm.")
    hooks = make_hooks(instance, memories=UnreliableMemories(error), deadline_s=HANG_S)

    asked = await hooks.handle(caller, HookCall(client="codex", event="prompt", session_id="c0", prompt=QUESTION), None)
    assert (asked.outcome, asked.text) == (HookOutcome.FAILED, "")
    started = await hooks.handle(caller, HookCall(client="codex", event="session-start", session_id="c1"), web)
    if isinstance(error, RuntimeError):
        assert started.outcome is HookOutcome.FAILED
    else:
        assert "The cache is warm." in started.text  # the rest of the text does not need the memories


async def test_an_engine_without_answer_costs_the_agent_at_most_the_deadline(instance: Instance) -> None:
    """Then a prompt gets an empty answer, and the start of a session gets what does not need the memories."""
    caller, web = make_caller(workspace_id=instance.workspace_id), HookProject(project="web", branch="billing")
    await start(instance.agent, "c0")
    await stop(instance.agent, "c0", "The cache is warm.")
    hooks = make_hooks(instance, memories=UnreliableMemories())
    call = HookCall(client="codex", event="prompt", session_id="c0", prompt=QUESTION)
    asked = await asyncio.wait_for(hooks.handle(caller, call, None), HANG_S / 2)
    assert (asked.outcome, asked.text) == (HookOutcome.FAILED, "")

    texts = list[str]()
    for number, deadline_s in enumerate((0.5, 2.0, 8.0, 32.0)):  # a busy machine may need more than half a second for the rest
        hooks = make_hooks(instance, memories=UnreliableMemories(), deadline_s=deadline_s)
        call = HookCall(client="codex", event="session-start", session_id=f"started{number}")
        texts.append((await asyncio.wait_for(hooks.handle(caller, call, web), HANG_S / 2)).text)
        if texts[-1]:
            break
    assert "The cache is warm." in texts[-1]


async def test_nothing_is_recorded_on_a_full_disk(instance: Instance) -> None:
    """A nearly full disk takes no records of hooks, and the agent is not disturbed."""
    caller = make_caller(workspace_id=instance.workspace_id)
    hooks = make_hooks(instance, disk=FullDisk())
    call = HookCall(client="codex", event="stop", session_id="c1", message="Done.")
    assert (await hooks.handle(caller, call, HookProject(project="web"))).outcome is HookOutcome.FAILED
    assert await list_sessions(instance.admin) == []


@dataclass
class BrokenGuard:
    """A check of keys that fails, or without an *error* waits until a test ends."""

    error: Exception | None

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        """Raise the error, or wait."""
        del scope, required_scope, rate_limited
        if self.error is None:
            await asyncio.sleep(HANG_S)
        raise self.error or TimeoutError


async def test_a_record_store_that_is_down_is_an_empty_answer(instance: Instance, tmp_path: Path) -> None:
    """Always 200 with an empty answer if the server fails, also while no key can be checked; a wrong key keeps its 401."""
    caller = make_caller(workspace_id=instance.workspace_id)
    missing_db = open_database("embedded:", data_dir=tmp_path / "missing")
    hooks = make_hooks(instance, db=missing_db)
    for event in EVENTS:
        call = HookCall(client="codex", event=event, session_id="c1", prompt=QUESTION, message="Done.")
        assert (await hooks.handle(caller, call, HookProject(project="web"))).outcome is HookOutcome.FAILED
    await missing_db.close()

    operations = HookApi(hooks=hooks, metrics=HookMetrics(Metrics()), is_on=True, deadline_s=hooks.deadline_s).operations()
    for error, expected in (
        (EngineUnavailable("database", "down"), (200, "{}")),
        (RuntimeError("a bug"), (200, "{}")),
        (None, (200, "{}")),
        (Unauthorised("The key is missing."), (401, Unauthorised.code)),
    ):
        routes = RouteTable()
        mount_routes(routes, "/api/agent", operations, BrokenGuard(error))
        app = EdgeMiddleware(
            endpoints_by_path=routes.endpoints_by_path,
            router=routes.router,
            hosts={"toy"},
            origins=(),
            public_url=lambda path: "http://toy",
        )
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://toy") as client:
            response = await client.post(f"{CODE}/stop", json={"session_id": "c1"})
        assert response.status_code == expected[0]
        assert expected[1] in response.text
