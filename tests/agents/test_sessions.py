"""Agent sessions over HTTP: start, work, pause, end, resume (D-62)."""

from __future__ import annotations

from sqlalchemy import func, select

from rookery.access.models import KeyRestrictions
from rookery.agents.store.session_tables import handoffs, session_events, sessions
from rookery.kernel.clock import format_iso
from rookery.kernel.events import AgentSessionEnded, AgentSessionStarted
from tests.agents.session_makers import SESSIONS, end, inside, items, make_plan, note, refused, show, start, started, told
from tests.conftest import OPERATOR, FakeClock, House


async def test_a_session_starts_with_what_its_agent_needs_and_is_announced(house: House) -> None:
    """D-62, spec 6.1: POST /sessions answers {session, boot}, and AgentSessionStarted carries agent, org and project."""
    plan = await make_plan(house, "write", "test", org="acme", project="web")
    heard = list[AgentSessionStarted]()
    house.rookery.bus.subscribe(AgentSessionStarted, heard.append)
    await house.admin.remember("Tabs, not spaces.", org="acme", project="web", type="convention")

    answer = await start(house.agent, plan=plan, goal="ship", context={"branch": "main"})

    session, boot = inside(answer, "session"), inside(answer, "boot")
    assert (session["status"], session["agent_id"], session["agent_type"], session["plan"]) == ("active", "agent", "coder", plan)
    assert (session["org"], session["project"], session["goal"], session["context"]) == ("acme", "web", "ship", {"branch": "main"})
    assert str(session["id"]).startswith("sess_")
    assert session == await show(house.agent, str(session["id"]))
    assert inside(boot, "plan")["slug"] == plan
    assert inside(boot, "phase")["name"] == "work"
    assert [each["name"] for each in items(boot, "tasks")] == ["write", "test"]
    assert (boot["handoff"], boot["checkpoint"]) == (None, None)
    assert [each["content"] for each in items(inside(boot, "memories"), "project")] == ["Tabs, not spaces."]
    assert [(each.session_id, each.agent_id, each.org, each.project) for each in heard] == [(session["id"], "agent", "acme", "web")]


async def test_a_key_without_brain_read_starts_without_memories(house: House) -> None:
    """D-23, D-62: sessions.write is no way to read memories."""
    await house.admin.remember("A secret.")
    caller = await house.agent_key("sessions.write")

    assert inside(await start(caller), "boot")["memories"] is None


async def test_who_an_agent_is_comes_from_the_body_the_key_or_the_type(house: House) -> None:
    """D-43, D-62: agent_id is the key's own; another one is 403 without brain:admin; a key without one may name any."""
    trusted = await house.agent_key("sessions.write", "brain:admin", agent_id="kim")

    assert inside(await start(house.agent), "session")["agent_id"] == "agent"
    assert inside(await start(house.admin), "session")["agent_id"] == "coder"
    assert inside(await start(house.admin, agent_id="lee"), "session")["agent_id"] == "lee"
    assert inside(await start(trusted, agent_id="lee"), "session")["agent_id"] == "lee"
    assert refused(await house.agent.post(SESSIONS, {"agent_type": "x", "agent_id": "lee"})) == (403, "permission_denied")


async def test_an_agent_has_one_open_session_on_a_plan(house: House) -> None:
    """D-62: a second start is 409 with the first one's id, unless takeover; other agents and plans are free."""
    plan, other = await make_plan(house), await make_plan(house)
    first = await started(house.agent, plan=plan)

    second = await house.agent.post(SESSIONS, {"agent_type": "coder", "plan": plan})
    assert refused(second) == (409, "session_active")
    assert second.json()["session_id"] == first
    await start(house.agent, plan=other)
    await start(house.agent)
    await start(house.admin, plan=plan, agent_id="lee")

    taken = inside(await start(house.agent, plan=plan, takeover=True), "session")
    ended = await show(house.agent, first)
    assert (ended["status"], ended["end_reason"], ended["resumed_by"]) == ("handed_off", "superseded", taken["id"])
    assert taken["resumed_from"] == first


async def test_a_session_rests_goes_on_and_ends_once(house: House) -> None:
    """D-62: active ⇄ paused → completed; the same end again is as once, another one is 409, and so is all else."""
    heard = list[AgentSessionEnded]()
    house.rookery.bus.subscribe(AgentSessionEnded, heard.append)
    session = await started(house.agent)
    path = f"{SESSIONS}/{session}"

    assert told(await house.agent.send("PATCH", path, {"status": "paused"}))["status"] == "paused"
    await note(house.agent, session)
    assert told(await house.agent.send("PATCH", path, {"status": "active"}))["status"] == "active"
    done = await end(house.agent, session, summary="All good.")
    assert (done["status"], done["summary"]) == ("completed", "All good.")
    assert done["ended_at"] == done["last_activity_at"]
    assert await end(house.agent, session, status="completed") == done
    for method, more, body in (
        ("POST", "/end", {"status": "failed"}),
        ("POST", "/events", {"message": "late"}),
        ("POST", "/heartbeat", None),
        ("PATCH", "", {"goal": "more"}),
    ):
        assert refused(await house.agent.send(method, path + more, body)) == (409, "session_ended"), more
    assert [(each.session_id, each.status) for each in heard] == [(session, "completed")]


async def test_another_agents_session_is_seen_but_not_touched(house: House) -> None:
    """D-43, D-62: sessions are for all to read; only their agent works in them."""
    session = await started(house.agent)
    lee = await house.agent_key("sessions.read", "sessions.write", agent_id="lee")
    path = f"{SESSIONS}/{session}"

    assert (await show(lee, session))["id"] == session
    for method, more, body in (
        ("POST", "/end", {}),
        ("POST", "/events", {"message": "hi"}),
        ("POST", "/heartbeat", None),
        ("POST", "/resume", {}),
        ("PATCH", "", {"goal": "mine"}),
    ):
        assert refused(await lee.send(method, path + more, body)) == (403, "permission_denied"), more
    assert (await show(lee, session))["goal"] is None


async def test_a_key_of_one_org_sees_and_starts_sessions_there_alone(house: House) -> None:
    """D-23: allow-lists of orgs and projects hold for sessions too."""
    theirs = await make_plan(house, org="acme", project="web")
    session = await started(house.admin, plan=theirs)
    caller = await house.api_key(restrictions=KeyRestrictions(orgs=frozenset({"umbrella"})))

    assert refused(await caller.get(f"{SESSIONS}/{session}")) == (404, "resource_not_found")
    assert told(await caller.get(SESSIONS))["data"] == []
    assert refused(await caller.post(SESSIONS, {"agent_type": "x", "plan": theirs})) == (404, "resource_not_found")
    assert refused(await caller.post(SESSIONS, {"agent_type": "x"})) == (403, "permission_denied")
    assert refused(await caller.post(SESSIONS, {"agent_type": "x", "org": "acme"})) == (403, "permission_denied")
    assert inside(await start(caller, org="umbrella"), "session")["org"] == "umbrella"


async def test_a_change_of_something_else_than_was_read_is_refused(house: House) -> None:
    """D-64: If-Match with another version is 412; events and heartbeats are no such change."""
    session = await started(house.agent)
    path = f"{SESSIONS}/{session}"
    tag = (await house.agent.get(path)).headers["etag"]
    await note(house.agent, session)

    first = await house.agent.send("PATCH", path, {"goal": "a"}, **{"If-Match": tag})
    second = await house.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": tag})

    assert told(first)["goal"] == "a"
    assert refused(second) == (412, "precondition_failed")
    assert told(await house.agent.send("PATCH", path, {"goal": "b"}, **{"If-Match": first.headers["etag"]}))["goal"] == "b"


async def test_sessions_are_listed_newest_first_and_by_what_they_are(house: House) -> None:
    """D-12, D-65: GET /sessions filters by status, agent, plan, org and project."""
    plan = await make_plan(house, org="acme", project="web")
    old = await started(house.agent)
    new = await started(house.admin, agent_id="lee", plan=plan)
    await end(house.agent, old, status="failed")

    async def listed(query: str = "") -> list[object]:
        return [each["id"] for each in items(told(await house.agent.get(f"{SESSIONS}{query}")))]

    assert await listed() == [new, old]
    assert await listed("?status=failed") == [old]
    assert await listed("?agent_id=lee") == [new]
    assert await listed(f"?plan={plan}") == [new]
    assert await listed("?org=acme&project=web") == [new]
    assert await listed("?org=acme&project=app") == []
    assert refused(await house.agent.get(f"{SESSIONS}?plan=nothing")) == (404, "resource_not_found")


async def test_nobody_coming_back_for_a_day_abandons_a_session(timed: House, clock: FakeClock) -> None:
    """D-62: 24 h without activity → abandoned, and its leases are free; a heartbeat is activity, and a pause lasts a week."""
    plan = await make_plan(timed, "only")
    lost = await started(timed.agent, plan=plan)
    alive, resting = await started(timed.agent), await started(timed.agent)
    await timed.agent.send("PATCH", f"{SESSIONS}/{resting}", {"status": "paused"})
    claimed = await timed.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": lost, "ttl_s": 86_400})
    task = told(claimed)
    clock.advance(hours=23)
    told(await timed.agent.post(f"{SESSIONS}/{alive}/heartbeat"))
    await timed.rookery.agents.sessions.sweeper.sweep()
    assert (await show(timed.agent, lost))["status"] == "active"

    clock.advance(hours=1)
    await timed.rookery.agents.sessions.sweeper.sweep()

    gone = await show(timed.agent, lost)
    assert (gone["status"], gone["ended_at"]) == ("abandoned", format_iso(clock()))
    assert [(await show(timed.agent, each))["status"] for each in (alive, resting)] == ["active", "paused"]
    assert told(await timed.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    assert refused(await timed.agent.post(f"{SESSIONS}/{lost}/heartbeat")) == (409, "session_ended")
    clock.advance(days=7)
    await timed.rookery.agents.sessions.sweeper.sweep()
    assert (await show(timed.agent, resting))["status"] == "abandoned"


async def test_a_session_is_resumed_by_one_successor(house: House) -> None:
    """D-62: resume makes a session that goes on with goal, context and plan; once, and of an active one by takeover alone."""
    plan = await make_plan(house)
    first = await started(house.agent, plan=plan, goal="ship", context={"a": 1})

    assert refused(await house.agent.post(f"{SESSIONS}/{first}/resume", {})) == (409, "session_active")
    second = inside(told(await house.agent.post(f"{SESSIONS}/{first}/resume", {"takeover": True}), 201), "session")
    assert (second["resumed_from"], second["goal"], second["context"], second["plan"]) == (first, "ship", {"a": 1}, plan)
    again = await house.agent.post(f"{SESSIONS}/{first}/resume", {})
    assert refused(again) == (409, "session_resumed")
    assert again.json()["resumed_by"] == second["id"]

    await house.agent.send("PATCH", f"{SESSIONS}/{second['id']}", {"status": "paused"})
    third = inside(told(await house.agent.post(f"{SESSIONS}/{second['id']}/resume", {"goal": "finish"}), 201), "session")
    paused = await show(house.agent, str(second["id"]))
    assert (paused["status"], paused["end_reason"]) == ("handed_off", "resumed")
    assert (third["goal"], third["status"]) == ("finish", "active")

    await end(house.agent, str(third["id"]), status="handed_off")
    lee = await house.agent_key("sessions.write", "sessions.read", agent_id="lee")
    fourth = inside(told(await lee.post(f"{SESSIONS}/{third['id']}/resume", {}), 201), "session")
    assert (fourth["agent_id"], fourth["resumed_from"]) == ("lee", third["id"])


async def test_an_archived_plan_starts_no_session(house: House) -> None:
    """D-60: archived is read-only."""
    plan = await make_plan(house)
    told(await house.admin.post(f"/api/agent/plans/{plan}/archive", {}))

    assert refused(await house.agent.post(SESSIONS, {"agent_type": "x", "plan": plan})) == (409, "plan_archived")


async def test_ending_gives_the_tasks_back(house: House) -> None:
    """D-61, D-62: what a session holds is free when it ends, whatever the end, and its claims need it open."""
    plan = await make_plan(house, "only")
    session = await started(house.agent, plan=plan)
    task = told(await house.agent.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": session}))
    await end(house.agent, session)

    assert told(await house.agent.get(f"/api/agent/tasks/{task['id']}"))["status"] == "pending"
    late = await house.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": session})
    assert refused(late) == (409, "session_ended")
    nowhere = await house.agent.post(f"/api/agent/tasks/{task['id']}/claim", {"session_id": "sess_none"})
    assert refused(nowhere) == (404, "resource_not_found")


WRONG: list[tuple[dict[str, object], str]] = [
    ({"agent_type": ""}, "agent_type"),
    ({"agent_type": "x" * 101}, "agent_type"),
    ({"agent_type": "a\nb"}, "agent_type"),
    ({"agent_type": "x", "context": {"big": "x" * 65_536}}, "context"),
    ({"agent_type": "x", "goal": "x" * 10_001}, "goal"),
    ({"agent_type": "x", "plna": "p"}, "plna"),
    ({"agent_type": "x", "takeover": "yes"}, "takeover"),
]


async def test_a_wrong_start_says_what_is_wrong(house: House) -> None:
    """D-10, D-16: 422 with the field."""
    for body, field in WRONG:
        answer = await house.agent.post(SESSIONS, body)

        assert refused(answer) == (422, "validation_error"), body
        assert list(answer.json()["errors"]) == [field]


async def test_a_deleted_workspace_leaves_nothing_of_its_sessions(house: House) -> None:
    """Spec 2.8: deleting a workspace deletes all that it has."""
    other = await house.workspace("other")
    caller = await house.api_key(workspace_id=other)
    session = await started(caller)
    await note(caller, session)
    await end(caller, session, handoff={"summary": "s"})

    await house.rookery.access.workspaces.delete(other, by=OPERATOR)

    count = [select(func.count().label("found")).select_from(table) for table in (sessions, session_events, handoffs)]
    rows = await house.rookery.db.read(lambda tx: [tx.fetch_one(each) for each in count])
    assert [row and row.integer("found") for row in rows] == [0, 0, 0]
