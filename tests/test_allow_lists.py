"""Restrictions of a key by org, project, server and tool, over every route that names one (D-23)."""

from __future__ import annotations

from typing import cast

import pytest

from rookery.access.models import KeyRestrictions
from rookery.app import build_route_table
from rookery.kernel.http.routes import RouteEndpoint
from tests.conftest import Instance

_REQUIRED: dict[str, dict[str, object]] = {
    "POST /v1/brain/recall": {"query": "x"},
    "POST /v1/brain/remember": {"content": "x", "type": "fact"},
    "GET /v1/brain/search": {"q": "x"},
    "POST {}/plans": {"title": "x"},
    "POST {}/sessions": {"agent_type": "x"},
    "POST {}/templates/{{slug}}/plans": {"variables": {"summary": "x", "component": "y"}},
}
_NO_FILTER = {"PATCH", "PUT"}
"""Methods that change one thing; tests of their domains prove that it may not leave the lists."""


def _fields(endpoint: RouteEndpoint) -> set[str]:
    return {name for model in (endpoint.query, endpoint.body) if model for name in model.model_fields}


def _named(endpoint: RouteEndpoint) -> str:
    return f"{endpoint.route.method} {endpoint.path}"


def _path(endpoint: RouteEndpoint) -> str:
    return endpoint.path.replace("{agent_id}", "scout").replace("{agent}", "scout").replace("{slug}", "bug-fix")


@pytest.mark.parametrize(("field", "allow_list"), [("org", "orgs"), ("project", "projects")])
@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_an_org_or_a_project_outside_the_lists_is_refused_by_reads_and_writes(
    instance: Instance, subtests: pytest.Subtests, field: str, allow_list: str, kind: str
) -> None:
    """Issue 14: recall in an org outside the list answered 200 with nothing while remember answered 403; D-10, D-23."""
    make = instance.api_key if kind == "api" else instance.agent_key
    key = await make("*", restrictions=KeyRestrictions(orgs=frozenset({"acme"}), projects=frozenset({"web"})))
    here = {"org": "acme", "project": "web"}
    required = {name.format(prefix): fields for name, fields in _REQUIRED.items() for prefix in ("/v1", "/api/agent")}
    seen = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if field not in _fields(endpoint) or endpoint.route.method in _NO_FILTER:
            continue
        seen += 1
        with subtests.test(route=_named(endpoint)):
            given = {name: value for name, value in here.items() if name in _fields(endpoint)}
            given |= {**required.get(_named(endpoint), {}), field: "zz"}
            if endpoint.route.method == "GET":
                refused = await key.get(f"{_path(endpoint)}?{'&'.join(f'{name}={value}' for name, value in given.items())}")
            else:
                refused = await key.send(endpoint.route.method, _path(endpoint), given)
            assert (refused.status_code, refused.json()["error"]) == (403, "permission_denied"), refused.text
            assert refused.json()["not_in_list"] == {"list": allow_list, "value": "zz"}
            assert "required_permission" not in refused.json()
    assert seen >= 8, "routes that name an org or a project"


async def test_servers_and_tools_outside_the_lists_are_named(instance: Instance) -> None:
    """Issue 14: `required_permission` named a server or tool, which cannot be granted; D-10."""
    key = await instance.api_key(restrictions=KeyRestrictions(servers=frozenset({"odd"})))
    tools = await instance.api_key(restrictions=KeyRestrictions(tools=("brain/search",)))
    one = await key.get("/api/v1/mcp/servers/brain")
    call = await tools.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": "recall", "arguments": {"query": "x"}})
    hook = await key.get("/api/v1/webhooks")

    bodies = [cast("dict[str, object]", each.json()) for each in (one, call, hook)]
    assert [each.status_code for each in (one, call, hook)] == [403] * 3
    assert [each["not_in_list"] for each in bodies] == [
        {"list": "servers", "value": "brain"},
        {"list": "tools", "value": "brain/recall"},
        {"list": "servers", "value": None},
    ]
    assert not any("required_permission" in each for each in bodies)


async def test_another_workspace_in_the_header_is_named_by_its_field(instance: Instance) -> None:
    """Issue 14: the refusal of X-Workspace-ID said nothing that a program can read; D-15."""
    refused = await instance.admin.get("/v1/brain/tags", **{"X-Workspace-ID": "999"})

    assert (refused.status_code, refused.json()["field"]) == (403, "X-Workspace-ID")
