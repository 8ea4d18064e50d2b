"""Two agents work on one plan: one crashes, the other takes over from its hand-off and finishes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from mcp import Client

from tests.conftest import lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, open_client

Json = dict[str, object]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "two_agents.py"
_PERMISSIONS = ["mcp:read", "mcp:write", "plans.read", "plans.write", "phases.write", "sessions.read", "sessions.write"]
_MAX_TASKS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Iterator[Server]:
    """A server in a separate process."""
    folder = tmp_path_factory.mktemp("story")
    lend_model(model_folder, folder)
    with run_server(folder) as server_:
        yield server_


def _key(server: Server, agent: str) -> str:
    response = server.client.post("/api/v1/agent-keys", json={"name": agent, "agent_id": agent, "permissions": _PERMISSIONS})
    assert response.status_code == 201, response.text
    return str(response.json()["key"])


def test_over_http_an_agent_is_killed_and_another_finishes(server: Server) -> None:
    """The example, with real processes. The killed agent's task is claimed again, and none is completed twice."""
    environment = {**os.environ, "ROOKERY_KEY": server.keys["api_key"]}
    result = subprocess.run(
        [sys.executable, str(EXAMPLE), "--url", server.url], env=environment, capture_output=True, text=True, timeout=HANG_S, check=False
    )

    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    kill_line = lines.index("--- kim was killed ---")
    task_name = lines[kill_line - 1].removeprefix("kim is in the middle of: ")
    assert lines[kill_line + 1] == f"lee has a hand-off of kim: 2 tasks are done. Next: Go on with: {task_name}"
    assert lines[kill_line + 3] == f"lee does: {task_name} (attempt 2)"
    assert lines[-1] == "The plan is completed: 100 %."
    plan = server.client.get("/v1/plans/fix-the-kettle-does-not-whistle").json()
    results = [task["result"] for phase in plan["phases"] for task in phase["tasks"]]
    assert (results.count("kim did it."), results.count("lee did it.")) == (2, 8)
    sessions = server.client.get(f"/v1/sessions?plan={plan['slug']}").json()["data"]
    assert [(session["agent_id"], session["status"]) for session in sessions] == [("lee", "completed"), ("kim", "active")]


@pytest.mark.parametrize("mode", ERAS)
async def test_over_mcp_an_agent_leaves_and_another_finishes(server: Server, mode: str) -> None:
    """The same with tools only, with the SDK's client at /mcp/agents, in both versions of the protocol."""
    first_key, second_key = _key(server, f"kim-{mode}"), _key(server, f"lee-{mode}")
    slug = f"tea-{mode}"
    phases = [{"key": "a", "name": "Boil", "tasks": ["Fill", "Heat"]}, {"name": "Pour", "depends_on": ["a"], "tasks": ["Pour"]}]

    async with open_client(server, "/mcp/agents", key=first_key, mode=mode) as mcp:
        assert {"session_start", "task_claim_next", "task_complete"} <= {tool.name for tool in (await mcp.list_tools()).tools}
        await _call(mcp, "plan_create", title="Tea", slug=slug, status="active", phases=phases)
        session = await _start(mcp, slug)
        first_task = await _claim_next(mcp, slug, session, ttl_s=600)
        await _call(mcp, "task_complete", task_id=first_task["id"], claim_token=first_task["claim_token"], result="Full.")
        unfinished = await _claim_next(mcp, slug, session, ttl_s=1)
        await _call(mcp, "session_checkpoint", session_id=session, state={"at": unfinished["name"]})
        await _call(
            mcp, "session_update", session_id=session, handoff={"remaining": [unfinished["name"]], "next_steps": ["Mind the steam."]}
        )

    async with open_client(server, "/mcp/agents", key=second_key, mode=mode) as mcp:
        start = await _call(mcp, "session_start", agent_type="example", plan=slug)
        boot = cast("dict[str, Json]", start["boot"])
        assert boot["handoff"]["next_steps"] == ["Mind the steam."]
        assert boot["checkpoint"]["state"] == {"at": "Heat"}
        session_id = str(cast("Json", start["session"])["id"])
        await _call(mcp, "session_update", session_id=session_id, acknowledge_handoff="loaded")
        completed: list[object] = []
        for _ in range(_MAX_TASKS):
            task = await _claim_next(mcp, slug, session_id, wait_s=25)
            if not task:
                break
            completed.append((task["name"], task["attempts"]))
            await _call(mcp, "task_complete", task_id=task["id"], claim_token=task["claim_token"])
            await _close_phases(mcp, slug)
        ended_session = await _call(mcp, "session_end", session_id=session_id, summary="There is tea.")
        plan = await _call(mcp, "plan_show", plan=slug)

    assert completed == [("Heat", 1), ("Pour", 0)]
    assert (plan["status"], cast("Json", plan["progress"])["percentage"], ended_session["status"]) == ("completed", 100, "completed")


async def _call(mcp: Client, tool: str, **arguments: object) -> Json:
    result = await mcp.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return cast("Json", result.structured_content)


async def _start(mcp: Client, plan: str) -> str:
    start = await _call(mcp, "session_start", agent_type="example", plan=plan)
    return str(cast("Json", start["session"])["id"])


async def _claim_next(mcp: Client, plan: str, session: str, **options: object) -> Json:
    """Claim the next task; return an empty object if the plan has no more."""
    result = await _call(mcp, "task_claim_next", plan=plan, session_id=session, **options)
    if result.get("task") is None:
        assert result["reason"] == "plan_done"
        return {}
    return cast("Json", result["task"])


async def _close_phases(mcp: Client, plan: str) -> None:
    for phase in cast("list[Json]", (await _call(mcp, "plan_show", plan=plan))["phases"]):
        if phase["completable"]:
            await _call(mcp, "phase_status", plan=plan, phase=str(phase["position"]), status="completed")
