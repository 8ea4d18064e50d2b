"""Restrictions of a key by org, project, server and tool, over every route that names one."""

from __future__ import annotations

from typing import cast

import pytest

from rookery.access.models import KeyRestrictions
from rookery.app import build_route_table
from rookery.kernel.http.routes import RouteEndpoint
from tests.conftest import Instance, operation_name

_REQUIRED: dict[str, dict[str, object]] = {
    "POST /v1/brain/recall": {"query": "x"},
    "POST /v1/brain/remember": {"content": "x", "type": "fact"},
    "GET /v1/brain/search": {"q": "x"},
    "POST {}/plans": {"title": "x"},
    "POST {}/sessions": {"agent_type": "x"},
    "POST {}/templates/{{slug}}/plans": {"variables": {"summary": "x", "component": "y"}},
}
_IGNORES = "POST /api/agent/hooks/{client}/{event}"
"""A hook must not fail in its client: for a project outside the lists it answers `{}` and records nothing (`test_agent_hooks`)."""
_NO_FILTER = {"PATCH", "PUT"}
"""Methods that change one resource; tests of their domains prove that it cannot leave the lists."""


def _fields(endpoint: RouteEndpoint) -> set[str]:
    return {name for model in (endpoint.query, endpoint.body) if model for name in model.model_fields}


def _path(endpoint: RouteEndpoint) -> str:
    return endpoint.path.replace("{agent_id}", "scout").replace("{agent}", "scout").replace("{slug}", "bug-fix")


@pytest.mark.parametrize(("field", "allow_list"), [("org", "orgs"), ("project", "projects")])
@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_an_org_or_a_project_outside_the_lists_is_rejected_by_reads_and_writes(
    instance: Instance, subtests: pytest.Subtests, field: str, allow_list: str, kind: str
) -> None:
    """An org or project outside of the lists is 403 on every route, reads included."""
    create_key = instance.api_key if kind == "api" else instance.agent_key
    key = await create_key("*", restrictions=KeyRestrictions(orgs=frozenset({"acme"}), projects=frozenset({"web"})))
    allowed = {"org": "acme", "project": "web"}
    required = {name.format(prefix): fields for name, fields in _REQUIRED.items() for prefix in ("/v1", "/api/agent")}
    route_count = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if field not in _fields(endpoint) or endpoint.route.method in _NO_FILTER or operation_name(endpoint) == _IGNORES:
            continue
        route_count += 1
        with subtests.test(route=operation_name(endpoint)):
            fields = {name: value for name, value in allowed.items() if name in _fields(endpoint)}
            fields |= {**required.get(operation_name(endpoint), {}), field: "zz"}
            if endpoint.route.method == "GET":
                rejected = await key.get(f"{_path(endpoint)}?{'&'.join(f'{name}={value}' for name, value in fields.items())}")
            else:
                rejected = await key.send(endpoint.route.method, _path(endpoint), fields)
            assert (rejected.status_code, rejected.json()["error"]) == (403, "permission_denied"), rejected.text
            assert rejected.json()["not_in_list"] == {"list": allow_list, "value": "zz"}
            assert "required_permission" not in rejected.json()
    assert route_count >= 8, "routes that name an org or a project"


async def test_servers_and_tools_outside_the_lists_are_named(instance: Instance) -> None:
    """The error has `not_in_list`, and no `required_permission`, since a server cannot be granted."""
    key = await instance.api_key(restrictions=KeyRestrictions(servers=frozenset({"odd"})))
    tools = await instance.api_key(restrictions=KeyRestrictions(tools=("brain/search",)))
    server = await key.get("/api/v1/mcp/servers/brain")
    call = await tools.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": "recall", "arguments": {"query": "x"}})
    webhooks = await key.get("/api/v1/webhooks")
    # Only the list of tools excludes the server.
    other_server = await tools.get("/api/v1/mcp/servers/agents")
    other_call = await tools.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": "list_plans", "arguments": {}})

    responses = (server, call, webhooks, other_server, other_call)
    bodies = [cast("dict[str, object]", response.json()) for response in responses]
    assert [response.status_code for response in responses] == [403] * 5
    assert [body["not_in_list"] for body in bodies] == [
        {"list": "servers", "value": "brain"},
        {"list": "tools", "value": "brain/recall"},
        {"list": "servers", "value": None},
        {"list": "tools", "value": "agents"},
        {"list": "tools", "value": "agents"},
    ]
    assert not any("required_permission" in body for body in bodies)


async def test_the_error_of_another_workspace_in_the_header_names_the_header(instance: Instance) -> None:
    """The error has `field` for programs."""
    rejected = await instance.admin.get("/v1/brain/tags", **{"X-Workspace-ID": "999"})

    assert (rejected.status_code, rejected.json()["field"]) == (403, "X-Workspace-ID")
