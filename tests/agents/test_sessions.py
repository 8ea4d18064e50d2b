"""Agent sessions over HTTP: start, work, pause, end, resume (D-62)."""

from __future__ import annotations

from sqlalchemy import func, select

from rookery.access.models import KeyRestrictions
from rookery.agents.store.session_tables import handoffs, session_events, sessions
from rookery.kernel.clock import format_iso
from rookery.kernel.events import AgentSessionEnded, AgentSessionStarted
from tests.agents.session_makers import (
    SESSIONS,
    append_event,
    end_session,
    error_of,
    get_list,
    get_nested,
    get_session,
    make_plan,
    parse_body,
    start_session,
    start_session_id,
)
from tests.conftest import OPERATOR, FakeClock, Instance


async def test_a_session_starts_with_what_its_agent_needs_and_is_announced(instance: Instance) -> None:
    """D-62, spec 6.1: POST /sessions answers {session, boot}, and AgentSessionStarted carries agent, org and project."""
    plan = await make_plan(instance, "write", "test", org="acme", project="web")
    heard = list[AgentSessionStarted]()
    instance.rookery.bus.subscribe(AgentSessionStarted, heard.append)
    await instance.admin.remember("Tabs, not spaces.", org="acme", project="web", type="convention")

    answer = await start_session(instance.agent, plan=plan, goal="ship", context={"branch": "main"})

    session, boot = get_nested(answer, "session"), get_nested(answer, "boot")
    assert (session["status"], session["agent_id"], session["agent_type"], session["plan"]) == ("active", "agent", "coder", plan)
    assert (session["org"], session["project"], session["goal"], session["context"]) == ("acme", "web", "ship", {"branch": "main"})
    assert str(session["id"]).startswith("sess_")
    assert session == await get_session(instance.agent, str(session["id"]))
    assert get_nested(boot, "plan")["slug"] == plan
    assert get_nested(boot, "phase")["name"] == "work"
    assert [each["name"] for each in get_list(boot, "tasks")] == ["write", "test"]
    assert (boot["handoff"], boot["checkpoint"]) == (None, None)
    assert [each["content"] for each in get_list(get_nested(boot, "memories"), "project")] == ["Tabs, not spaces."]
    assert [(each.session_id, each.agent_id, each.org, each.project) for each in heard] == [(session["id"], "agent", "acme", "web")]


async def test_a_key_without_brain_read_starts_without_memories(instance: Instance) -> None:
    """D-23, D-62: sessions.write is no way to read memories."""
    await instance.admin.remember("A secret.")
    caller = await instance.agent_key("sessions.write")

    assert get_nested(await start_session(caller), "boot")["memories"] is None


async def test_who_an_agent_is_comes_from_the_body_the_key_or_the_type(instance: Instance) -> None:
    """D-43, D-62: agent_id is the key's own; another one is 403 without brain:admin; a key without one may name any."""
    trusted = await instance.agent_key("sessions.write", "brain:admin", agent_id="kim")

    assert get_nested(await start_session(instance.agent), "session")["agent_id"] == "agent"
    assert get_nested(await start_session(instance.admin), "session")["agent_id"] == "coder"
    assert get_nested(await start_session(instance.admin, agent_id="lee"), "session")["agent_id"] == "lee"
    assert get_nested(await start_session(trusted, agent_id="lee"), "session")["agent_id"] == "lee"
    assert error_of(await instance.agent.post(SESSIONS, {"agent_type": "x", "agent_id": "lee"})) == (403, "permission_denied")


async def test_an_agent_has_one_open_session_on_a_plan(instance: Instance) -> None:
    """D-62: a second start is 409 with the first one's id, unless takeover; other agents and plans are free."""
    plan, other = await make_plan(instance), await make_plan(instance)
    first = await start_session_id(instance.agent, plan=plan)

    second = await instance.agent.post(SESSIONS, {"agent_type": "coder", "plan": plan})
    assert error_of(second) == (409, "session_active")
    assert second.json()["session_id"] == first
    await start_session(instance.agent, plan=other)
    await start_session(instance.agent)
    await start_session(instance.admin, plan=plan, agent_id="lee")

    taken = get_nested(await start_session(instance.agent, plan=plan, takeover=True), "session")
    ended = await get_session(instance.agent, first)
    assert (ended["status"], ended["end_reason"], ended["resumed_by"]) == ("handed_off", "superseded", taken["id"])
    assert taken["resumed_from"] == first


async def test_a_session_rests_goes_on_and_ends_once(instance: Instance) -> None:
    """D-62: active ⇄ paused → completed; the same end again is as once, another one is 409, and so is all else."""
    heard = list[AgentSessionEnded]()
    instance.rookery.bus.subscribe(AgentSessionEnded, heard.append)
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}"

    assert parse_body(await instance.agent.send("PATCH", path, {"status": "paused"}))["status"] == "paused"
    await append_event(instance.agent, session)
    assert parse_body(await instance.agent.send("PATCH", path, {"status": "active"}))["status"] == "active"
    done = await end_session(instance.agent, session, summary="All good.")
    assert (done["status"], done["summary"]) == ("completed", "All good.")
    assert done["ended_at"] == done["last_activity_at"]
    assert await end_session(instance.agent, session, status="completed") == done
    for method, more, body in (
        ("POST", "/end", {"status": "failed"}),
        ("POST", "/events", {"message": "late"}),
        ("POST", "/heartbeat", None),
        ("PATCH", "", {"goal": "more"}),
    ):
        assert error_of(await instance.agent.send(method, path + more, body)) == (409, "session_ended"), more
    assert [(each.session_id, each.status) for each in heard] == [(session, "completed")]


async def test_another_agents_session_is_seen_but_not_touched(instance: Instance) -> None:
    """D-43, D-62: sessions are for all to read; only their agent works in them."""
    session = await start_session_id(instance.agent)
    lee = await instance.agent_key("sessions.read", "sessions.write", agent_id="lee")
    path = f"{SESSIONS}/{session}"

    assert (await get_session(lee, session))["id"] == session
    for method, more, body in (
        ("POST", "/end", {}),
        ("POST", "/events", {"message": "hi"}),
        ("POST", "/heartbeat", None),
        ("POST", "/resume", {}),
        ("PATCH", "", {"goal": "mine"}),
    ):
        assert error_of(await lee.send(method, path + more, body)) == (403, "permission_denied"), more
    assert (await get_session(lee, session))["goal"] is None


async def test_a_key_of_one_org_sees_and_starts_sessions_there_alone(instance: Instance) -> None:
    """D-23: allow-lists of orgs and projects hold for sessions too."""
    theirs = await make_plan(instance, org="acme", project="web")
    session = await start_session_id(instance.admin, plan=theirs)
    caller = await instance.api_key(restrictions=KeyRestrictions(orgs=frozenset({"umbrella"})))

    assert error_of(await caller.get(f"{SESSIONS}/{session}")) == (404, "resource_not_found")
    assert parse_body(await caller.get(SESSIONS))["data"] == []
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x", "plan": theirs})) == (404, "resource_not_found")
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x"})) == (403, "permission_denied")
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x", "org": "acme"})) == (403, "permission_denied")
    assert get_nested(await start_session(caller, org="umbrella"), "session")["org"] == "umbrella"


async def test_a_change_of_something_else_than_was_read_is_refused(instance: Instance) -> None:
    """D-64: If-Match with another version is 412; events and heartbeats are no such change."""
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}"
    tag = (await instance.agent.get(path)).headers["etag"]
    await append_event(instance.agent, session)

    first = await instance.agent.send("PATCH", path, {"goal": "a"}, **{"If-Match": tag})
    second = await instance.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": tag})

    assert parse_body(first)["goal"] == "a"
    assert error_of(second) == (412, "precondition_failed")
    assert parse_body(await instance.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": first.headers["etag"]}))["goal"] == "b"


async def test_sessions_are_listed_newest_first_and_by_what_they_are(instance: Instance) -> None:
    """D-12, D-65: GET /sessions filters by status, agent, plan, org and project."""
    plan = await make_plan(instance, org="acme", project="web")
    old = await start_session_id(instance.agent)
    new = await start_session_id(instance.admin, agent_id="lee", plan=plan)
    await end_session(instance.agent, old, status="failed")

    async def listed(query: str = "") -> list[object]:
        return [each["id"] for each in get_list(parse_body(await instance.agent.get(f"{SESSIONS}{query}")))]

    assert await listed() == [new, old]
    assert await listed("?status=failed") == [old]
    assert await listed("?agent_id=lee") == [new]
    assert await listed(f"?plan={plan}") == [new]
    assert await listed("?org=acme&project=web") == [new]
    assert await listed("?org=acme&project=app") == []
    assert error_of(await instance.agent.get(f"{SESSIONS}?plan=nothing")) == (404, "resource_not_found")


async def test_nobody_coming_back_for_a_day_abandons_a_session(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-62: 24 h without activity → abandoned, and its leases are free; a heartbeat is activity, and a pause lasts a week."""
    plan = await make_plan(clocked_instance, "only")
    lost = await start_session_id(clocked_instance.agent, plan=plan)
    alive, resting = await start_session_id(clocked_instance.agent), await start_session_id(clocked_instance.agent)
    await clocked_instance.agent.send("PATCH", f"{SESSIONS}/{resting}", {"status": "paused"})
    claimed = await clocked_instance.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": lost, "ttl_s": 86_400})
    task = parse_body(claimed)
    clock.advance(hours=23)
    parse_body(await clocked_instance.agent.post(f"{SESSIONS}/{alive}/heartbeat"))
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert (await get_session(clocked_instance.agent, lost))["status"] == "active"

    clock.advance(hours=1)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()

    gone = await get_session(clocked_instance.agent, lost)
    assert (gone["status"], gone["ended_at"]) == ("abandoned", format_iso(clock()))
    assert [(await get_session(clocked_instance.agent, each))["status"] for each in (alive, resting)] == ["active", "paused"]
    assert parse_body(await clocked_instance.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    assert error_of(await clocked_instance.agent.post(f"{SESSIONS}/{lost}/heartbeat")) == (409, "session_ended")
    clock.advance(days=7)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert (await get_session(clocked_instance.agent, resting))["status"] == "abandoned"


async def test_a_session_is_resumed_by_one_successor(instance: Instance) -> None:
    """D-62: resume makes a session that goes on with goal, context and plan; once, and of an active one by takeover alone."""
    plan = await make_plan(instance)
    first = await start_session_id(instance.agent, plan=plan, goal="ship", context={"a": 1})

    assert error_of(await instance.agent.post(f"{SESSIONS}/{first}/resume", {})) == (409, "session_active")
    second = get_nested(parse_body(await instance.agent.post(f"{SESSIONS}/{first}/resume", {"takeover": True}), 201), "session")
    assert (second["resumed_from"], second["goal"], second["context"], second["plan"]) == (first, "ship", {"a": 1}, plan)
    again = await instance.agent.post(f"{SESSIONS}/{first}/resume", {})
    assert error_of(again) == (409, "session_resumed")
    assert again.json()["resumed_by"] == second["id"]

    await instance.agent.send("PATCH", f"{SESSIONS}/{second['id']}", {"status": "paused"})
    third = get_nested(parse_body(await instance.agent.post(f"{SESSIONS}/{second['id']}/resume", {"goal": "finish"}), 201), "session")
    paused = await get_session(instance.agent, str(second["id"]))
    assert (paused["status"], paused["end_reason"]) == ("handed_off", "resumed")
    assert (third["goal"], third["status"]) == ("finish", "active")

    await end_session(instance.agent, str(third["id"]), status="handed_off")
    lee = await instance.agent_key("sessions.write", "sessions.read", agent_id="lee")
    fourth = get_nested(parse_body(await lee.post(f"{SESSIONS}/{third['id']}/resume", {}), 201), "session")
    assert (fourth["agent_id"], fourth["resumed_from"]) == ("lee", third["id"])


async def test_an_archived_plan_starts_no_session(instance: Instance) -> None:
    """D-60: archived is read-only."""
    plan = await make_plan(instance)
    parse_body(await instance.admin.post(f"/api/agent/plans/{plan}/archive", {}))

    assert error_of(await instance.agent.post(SESSIONS, {"agent_type": "x", "plan": plan})) == (409, "plan_archived")


async def test_ending_gives_the_tasks_back(instance: Instance) -> None:
    """D-61, D-62: what a session holds is free when it ends, whatever the end, and its claims need it open."""
    plan = await make_plan(instance, "only")
    session = await start_session_id(instance.agent, plan=plan)
    task = parse_body(await instance.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": session}))
    await end_session(instance.agent, session)

    assert parse_body(await instance.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    late = await instance.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": session})
    assert error_of(late) == (409, "session_ended")
    nowhere = await instance.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": "sess_none"})
    assert error_of(nowhere) == (404, "resource_not_found")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"agent_type": ""}, "agent_type"),
    ({"agent_type": "x" * 101}, "agent_type"),
    ({"agent_type": "a\nb"}, "agent_type"),
    ({"agent_type": "x", "context": {"big": "x" * 65_536}}, "context"),
    ({"agent_type": "x", "goal": "x" * 10_001}, "goal"),
    ({"agent_type": "x", "plna": "p"}, "plna"),
    ({"agent_type": "x", "takeover": "yes"}, "takeover"),
]


async def test_a_wrong_start_says_what_is_wrong(instance: Instance) -> None:
    """D-10, D-16: 422 with the field."""
    for body, field in WRONG:
        answer = await instance.agent.post(SESSIONS, body)

        assert error_of(answer) == (422, "validation_error"), body
        assert list(answer.json()["errors"]) == [field]


async def test_a_deleted_workspace_leaves_nothing_of_its_sessions(instance: Instance) -> None:
    """Spec 2.8: deleting a workspace deletes all that it has."""
    other = await instance.workspace("other")
    caller = await instance.api_key(workspace_id=other)
    session = await start_session_id(caller)
    await append_event(caller, session)
    await end_session(caller, session, handoff={"summary": "s"})

    await instance.rookery.access.workspaces.delete(other, by=OPERATOR)

    count = [select(func.count().label("found")).select_from(table) for table in (sessions, session_events, handoffs)]
    rows = await instance.rookery.db.read(lambda tx: [tx.fetch_one(each) for each in count])
    assert [row and row.integer("found") for row in rows] == [0, 0, 0]
