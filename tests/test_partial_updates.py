"""
Partial updates: a field that is left out keeps its value, in each `PATCH` and in the budgets, which a `PUT` changes in part.

The tests read the fields from the OpenAPI document, so a new operation or field without an entry in `RESOURCES` fails.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from distribution.client.__main__ import load_document
from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.schema import PatchModel
from rookery.kernel.unset import UNSET
from rookery.reference.operation_names import document_path
from rookery.wiring import build_platform
from rookery_client import UNSET as CLIENT_UNSET
from rookery_client import Rookery
from tests.agents.makers import make_plan, phase, phases_of, tasks_of
from tests.agents.session_makers import start_session_id
from tests.conftest import Caller, Instance, run_instance

Json = dict[str, Any]

PARTIAL_PUTS = frozenset({"/api/agent/content/budgets/workspace", "/api/agent/content/budgets/keys/{key_id}"})
"""Paths whose PUT keeps the fields that are left out. Other ones replace the resource."""

STATUS_PATHS = frozenset({"/api/agent/plans/{plan}/status", "/api/agent/plans/{plan}/phases/{phase}/status"})
"""Paths whose PATCH is an action: it requires the new status, and its other fields are not those of a resource."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """
    A resource that a PATCH changes.

    Attributes:
        create: Creates one and returns its path.
        values: A new value of each field.
        reads: Fields of the response that a field changes, if they are not the one of the same name.
        empty: The value of a field after null, if it is not null.
        has_activity: Each change counts as an activity, which the ETag covers.
    """

    create: Callable[[Caller], Any]
    values: Json
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    empty: Json = field(default_factory=Json)
    has_activity: bool = False


async def _post(caller: Caller, path: str, body: Json) -> Json:
    response = await caller.post(path, body)
    assert response.status_code == 201, response.text
    return cast("Json", response.json())


def _created(path: str, body: Json, identifier: str = "id", *, at: str | None = None) -> Callable[[Caller], Any]:
    async def create(caller: Caller) -> str:
        return f"{at or path}/{(await _post(caller, path, body))[identifier]}"

    return create


async def _create_plan(caller: Caller) -> str:
    plan = await make_plan(caller, phase("One", "a"), description="d", metadata={"a": 1}, org="acme", project="web")
    return f"/api/agent/plans/{plan['slug']}"


async def _create_phase(caller: Caller) -> str:
    second = phase("Two", "b", description="d", metadata={"a": 1}, acceptance_criteria=["done"], depends_on=["One"])
    plan = await make_plan(caller, phase("One", "a"), second)
    return f"/api/agent/plans/{plan['slug']}/phases/{phases_of(plan)['Two']['id']}"


async def _create_task(caller: Caller) -> str:
    fields: Json = {"description": "d", "notes": "n", "metadata": {"a": 1}, "acceptance_criteria": ["done"], "depends_on": ["a"]}
    plan = await make_plan(caller, phase("One", "a", {"name": "b", **fields}))
    return f"/api/agent/tasks/{tasks_of(plan)['b']['id']}"


async def _create_session(caller: Caller) -> str:
    plan = await make_plan(caller, phase("One", "a"))
    offered = await start_session_id(caller, agent_id="kim", plan=plan["slug"])
    response = await caller.post(f"/api/agent/sessions/{offered}/end", {"handoff": "Go on."})
    assert response.status_code == 200, response.text
    return f"/api/agent/sessions/{await start_session_id(caller, agent_id='kim', plan=plan['slug'], goal='g', context={'a': 1})}"


_KEY_VALUES: Json = {
    "name": "second",
    "expires_at": "2090-01-01T00:00:00Z",
    "servers": ["git"],
    "tools": ["git/*"],
    "orgs": ["zoo"],
    "projects": ["api"],
    "tool_limits": {"web/*": 3},
}
_KEY: Json = {
    "name": "first",
    "expires_at": "2080-01-01T00:00:00Z",
    "servers": ["web"],
    "tools": ["web/*"],
    "orgs": ["acme"],
    "projects": ["web"],
    "tool_limits": {"web/*": 2},
}
_SERVER: Json = {
    "id": "tickets",
    "url": "http://127.0.0.1:9/mcp",
    "enabled": False,
    "headers": {"Authorization": "Bearer ${TOKEN}"},
    "secrets": {"TOKEN": "secret"},
    "tagline": "first",
}

RESOURCES: Mapping[str, Resource] = {
    "/v1/brain/memories/{memory_id}": Resource(
        create=_created(
            "/v1/brain/remember",
            {"content": "Heron.", "type": "note", "org": "acme", "project": "web", "tags": ["a"], "metadata": {"a": 1}, "expires_in": 5},
            at="/v1/brain/memories",
        ),
        values={
            "content": "Egret.",
            "type": "decision",
            "org": "zoo",
            "project": "api",
            "tags": ["b"],
            "metadata": {"b": 2},
            "confidence": 0.3,
            "source": "chat",
            "expires_in": 9,
        },
        reads={
            "content": frozenset({"content", "content_at", "indexed", "indexed_at", "state", "stale"}),
            "confidence": frozenset({"confidence", "base_confidence", "effective_confidence"}),
            "expires_in": frozenset({"expires_at"}),
        },
        empty={"tags": [], "metadata": {}},
    ),
    "/api/v1/api-keys/{key_id}": Resource(
        create=_created("/api/v1/api-keys", {**_KEY, "scopes": ["brain:read"], "agent_id": "kim"}),
        values={**_KEY_VALUES, "scopes": ["brain:write", "plans.read"], "rate_limit_tier": "free", "agent_id": "ann"},
        reads={"rate_limit_tier": frozenset({"rate_limit_tier", "rate_limit", "limits"})},
    ),
    "/api/v1/agent-keys/{key_id}": Resource(
        create=_created("/api/v1/agent-keys", {**_KEY, "permissions": ["brain:read"]}),
        values={
            **_KEY_VALUES,
            "permissions": ["brain:write", "plans.read"],
            "rate_limit": 7,
            "ip_restriction": True,
            "ip_list": ["10.0.0.0/8"],
        },
        reads={"ip_list": frozenset({"ip_list", "ip_restriction"})},
    ),
    "/api/v1/webhooks/{webhook_id}": Resource(
        create=_created("/api/v1/webhooks", {"url": "http://127.0.0.1:9/hook", "events": ["plan.completed"], "enabled": False}),
        values={
            "url": "http://127.0.0.1:9/other",
            "events": ["memory.*"],
            "description": "d",
            "include_content": True,
            "strict_order": True,
            "concurrency": 7,
            "enabled": True,
        },
        reads={"enabled": frozenset({"enabled", "state", "disabled_at", "disabled_reason", "failures"})},
    ),
    "/api/v1/servers/{id}": Resource(
        create=_created("/api/v1/servers", _SERVER),
        values={
            "headers": {"Authorization": "${TOKEN}"},
            "type": "sse",
            "name": "Tickets",
            "tagline": "t",
            "description": "d",
            "icon": "https://example.com/i.png",
            "status": "beta",
            "use_when": "u",
            "related_servers": ["git"],
            "enabled": True,
            "sandbox": True,
            "isolation": "per_key",
            "replicas": 2,
            "lifecycle": "eager",
            "idle_s": 9.0,
            "timeout_s": 7.0,
            "max_concurrency": 3,
            "forward_headers": ["X-Tenant"],
            "forward_meta": ["a/*"],
            "tools": {"deny": ["x"]},
            "auth": "oauth",
            "roots": ["file:///srv"],
            "deprecated_at": "2090-01-01",
            "sunset_at": "2095-01-01",
            "start_timeout_s": 8.0,
            "protocol": "2025-06-18",
            "secrets": {"OTHER": "x"},
        },
        reads={"secrets": frozenset({"secrets"})},
    ),
    "/api/v1/workspaces/{workspace_id}": Resource(create=_created("/api/v1/workspaces", {"name": "first"}), values={"name": "second"}),
    "/api/agent/plans/{plan}": Resource(
        create=_create_plan,
        values={"title": "Other", "description": "x", "org": "zoo", "project": "api", "metadata": {"b": 2}},
        empty={"description": "", "metadata": {}},
    ),
    "/api/agent/plans/{plan}/phases/{phase}": Resource(
        create=_create_phase,
        values={
            "name": "Other",
            "description": "x",
            "position": 1,
            "depends_on": [],
            "acceptance_criteria": ["x"],
            "metadata": {"b": 2},
        },
        reads={"depends_on": frozenset({"depends_on", "blocked", "blocked_by", "ready", "tasks"})},
        empty={"description": "", "metadata": {}, "acceptance_criteria": [], "depends_on": []},
    ),
    "/api/agent/tasks/{task}": Resource(
        create=_create_task,
        values={
            "name": "Other",
            "description": "x",
            "notes": "x",
            "priority": 0,
            "position": 1,
            "depends_on": [],
            "metadata": {"b": 2},
            "acceptance_criteria": ["x"],
            "status": "skipped",
            "result": {"a": 1},
            "reason": None,
            "claim_token": None,
            "force": True,
        },
        reads={
            "depends_on": frozenset({"depends_on", "blocked", "blocked_by", "ready", "state"}),
            "status": frozenset({"status", "state", "ready", "completed_at"}),
            "reason": frozenset(),
            "claim_token": frozenset(),
            "force": frozenset(),
        },
        empty={"description": "", "notes": "", "metadata": {}, "acceptance_criteria": [], "depends_on": []},
    ),
    "/api/agent/sessions/{session_id}": Resource(
        create=_create_session,
        values={
            "status": "paused",
            "goal": "x",
            "context": {"b": 2},
            "summary": "x",
            "handoff": "x",
            "acknowledge_handoff": "loaded",
        },
        reads={"acknowledge_handoff": frozenset()},
        empty={"context": {}},
        has_activity=True,
    ),
    "/api/agent/notify/campaigns/{campaign}": Resource(
        create=_created(
            "/api/agent/notify/campaigns",
            {
                "name": "n",
                "title": "t",
                "body": "b",
                "url": "https://example.com/a",
                "channels": ["email"],
                "audience": {"all": True},
                "variables": {"a": 1},
                "rate_per_second": 2,
                "schedule": {"at": "2030-12-01T09:00:00Z"},
            },
        ),
        values={
            "name": "x",
            "title": "x",
            "body": "x",
            "url": "https://example.com/b",
            "channels": ["ntfy"],
            "audience": {"tags": ["beta"]},
            "variables": {"b": 2},
            "rate_per_second": 3,
            "ttl_s": 60,
            "schedule": {"at": "2030-12-02T09:00:00Z"},
        },
    ),
    "/api/agent/notify/subscribers/{subscriber}": Resource(
        create=_created(
            "/api/agent/notify/subscribers",
            {
                "external_id": "kim",
                "channels": [{"type": "email", "address": "kim@example.org"}],
                "tags": ["a"],
                "attributes": {"a": 1},
                "locale": "de",
            },
        ),
        values={
            "external_id": "ann",
            "channels": [{"type": "email", "address": "ann@example.org"}],
            "tags": ["b"],
            "attributes": {"b": 2},
            "locale": "en",
        },
    ),
}

IGNORED = frozenset(
    {
        *("updated_at", "updated_by", "version", "last_activity_at", "health", "last_error", "tool_count", "resource_count"),
        *("indexed", "indexed_at", "state"),
    }
)
"""Fields of responses that any change, the connection to a server that it starts, or the job that indexes a memory may change."""

HARMLESS_NULLS = frozenset({"reason", "claim_token"})
"""Fields that belong to the request and not to the resource. Null is the same as leaving them out."""

ACTION_FIELDS = frozenset({"force", "acknowledge_handoff"})
"""Fields that say how to change, and so have no current value that stays."""

each_resource = pytest.mark.parametrize("path", RESOURCES)


@pytest.fixture(scope="module")
def document() -> Json:
    """The OpenAPI document."""
    return cast("Json", load_document())


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as running:
        yield running


def _follow(document: Json, schema: Json) -> Json:
    reference = schema.get("$ref")
    return schema if reference is None else cast("Json", document["components"]["schemas"][str(reference).rpartition("/")[2]])


def _iter_bodies(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield the path, the operation id and the schema of the body of each partial update."""
    for path, methods in cast("dict[str, Json]", document["paths"]).items():
        for method in {"patch"} | ({"put"} if path in PARTIAL_PUTS else set[str]()):
            if method in methods:
                operation = methods[method]
                yield path, operation["operationId"], _follow(document, operation["requestBody"]["content"]["application/json"]["schema"])


def _iter_partial_endpoints(endpoints: list[RouteEndpoint]) -> Iterator[RouteEndpoint]:
    for endpoint in endpoints:
        is_partial = endpoint.route.method == "PATCH" or (endpoint.route.method == "PUT" and document_path(endpoint.path) in PARTIAL_PUTS)
        if is_partial and endpoint.body is not None:
            yield endpoint


def test_no_partial_update_documents_a_default(document: Json) -> None:
    """A value that a field has when a resource is created is not the one that it gets when a change leaves it out."""
    bodies = list(_iter_bodies(document))
    faults = [
        f"{path} {name}"
        for path, _, body in bodies
        for name, schema in cast("dict[str, Json]", body["properties"]).items()
        if {"default", "x-default"} & schema.keys() or "Default:" in str(schema.get("description"))
    ]
    assert faults == []
    assert {path for path, *_ in bodies} == {*RESOURCES, *STATUS_PATHS, *PARTIAL_PUTS}
    assert {path: body["required"] for path, _, body in bodies if body.get("required")} == {path: ["status"] for path in STATUS_PATHS}


def test_a_field_that_is_left_out_is_unset_in_each_body(tmp_path: Path) -> None:
    """One convention: a body of a partial update has no other default than UNSET."""
    endpoints = build_route_table(build_platform(Settings(data_dir=tmp_path))).endpoints
    models = {endpoint.body for endpoint in _iter_partial_endpoints(endpoints) if endpoint.body is not None}
    others = [
        f"{model.__name__}.{name}"
        for model in models
        for name, info in model.model_fields.items()
        if not info.is_required() and info.default is not UNSET
    ]
    assert others == []
    assert [model for model in models if not issubclass(model, PatchModel)] == []


def test_tools_that_change_a_part_document_no_default(tmp_path: Path) -> None:
    """The tools of these operations say no default, and require only the resource and a new status."""
    platform = build_platform(Settings(data_dir=tmp_path))
    endpoints = build_route_table(platform).endpoints
    names = {tool.name for endpoint in _iter_partial_endpoints(endpoints) for tool in endpoint.route.tools}
    schemas = {tool.name: cast("Json", tool.input_schema) for server in platform.tool_servers for tool in server.tools()}

    assert names == {"change", "task_update", "session_update", "plan_status", "phase_status"}
    for name in names:
        assert '"default"' not in str(schemas[name]).replace("'", '"'), name
        assert not re.search(r"\bdefaults?\b", str(schemas[name]), re.IGNORECASE), name
        assert set(schemas[name].get("required", [])) <= {"id", "task_id", "session_id", "plan", "phase", "status"}, name


def test_the_client_sends_no_field_that_is_left_out(document: Json) -> None:
    """Each optional argument of a function of the client that changes a part is UNSET, and its description names no default."""
    with Rookery(api_key="sk_test_unused") as client:
        functions = {name: function for group in vars(client).values() for name, function in inspect.getmembers(group, inspect.ismethod)}
    for path, operation, body in _iter_bodies(document):
        signature = inspect.signature(functions[operation])
        arguments = {name: signature.parameters[name] for name in body["properties"]}
        required = {name for name, argument in arguments.items() if argument.default is inspect.Parameter.empty}
        assert {argument.default for name, argument in arguments.items() if name not in required} <= {CLIENT_UNSET}, path
        assert required == set(body.get("required", [])), path
        assert "Default:" not in str(functions[operation].__doc__), path


def _differences(before: Json, after: Json) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)} - IGNORED


@each_resource
async def test_leaving_out_every_field_changes_nothing(instance: Instance, path: str) -> None:
    """An empty change returns the resource with its version."""
    resource = RESOURCES[path]
    url = await resource.create(instance.admin)
    before = await instance.admin.get(url)
    response = await instance.admin.send("PATCH", url, {})
    after = await instance.admin.get(url)

    assert response.status_code == 200, response.text
    assert _differences(before.json(), after.json()) == set()
    if not resource.has_activity:
        assert before.headers["etag"] == response.headers["etag"] == after.headers["etag"]
        assert before.json() == after.json()


@each_resource
async def test_each_field_alone_changes_only_itself(instance: Instance, document: Json, path: str) -> None:
    """The fields beside it keep their values."""
    resource = RESOURCES[path]
    body = next(body for body_path, _, body in _iter_bodies(document) if body_path == path)
    untried = body["properties"].keys() - resource.values.keys()
    assert untried == (frozenset({"url", "command", "args", "env", "cwd"}) if "/servers/" in path else set())  # they name another server
    url = await resource.create(instance.admin)
    for name, value in resource.values.items():
        before = (await instance.admin.get(url)).json()
        response = await instance.admin.send("PATCH", url, {name: value})
        assert response.status_code == 200, (name, response.text)
        changed, expected = _differences(before, (await instance.admin.get(url)).json()), resource.reads.get(name, frozenset({name}))
        assert changed <= expected, name
        assert bool(changed) == bool(expected), name


@each_resource
async def test_null_clears_a_field_or_is_refused_with_its_name(instance: Instance, document: Json, path: str) -> None:
    """Null is only accepted where the document says so; it never counts as left out, except for an argument of the request."""
    resource = RESOURCES[path]
    body = next(body for body_path, _, body in _iter_bodies(document) if body_path == path)
    url = await resource.create(instance.admin)
    for name, schema in cast("dict[str, Json]", body["properties"]).items():
        if path == "/api/v1/servers/{id}" and name in {"url", "headers", "auth"}:
            continue  # the entry needs its address, and the secret of its header
        before = (await instance.admin.get(url)).json()
        response = await instance.admin.send("PATCH", url, {name: None})
        if not _is_nullable(document, schema):
            assert response.status_code == 422, (name, response.text)
            assert list(response.json()["errors"]) == [name], (name, response.text)
            assert "null" in response.json()["errors"][name][0], (name, response.text)
            assert ("omit it to keep the current value" in response.json()["errors"][name][0]) == (name not in ACTION_FIELDS), name
            continue
        assert response.status_code == 200, (name, response.text)
        after = (await instance.admin.get(url)).json()
        assert _differences(before, after) <= resource.reads.get(name, frozenset({name})), name
        if name not in HARMLESS_NULLS and path != "/api/v1/servers/{id}":  # a server shows the default of an absent field
            read = next(iter(resource.reads[name])) if name in resource.reads and len(resource.reads[name]) == 1 else name
            assert after[read] == resource.empty.get(name), name


def _is_nullable(document: Json, schema: Json) -> bool:
    """Return whether null is a value of *schema*. A schema without a type, such as that of the result of a task, allows any value."""
    schema = _follow(document, schema)
    parts = [*schema.get("anyOf", []), *schema.get("allOf", [])]
    is_any = not {"type", "anyOf", "allOf", "enum", "oneOf"} & schema.keys()
    return is_any or schema.get("nullable") is True or any(_follow(document, part).get("nullable") is True for part in parts)
