"""Agent sessions over HTTP: start, work, pause, end, resume."""

from __future__ import annotations

from sqlalchemy import func, select

from rookery.access.models import KeyRestrictions
from rookery.agents.events import AgentSessionEnded, AgentSessionStarted
from rookery.agents.store.tables import handoffs, session_events, sessions
from rookery.kernel.clock import format_iso
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


async def test_a_session_starts_with_its_context_and_publishes_an_event(instance: Instance) -> None:
    """POST /sessions returns {session, boot}, and AgentSessionStarted has agent, org and project."""
    plan = await make_plan(instance, "write", "test", org="acme", project="web")
    events = list[AgentSessionStarted]()
    instance.rookery.runtime.bus.subscribe(AgentSessionStarted, events.append)
    await instance.admin.remember("Tabs, not spaces.", org="acme", project="web", type="convention")

    response = await start_session(instance.agent, plan=plan, goal="ship", context={"branch": "main"})

    session, boot = get_nested(response, "session"), get_nested(response, "boot")
    assert (session["status"], session["agent_id"], session["agent_type"], session["plan"]) == ("active", "agent", "coder", plan)
    assert (session["org"], session["project"], session["goal"], session["context"]) == ("acme", "web", "ship", {"branch": "main"})
    assert str(session["id"]).startswith("sess_")
    assert session == await get_session(instance.agent, str(session["id"]))
    assert get_nested(boot, "plan")["slug"] == plan
    assert get_nested(boot, "phase")["name"] == "work"
    assert [listed["name"] for listed in get_list(boot, "tasks")] == ["write", "test"]
    assert (boot["handoff"], boot["checkpoint"]) == (None, None)
    assert [listed["content"] for listed in get_list(get_nested(boot, "memories"), "project")] == ["Tabs, not spaces."]
    assert [(event.session_id, event.agent_id, event.org, event.project) for event in events] == [(session["id"], "agent", "acme", "web")]


async def test_a_key_without_brain_read_starts_without_memories(instance: Instance) -> None:
    """sessions.write gives no access to memories."""
    await instance.admin.remember("A secret.")
    caller = await instance.agent_key("sessions.write")

    assert get_nested(await start_session(caller), "boot")["memories"] is None


async def test_the_agent_id_comes_from_the_body_the_key_or_the_type(instance: Instance) -> None:
    """agent_id must be the key's own; another one is 403 without brain:admin. A key without an agent may use any."""
    trusted = await instance.agent_key("sessions.write", "brain:admin", agent_id="kim")

    assert get_nested(await start_session(instance.agent), "session")["agent_id"] == "agent"
    assert get_nested(await start_session(instance.admin), "session")["agent_id"] == "coder"
    assert get_nested(await start_session(instance.admin, agent_id="lee"), "session")["agent_id"] == "lee"
    assert get_nested(await start_session(trusted, agent_id="lee"), "session")["agent_id"] == "lee"
    assert error_of(await instance.agent.post(SESSIONS, {"agent_type": "x", "agent_id": "lee"})) == (403, "permission_denied")


async def test_an_agent_has_one_open_session_on_a_plan(instance: Instance) -> None:
    """A second start is 409 with the first one's id, unless takeover. Other agents and plans are independent."""
    plan, other_plan = await make_plan(instance), await make_plan(instance)
    first_session = await start_session_id(instance.agent, plan=plan)

    second = await instance.agent.post(SESSIONS, {"agent_type": "coder", "plan": plan})
    assert error_of(second) == (409, "session_active")
    assert second.json()["session_id"] == first_session
    await start_session(instance.agent, plan=other_plan)
    await start_session(instance.agent)
    await start_session(instance.admin, plan=plan, agent_id="lee")

    second_session = get_nested(await start_session(instance.agent, plan=plan, takeover=True), "session")
    ended_session = await get_session(instance.agent, first_session)
    assert (ended_session["status"], ended_session["end_reason"], ended_session["resumed_by"]) == (
        "handed_off",
        "superseded",
        second_session["id"],
    )
    assert second_session["resumed_from"] == first_session


async def test_a_session_is_paused_continued_and_ended_once(instance: Instance) -> None:
    """Active ⇄ paused → completed. The same end again changes nothing; another end is 409, and so is any other change."""
    events = list[AgentSessionEnded]()
    instance.rookery.runtime.bus.subscribe(AgentSessionEnded, events.append)
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}"

    assert parse_body(await instance.agent.send("PATCH", path, {"status": "paused"}))["status"] == "paused"
    await append_event(instance.agent, session)
    assert parse_body(await instance.agent.send("PATCH", path, {"status": "active"}))["status"] == "active"
    ended_session = await end_session(instance.agent, session, summary="All good.")
    assert (ended_session["status"], ended_session["summary"]) == ("completed", "All good.")
    assert ended_session["ended_at"] == ended_session["last_activity_at"]
    assert await end_session(instance.agent, session, status="completed") == ended_session
    for method, subpath, body in (
        ("POST", "/end", {"status": "failed"}),
        ("POST", "/events", {"message": "late"}),
        ("POST", "/heartbeat", None),
        ("PATCH", "", {"goal": "more"}),
    ):
        assert error_of(await instance.agent.send(method, path + subpath, body)) == (409, "session_ended"), subpath
    assert [(event.session_id, event.status) for event in events] == [(session, "completed")]


async def test_a_session_of_another_agent_can_be_read_but_not_changed(instance: Instance) -> None:
    """All agents may read a session; only its own agent works in it."""
    session = await start_session_id(instance.agent)
    other_agent = await instance.agent_key("sessions.read", "sessions.write", agent_id="lee")
    path = f"{SESSIONS}/{session}"

    assert (await get_session(other_agent, session))["id"] == session
    for method, subpath, body in (
        ("POST", "/end", {}),
        ("POST", "/events", {"message": "hi"}),
        ("POST", "/heartbeat", None),
        ("POST", "/resume", {}),
        ("PATCH", "", {"goal": "mine"}),
    ):
        assert error_of(await other_agent.send(method, path + subpath, body)) == (403, "permission_denied"), subpath
    assert (await get_session(other_agent, session))["goal"] is None


async def test_a_key_of_one_org_sees_and_starts_sessions_only_there(instance: Instance) -> None:
    """allow-lists of orgs and projects apply to sessions too."""
    other_plan = await make_plan(instance, org="acme", project="web")
    session = await start_session_id(instance.admin, plan=other_plan)
    caller = await instance.api_key(restrictions=KeyRestrictions(orgs=frozenset({"umbrella"})))

    assert error_of(await caller.get(f"{SESSIONS}/{session}")) == (404, "resource_not_found")
    assert parse_body(await caller.get(SESSIONS))["data"] == []
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x", "plan": other_plan})) == (404, "resource_not_found")
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x"})) == (403, "permission_denied")
    assert error_of(await caller.post(SESSIONS, {"agent_type": "x", "org": "acme"})) == (403, "permission_denied")
    assert get_nested(await start_session(caller, org="umbrella"), "session")["org"] == "umbrella"


async def test_a_change_of_an_older_version_is_rejected(instance: Instance) -> None:
    """If-Match with another version is 412; events and heartbeats do not change the version."""
    session = await start_session_id(instance.agent)
    path = f"{SESSIONS}/{session}"
    tag = (await instance.agent.get(path)).headers["etag"]
    await append_event(instance.agent, session)

    response = await instance.agent.send("PATCH", path, {"goal": "a"}, **{"If-Match": tag})
    second = await instance.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": tag})

    assert parse_body(response)["goal"] == "a"
    assert error_of(second) == (412, "precondition_failed")
    assert parse_body(await instance.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": response.headers["etag"]}))["goal"] == "b"


async def test_sessions_are_listed_newest_first_and_filtered(instance: Instance) -> None:
    """GET /sessions filters by status, agent, plan, org and project."""
    plan = await make_plan(instance, org="acme", project="web")
    first_session = await start_session_id(instance.agent)
    second_session = await start_session_id(instance.admin, agent_id="lee", plan=plan)
    await end_session(instance.agent, first_session, status="failed")

    async def list_ids(query: str = "") -> list[object]:
        return [listed["id"] for listed in get_list(parse_body(await instance.agent.get(f"{SESSIONS}{query}")))]

    assert await list_ids() == [second_session, first_session]
    assert await list_ids("?status=failed") == [first_session]
    assert await list_ids("?agent_id=lee") == [second_session]
    assert await list_ids(f"?plan={plan}") == [second_session]
    assert await list_ids("?org=acme&project=web") == [second_session]
    assert await list_ids("?org=acme&project=app") == []
    assert error_of(await instance.agent.get(f"{SESSIONS}?plan=nothing")) == (404, "resource_not_found")


async def test_a_session_without_activity_for_a_day_is_abandoned(clocked_instance: Instance, clock: FakeClock) -> None:
    """24 h without activity → abandoned, and its leases are released. A heartbeat is activity, and a pause lasts a week."""
    plan = await make_plan(clocked_instance, "only")
    inactive = await start_session_id(clocked_instance.agent, plan=plan)
    active, paused = await start_session_id(clocked_instance.agent), await start_session_id(clocked_instance.agent)
    await clocked_instance.agent.send("PATCH", f"{SESSIONS}/{paused}", {"status": "paused"})
    claim = await clocked_instance.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": inactive, "ttl_s": 86_400})
    task = parse_body(claim)
    clock.advance(hours=23)
    parse_body(await clocked_instance.agent.post(f"{SESSIONS}/{active}/heartbeat"))
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert (await get_session(clocked_instance.agent, inactive))["status"] == "active"

    clock.advance(hours=1)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()

    abandoned = await get_session(clocked_instance.agent, inactive)
    assert (abandoned["status"], abandoned["ended_at"]) == ("abandoned", format_iso(clock()))
    assert [(await get_session(clocked_instance.agent, session_id))["status"] for session_id in (active, paused)] == ["active", "paused"]
    assert parse_body(await clocked_instance.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    assert error_of(await clocked_instance.agent.post(f"{SESSIONS}/{inactive}/heartbeat")) == (409, "session_ended")
    clock.advance(days=7)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert (await get_session(clocked_instance.agent, paused))["status"] == "abandoned"


async def test_a_session_is_resumed_once(instance: Instance) -> None:
    """Resume creates a session with the same goal, context and plan; once, and for an active session only with takeover."""
    plan = await make_plan(instance)
    first_session = await start_session_id(instance.agent, plan=plan, goal="ship", context={"a": 1})

    assert error_of(await instance.agent.post(f"{SESSIONS}/{first_session}/resume", {})) == (409, "session_active")
    second_session = get_nested(
        parse_body(await instance.agent.post(f"{SESSIONS}/{first_session}/resume", {"takeover": True}), 201), "session"
    )
    assert (second_session["resumed_from"], second_session["goal"], second_session["context"], second_session["plan"]) == (
        first_session,
        "ship",
        {"a": 1},
        plan,
    )
    repeated = await instance.agent.post(f"{SESSIONS}/{first_session}/resume", {})
    assert error_of(repeated) == (409, "session_resumed")
    assert repeated.json()["resumed_by"] == second_session["id"]

    await instance.agent.send("PATCH", f"{SESSIONS}/{second_session['id']}", {"status": "paused"})
    third = get_nested(
        parse_body(await instance.agent.post(f"{SESSIONS}/{second_session['id']}/resume", {"goal": "finish"}), 201), "session"
    )
    ended_session = await get_session(instance.agent, str(second_session["id"]))
    assert (ended_session["status"], ended_session["end_reason"]) == ("handed_off", "resumed")
    assert (third["goal"], third["status"]) == ("finish", "active")

    await end_session(instance.agent, str(third["id"]), status="handed_off")
    other_agent = await instance.agent_key("sessions.write", "sessions.read", agent_id="lee")
    fourth = get_nested(parse_body(await other_agent.post(f"{SESSIONS}/{third['id']}/resume", {}), 201), "session")
    assert (fourth["agent_id"], fourth["resumed_from"]) == ("lee", third["id"])


async def test_an_archived_plan_starts_no_session(instance: Instance) -> None:
    """Archived is read-only."""
    plan = await make_plan(instance)
    parse_body(await instance.admin.post(f"/api/agent/plans/{plan}/archive", {}))

    assert error_of(await instance.agent.post(SESSIONS, {"agent_type": "x", "plan": plan})) == (409, "plan_archived")


async def test_ending_a_session_releases_its_tasks(instance: Instance) -> None:
    """With any kind of end. New claims need an open session."""
    plan = await make_plan(instance, "only")
    session = await start_session_id(instance.agent, plan=plan)
    task = parse_body(await instance.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": session}))
    await end_session(instance.agent, session)

    assert parse_body(await instance.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    after_end = await instance.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": session})
    assert error_of(after_end) == (409, "session_ended")
    unknown_session = await instance.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": "sess_none"})
    assert error_of(unknown_session) == (404, "resource_not_found")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"agent_type": ""}, "agent_type"),
    ({"agent_type": "x" * 101}, "agent_type"),
    ({"agent_type": "a\nb"}, "agent_type"),
    ({"agent_type": "x", "context": {"big": "x" * 65_536}}, "context"),
    ({"agent_type": "x", "goal": "x" * 10_001}, "goal"),
    ({"agent_type": "x", "plna": "p"}, "plna"),
    ({"agent_type": "x", "takeover": "yes"}, "takeover"),
]


async def test_an_invalid_start_is_rejected_with_its_field(instance: Instance) -> None:
    """422 with the field."""
    for body, field in WRONG:
        response = await instance.agent.post(SESSIONS, body)

        assert error_of(response) == (422, "validation_error"), body
        assert list(response.json()["errors"]) == [field]


async def test_deleting_a_workspace_deletes_its_sessions(instance: Instance) -> None:
    """Deleting a workspace deletes all its data."""
    other_workspace = await instance.workspace("other")
    caller = await instance.api_key(workspace_id=other_workspace)
    session = await start_session_id(caller)
    await append_event(caller, session)
    await end_session(caller, session, handoff={"summary": "s"})

    await instance.rookery.access.workspaces.delete(other_workspace, by=OPERATOR)

    count = [select(func.count().label("found")).select_from(table) for table in (sessions, session_events, handoffs)]
    rows = await instance.rookery.db.read(lambda tx: [tx.fetch_one(query) for query in count])
    assert [row and row.integer("found") for row in rows] == [0, 0, 0]
