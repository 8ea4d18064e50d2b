"""If-Match on every route of agent work that writes. The routes come from the application's own table."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rookery.agents.api import require_if_match
from rookery.app import build_route_table
from rookery.kernel.http import Operation
from rookery.kernel.http.routes import RouteEndpoint
from tests.agents.makers import get_json, make_plan, phase, tasks_of
from tests.agents.session_makers import start_session_id
from tests.conftest import Instance
from tests.test_matrix import WORK_BODIES

PREFIX = "/api/agent"
BODIES = {name.format(PREFIX): body for name, body in WORK_BODIES.items()}
TEMPLATE = {"slug": "hotfix", "name": "Hotfix", "phases": [{"name": "a"}]}


def _writes(instance: Instance) -> list[RouteEndpoint]:
    """Return the routes of plans, tasks, sessions and templates that are not read-only."""
    domain = tuple(f"{PREFIX}/{name}" for name in ("plans", "tasks", "sessions", "templates"))
    endpoints = [
        endpoint
        for endpoint in build_route_table(instance.rookery).endpoints
        if endpoint.path.startswith(domain) and endpoint.route.method != "GET"
    ]
    assert len(endpoints) >= 30
    return endpoints


def _body(endpoint: RouteEndpoint) -> object:
    return BODIES.get(f"{endpoint.route.method} {endpoint.path}")


async def _resources(instance: Instance) -> dict[str, str]:
    """Create one of each resource, and return the value of each path parameter."""
    plan = await make_plan(instance.agent, phase("One", "a", "b"))
    session_id = await start_session_id(instance.agent, plan=plan["slug"])
    response = await instance.admin.post(f"{PREFIX}/templates", TEMPLATE)
    assert response.status_code == 201, response.text
    return {
        "{plan}": str(plan["slug"]),
        "{phase}": "1",
        "{task}": str(tasks_of(plan)["a"]["id"]),
        "{session_id}": session_id,
        "{slug}": "hotfix",
    }


def _path(endpoint: RouteEndpoint, names: Mapping[str, str]) -> str:
    path = endpoint.path
    for parameter, name in names.items():
        path = path.replace(parameter, name)
    return path


async def _state(instance: Instance, names: Mapping[str, str]) -> list[object]:
    paths = ("/plans/{plan}", "/sessions/{session_id}", "/templates/{slug}", "/plans?per_page=100", "/sessions", "/templates?per_page=100")
    states = list[object]()
    for path in paths:
        for parameter, name in names.items():
            path = path.replace(parameter, name)  # noqa: PLW2901 - filled in
        states.append(await get_json(instance.admin, path))
    return states


async def test_every_writing_route_rejects_an_unknown_version(instance: Instance) -> None:
    """If-Match with an unknown ETag is 412 at each route that writes, and nothing changes."""
    names = await _resources(instance)
    state_before = await _state(instance, names)
    for endpoint in _writes(instance):
        response = await instance.admin.send(endpoint.route.method, _path(endpoint, names), _body(endpoint), **{"If-Match": '"999"'})
        context = (endpoint.route.method, endpoint.path, response.status_code, response.text)
        assert response.status_code == 412, context
        assert response.json()["error"] == "precondition_failed", context
        assert "If-Match" in response.json()["message"], context
    assert await _state(instance, names) == state_before


async def test_if_match_with_the_current_version_succeeds(instance: Instance) -> None:
    """Claim, complete, end and the other actions accept the ETag from GET of the same resource."""
    names = await _resources(instance)
    task, session = f"{PREFIX}/tasks/{names['{task}']}", f"{PREFIX}/sessions/{names['{session_id}']}"

    async def tag(path: str) -> dict[str, str]:
        return {"If-Match": (await instance.agent.get(path)).headers["etag"]}

    etag = await tag(task)
    claim = await instance.agent.send("POST", f"{task}/claim", {}, **etag)
    assert claim.status_code == 200, claim.text
    token = {"claim_token": claim.json()["claim_token"]}
    assert (await instance.agent.send("POST", f"{task}/complete", token, **etag)).status_code == 412
    assert (await instance.agent.send("POST", f"{task}/heartbeat", token, **await tag(task))).status_code == 200
    assert (await instance.agent.send("POST", f"{task}/complete", token, **await tag(task))).status_code == 200
    assert (await instance.agent.send("POST", f"{session}/end", {}, **await tag(session))).status_code == 200
    assert (await instance.agent.send("POST", f"{PREFIX}/plans", {"title": "x"}, **{"If-Match": "*"})).status_code == 201
    template = f"{PREFIX}/templates/hotfix"
    assert (await instance.admin.send("POST", f"{template}/plans", {}, **await tag(template))).status_code == 201


def test_a_writing_route_without_if_match_support_prevents_the_start() -> None:
    """A new route of the domain that writes must declare that it supports If-Match."""

    async def write(plan: str) -> None:
        assert plan

    with pytest.raises(ValueError, match="If-Match"):
        require_if_match([Operation(method="POST", path="/plans/{plan}/sing", handler=write, required_scope="plans.write")])
