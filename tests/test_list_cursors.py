"""Every list of the API, walked by cursors while its entries are deleted and new ones are added."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

import orjson
import pytest

from benchmarks.tool_catalogue import catalogue
from rookery.kernel.config import Settings
from rookery.kernel.http.operations import parse_signature
from rookery.kernel.http.routes import RouteTable
from rookery.kernel.schema import CursorQuery
from rookery.usage.models import UsageEntry, UsageKind
from tests.conftest import Caller, Instance, eventually, run_instance

Json = dict[str, object]

_COUNT = 7
_SIZE = 2
_MAX_PAGES = 100
_DIGEST_BYTES = 6


@dataclass(frozen=True, kw_only=True)
class Listed:
    """
    A list with at least `_COUNT` entries.

    Attributes:
        add: Adds an entry, given a number that is not used yet.
        remove: Returns the path to DELETE an entry; None: it stays.
        fields: The fields that identify an entry.
        items: The field of the body that holds the entries.
        size: The parameter with the number of entries on a page.
    """

    caller: Caller
    path: str
    add: Callable[[int], Awaitable[object]] | None = None
    remove: Callable[[Json], str | None] = lambda _: None
    fields: tuple[str, ...] = ("id",)
    items: str = "data"
    size: str = "per_page"

    async def fetch(self, size: int, cursor: str | None = None, more: Json | None = None) -> Json:
        """Return a page."""
        parameters = {self.size: size, **({} if cursor is None else {"cursor": cursor}), **(more or {})}
        separator = "&" if "?" in self.path else "?"
        response = await self.caller.get(self.path + separator + "&".join(f"{name}={value}" for name, value in parameters.items()))
        assert response.status_code == 200, (self.path, response.text)
        return cast("Json", response.json())

    async def reject(self, **parameters: object) -> str:
        """Return what a 422 says about the cursor."""
        separator = "&" if "?" in self.path else "?"
        response = await self.caller.get(self.path + separator + "&".join(f"{name}={value}" for name, value in parameters.items()))
        assert response.status_code == 422, (self.path, parameters, response.text)
        return str(response.json()["errors"]["cursor"])

    def identify(self, item: Json) -> tuple[object, ...]:
        """Return what identifies an entry."""
        return tuple(item[name] for name in self.fields)


def _read_items(listed: Listed, page: Json) -> list[Json]:
    return cast("list[Json]", page[listed.items])


def _read_cursor(page: Json) -> str | None:
    return cast("str | None", cast("Json", page.get("meta", page))["next_cursor"])


async def _create(caller: Caller, path: str, body: object = None, *, method: str = "POST") -> Json:
    response = await caller.send(method, path, body)
    assert response.is_success, (path, response.text)
    return cast("Json", response.json())


async def _fill(listed: Listed) -> Listed:
    for number in range(_COUNT):
        await cast("Callable[[int], Awaitable[object]]", listed.add)(number)
    return listed


def _remember(caller: Caller, content: str, **fields: object) -> Callable[[int], Awaitable[object]]:
    async def add(number: int) -> object:
        return await caller.remember(content.format(number=number), project="walk", **fields)

    return add


def _memory_path(item: Json) -> str:
    return f"/v1/brain/memories/{item['id']}"


async def _memories(instance: Instance) -> Listed:
    add = _remember(instance.admin, "Entry {number} of the log is about subject {number}.")
    return await _fill(Listed(caller=instance.admin, path="/v1/brain/memories?project=walk", add=add, remove=_memory_path))


async def _search(instance: Instance) -> Listed:
    add = _remember(instance.admin, "The heron of lake {number} eats fish number {number}, and is a heron.")
    path = "/v1/brain/search?q=heron&project=walk"
    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=_memory_path, items="hits", size="limit"))


async def _agent_memories(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        fields: Json = {"memory_scope": "agent", "agent_id": "walker", "confidence": 0.5 + (number % 3) / 10}
        return await instance.admin.remember(f"Habit {number}: always check item {number} twice.", **fields)

    return await _fill(Listed(caller=instance.admin, path="/v1/brain/agent/walker/context", add=add, remove=_memory_path))


async def _history(instance: Instance) -> Listed:
    last = [str((await instance.admin.remember("Version 0 of the price."))["id"])]

    async def add(number: int) -> None:
        new = await instance.admin.remember(f"Version {number + 1} of the price.", supersedes_id=last[0])
        last[0] = str(new["id"])

    return await _fill(Listed(caller=instance.admin, path=f"/v1/brain/memories/{last[0]}/history", add=add))


async def _recalls(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        return await _create(instance.admin, "/v1/brain/recall", {"query": f"Where is heron {number}?", "project": "walk"})

    return await _fill(Listed(caller=instance.admin, path="/v1/brain/recalls?project=walk", add=add))


async def _servers(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        body: Json = {"id": f"server-{number * 7 % 100:02}", "url": "http://127.0.0.1:9/mcp", "enabled": False}
        return await _create(instance.admin, "/api/v1/servers", body)

    return await _fill(Listed(caller=instance.admin, path="/api/v1/servers", add=add, remove=lambda item: f"/api/v1/servers/{item['id']}"))


async def _tool_calls(instance: Instance) -> Listed:
    async def add(_: int) -> object:
        return await _create(instance.admin, "/api/v1/mcp/tools/call", {"server": "brain", "tool": "tags", "arguments": {}})

    return await _fill(Listed(caller=instance.admin, path="/api/agent/tools/calls", add=add))


async def _plans(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        return await _create(instance.admin, "/v1/plans", {"title": f"Plan {number}", "org": "walk"})

    return await _fill(Listed(caller=instance.admin, path="/v1/plans?org=walk", add=add, remove=lambda item: f"/v1/plans/{item['id']}"))


async def _make_plan(instance: Instance, slug: str) -> str:
    await _create(instance.admin, "/v1/plans", {"title": slug, "slug": slug, "status": "active", "phases": [{"name": "First"}]})
    return f"/v1/plans/{slug}"


async def _plan_events(instance: Instance) -> Listed:
    plan = await _make_plan(instance, "eventful")

    async def add(number: int) -> object:
        return await _create(instance.admin, plan, {"description": f"Text {number}."}, method="PATCH")

    return await _fill(Listed(caller=instance.admin, path=f"{plan}/events", add=add, fields=("seq",)))


async def _phases(instance: Instance) -> Listed:
    plan = await _make_plan(instance, "phased")

    async def add(number: int) -> object:
        return await _create(instance.admin, f"{plan}/phases", {"name": f"Phase {number}"})

    return await _fill(Listed(caller=instance.admin, path=f"{plan}/phases", add=add, remove=lambda item: f"{plan}/phases/{item['id']}"))


async def _make_tasks(instance: Instance, slug: str, path: str) -> Listed:
    plan = await _make_plan(instance, slug)

    async def add(number: int) -> object:
        return await _create(instance.admin, f"{plan}/phases/1/tasks", {"name": f"Task {number}", "priority": number % 3})

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=lambda item: f"/v1/tasks/{item['id']}"))


async def _phase_tasks(instance: Instance) -> Listed:
    return await _make_tasks(instance, "tasked", "/v1/plans/tasked/phases/1/tasks")


async def _tasks(instance: Instance) -> Listed:
    return await _make_tasks(instance, "working", "/v1/tasks?plan=working")


async def _ready_tasks(instance: Instance) -> Listed:
    return await _make_tasks(instance, "ready", "/v1/tasks?plan=ready&state=ready")


def _template(number: int) -> Json:
    phases = [{"name": "Fix", "tasks": [{"name": f"Find cause {number}"}]}]
    return {"name": "Hotfix", "description": f"Text {number}.", "category": "engineering", "variables": {}, "phases": phases}


async def _templates(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        return await _create(instance.admin, "/v1/templates", {"slug": f"walk-{number * 7 % 100:02}", **_template(number)})

    def remove(item: Json) -> str | None:
        return f"/v1/templates/{item['slug']}" if str(item["slug"]).startswith("walk-") else None

    return await _fill(Listed(caller=instance.admin, path="/v1/templates", add=add, remove=remove, fields=("slug",)))


async def _template_versions(instance: Instance) -> Listed:
    await _create(instance.admin, "/v1/templates", {"slug": "versioned", **_template(99)})

    async def add(number: int) -> object:
        return await _create(instance.admin, "/v1/templates/versioned", _template(number), method="PUT")

    return await _fill(Listed(caller=instance.admin, path="/v1/templates/versioned/versions", add=add, fields=("version",)))


async def _sessions(instance: Instance) -> Listed:
    async def add(number: int) -> object:
        return await _create(instance.admin, "/v1/sessions", {"agent_id": f"agent-{number}", "goal": "Walk"})

    return await _fill(Listed(caller=instance.admin, path="/v1/sessions", add=add))


async def _session_events(instance: Instance) -> Listed:
    started = await _create(instance.admin, "/v1/sessions", {"agent_id": "eventful", "goal": "Walk"})
    path = f"/v1/sessions/{cast('Json', started['session'])['id']}/events"

    async def add(number: int) -> object:
        return await _create(instance.admin, path, {"type": "note", "message": f"Note {number}."})

    return await _fill(Listed(caller=instance.admin, path=path, add=add, fields=("seq",)))


async def _generations(instance: Instance) -> Listed:
    sandbox = await instance.api_key(environment="test")

    async def add(number: int) -> object:
        return await _create(sandbox, "/api/agent/content/generations", {"prompt": f"Describe rook {number}."})

    return await _fill(Listed(caller=sandbox, path="/api/agent/content/generations", add=add))


async def _batches(instance: Instance) -> Listed:
    sandbox = await instance.api_key(environment="test")

    async def add(number: int) -> object:
        return await _create(sandbox, "/api/agent/content/batches", {"requests": [{"prompt": f"Describe rook {number}."}]})

    return await _fill(Listed(caller=sandbox, path="/api/agent/content/batches", add=add))


async def _batch_generations(instance: Instance) -> Listed:
    sandbox = await instance.api_key(environment="test")
    requests = [{"prompt": f"Describe rook {number}."} for number in range(_COUNT)]
    batch = (await _create(sandbox, "/api/agent/content/batches", {"requests": requests}))["id"]
    return Listed(caller=sandbox, path=f"/api/agent/content/batches/{batch}/generations")


def _prompt(number: int) -> Json:
    return {"name": "Note", "messages": [{"role": "user", "content": f"Write note {number}."}]}


async def _prompt_templates(instance: Instance) -> Listed:
    path = "/api/agent/content/templates"

    async def add(number: int) -> object:
        return await _create(instance.admin, path, {"slug": f"walk-{number * 7 % 100:02}", **_prompt(number)})

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=lambda item: f"{path}/{item['slug']}", fields=("slug",)))


async def _prompt_versions(instance: Instance) -> Listed:
    path = "/api/agent/content/templates"
    await _create(instance.admin, path, {"slug": "versioned", **_prompt(99)})

    async def add(number: int) -> object:
        return await _create(instance.admin, f"{path}/versioned", _prompt(number), method="PUT")

    return await _fill(Listed(caller=instance.admin, path=f"{path}/versioned/versions", add=add, fields=("version",)))


async def _budgets(instance: Instance) -> Listed:
    path = "/api/agent/content/budgets"

    async def add(_: int) -> object:
        key = await instance.api_key("content.read")
        return await _create(instance.admin, f"{path}/keys/{key.key_id}", {"daily": 5}, method="PUT")

    def remove(item: Json) -> str | None:
        return None if item["key_id"] is None else f"{path}/keys/{item['key_id']}"

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=remove, fields=("key_id",)))


def _make_usage_entry(instance: Instance, number: int) -> UsageEntry:
    return UsageEntry(
        workspace_id=instance.workspace_id,
        day=f"2026-11-{20 + number % 2}",
        kind=UsageKind.GENERATION,
        key_id=f"key {number % 5}",
        model=f"model {number}",
    )


async def _usage(instance: Instance) -> Listed:
    async def add(number: int) -> None:
        await instance.rookery.db.write(lambda tx: instance.rookery.usage.ledger.add(tx, _make_usage_entry(instance, number)))

    return await _fill(Listed(caller=instance.admin, path="/api/agent/content/usage", add=add, fields=("day", "key_id", "model")))


async def _usage_report(instance: Instance) -> Listed:
    async def add(number: int) -> None:
        await instance.rookery.db.write(lambda tx: instance.rookery.usage.ledger.add(tx, _make_usage_entry(instance, number)))

    path = "/api/agent/usage?by=day,key,model&since=2026-11-01&until=2026-11-30"
    return await _fill(Listed(caller=instance.admin, path=path, add=add, fields=("day", "key_id", "model")))


async def _make_keys(instance: Instance, path: str, body: Json) -> Listed:
    async def add(_: int) -> object:
        return await _create(instance.admin, path, body)

    def remove(item: Json) -> str | None:
        return f"{path}/{item['id']}" if item["name"] == body["name"] else None

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=remove))


async def _api_keys(instance: Instance) -> Listed:
    return await _make_keys(instance, "/api/v1/api-keys", {"name": "walked", "scopes": ["brain:read"]})


async def _agent_keys(instance: Instance) -> Listed:
    return await _make_keys(instance, "/api/v1/agent-keys", {"name": "walked", "permissions": ["brain:read"]})


async def _make_calls(instance: Instance, key: Caller, path: str) -> Listed:
    async def add(_: int) -> None:
        assert (await key.get("/v1/brain/tags")).is_success

    return await _fill(Listed(caller=instance.admin, path=path, add=add, fields=("request_id",)))


async def _api_key_calls(instance: Instance) -> Listed:
    key = await instance.api_key("brain:read")
    return await _make_calls(instance, key, f"/api/v1/api-keys/{key.key_id}/usage")


async def _agent_key_calls(instance: Instance) -> Listed:
    key = await instance.agent_key("brain:read")
    return await _make_calls(instance, key, f"/api/v1/agent-keys/{key.key_id}/usage")


async def _workspaces(instance: Instance) -> Listed:
    path = "/api/v1/workspaces"

    async def add(number: int) -> object:
        return await _create(instance.admin, path, {"name": f"walked {number}"})

    def remove(item: Json) -> str | None:
        return f"{path}/{item['id']}" if str(item["name"]).startswith("walked") else None

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=remove))


async def _audit(instance: Instance) -> Listed:
    keys = await _api_keys(instance)
    return Listed(caller=instance.admin, path="/api/v1/audit", add=keys.add, fields=("seq",))


async def _webhooks(instance: Instance) -> Listed:
    path = "/api/v1/webhooks"

    async def add(number: int) -> object:
        return await _create(instance.admin, path, {"url": f"http://127.0.0.1:9/hook{number}", "events": ["plan.completed"]})

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=lambda item: f"{path}/{item['id']}"))


async def _deliveries(instance: Instance) -> Listed:
    hook = {"url": "http://127.0.0.1:9/hook", "events": ["plan.completed"]}
    path = f"/api/v1/webhooks/{(await _create(instance.admin, '/api/v1/webhooks', hook))['id']}"

    async def add(_: int) -> object:
        return await _create(instance.admin, f"{path}/test")

    return await _fill(Listed(caller=instance.admin, path=f"{path}/deliveries", add=add))


async def _event_types(instance: Instance) -> Listed:
    return Listed(caller=instance.admin, path="/api/v1/events", fields=("name",))


def _subscriber(number: int) -> Json:
    return {"external_id": f"reader-{number}", "channels": [{"type": "webhook", "url": f"http://127.0.0.1:9/{number}"}], "tags": ["walk"]}


async def _make_subscribers(caller: Caller) -> Listed:
    path = "/api/agent/notify/subscribers"

    async def add(number: int) -> object:
        return await _create(caller, path, _subscriber(number))

    return await _fill(Listed(caller=caller, path=path, add=add, remove=lambda item: f"{path}/{item['id']}"))


async def _subscribers(instance: Instance) -> Listed:
    return await _make_subscribers(instance.admin)


_CAMPAIGN: Json = {"name": "walked", "title": "News", "body": "It is out.", "audience": {"tags": ["walk"]}}


async def _campaigns(instance: Instance) -> Listed:
    path = "/api/agent/notify/campaigns"

    async def add(_: int) -> object:
        return await _create(instance.admin, path, _CAMPAIGN)

    return await _fill(Listed(caller=instance.admin, path=path, add=add, remove=lambda item: f"{path}/{item['id']}"))


async def _send_campaign(instance: Instance) -> tuple[Caller, str]:
    sandbox = await instance.api_key(environment="test")
    if not (await sandbox.get("/api/agent/notify/subscribers")).json()["data"]:
        await _make_subscribers(sandbox)
    path = f"/api/agent/notify/campaigns/{(await _create(sandbox, '/api/agent/notify/campaigns', _CAMPAIGN))['id']}"
    await _create(sandbox, f"{path}/send")

    async def is_sent() -> bool:
        return (await sandbox.get(path)).json()["status"] == "sent"

    await eventually(is_sent)
    return sandbox, path


async def _notifications(instance: Instance) -> Listed:
    sandbox, path = await _send_campaign(instance)
    return Listed(caller=sandbox, path=f"{path}/deliveries")


async def _outbox(instance: Instance) -> Listed:
    sandbox, _ = await _send_campaign(instance)
    return Listed(caller=sandbox, path="/api/agent/notify/outbox")


GROUPS: Mapping[str, Mapping[str, Callable[[Instance], Awaitable[Listed]]]] = {
    "memories": {
        "list_memories": _memories,
        "search_memories": _search,
        "get_agent_context": _agent_memories,
        "get_memory_history": _history,
        "list_recalls": _recalls,
    },
    "tools": {"list_added_servers": _servers, "list_tool_calls": _tool_calls},
    "plans": {
        "list_plans": _plans,
        "list_plan_events": _plan_events,
        "list_phases": _phases,
        "list_phase_tasks": _phase_tasks,
        "list_tasks": _tasks,
        "list_tasks, ready": _ready_tasks,
    },
    "agents": {
        "list_templates": _templates,
        "list_template_versions": _template_versions,
        "list_sessions": _sessions,
        "list_session_events": _session_events,
    },
    "content": {
        "list_generations": _generations,
        "list_generation_batches": _batches,
        "list_generations_of_batch": _batch_generations,
        "list_prompt_templates": _prompt_templates,
        "list_prompt_template_versions": _prompt_versions,
        "list_content_budgets": _budgets,
        "list_content_usage": _usage,
    },
    "usage": {"get_usage": _usage_report},
    "keys": {
        "list_api_keys": _api_keys,
        "list_api_key_calls": _api_key_calls,
        "list_agent_keys": _agent_keys,
        "list_agent_key_calls": _agent_key_calls,
        "list_workspaces": _workspaces,
        "list_audit_entries": _audit,
    },
    "webhooks": {"list_webhooks": _webhooks, "list_deliveries": _deliveries, "list_event_types": _event_types},
    "notifications": {
        "list_subscribers": _subscribers,
        "list_campaigns": _campaigns,
        "list_notifications": _notifications,
        "list_outbox": _outbox,
    },
}
"""Functions that fill each list, by operation."""

_SPACE: Json = {"project": "walk"}
TOOLS: Mapping[str, tuple[str, str, Json, str]] = {
    "list_memories": ("brain", "list", _SPACE, "memories"),
    "search_memories": ("brain", "search", {"query": "heron", **_SPACE}, "hits"),
    "list_plans": ("agents", "plan_list", {"org": "walk"}, "plans"),
    "list_tasks, ready": ("agents", "task_ready", {"plan": "ready"}, "tasks"),
    "list_templates": ("agents", "templates", {}, "templates"),
    "list_sessions": ("agents", "session_list", {}, "sessions"),
    "list_session_events": ("agents", "session_events", {}, "events"),
    "list_campaigns": ("notify", "campaign_list", {}, "campaigns"),
}
"""The MCP tools that are lists: their server, name, arguments and field of the entries, by the name of the list."""

each_group = pytest.mark.parametrize("group", GROUPS)


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as running:
        yield running


def test_each_list_is_walked_here(route_table: RouteTable) -> None:
    """A list of a new operation needs a function that fills it."""
    operations = [
        endpoint.route
        for endpoint in route_table.endpoints
        if (query := parse_signature(endpoint.route.handler).query) is not None and issubclass(query[1], CursorQuery)
    ]

    assert {operation.operation_id for operation in operations} == {name.partition(",")[0] for group in GROUPS.values() for name in group}


@each_group
async def test_a_walk_returns_each_entry_of_its_start_once(instance: Instance, group: str) -> None:
    """The entries of a page are deleted, and one is added, before the next page is read."""
    for name, fill in GROUPS[group].items():
        listed = await fill(instance)
        first = [listed.identify(item) for item in _read_items(listed, await listed.fetch(100))]
        assert len(first) == len(set(first)) >= _COUNT, name
        seen, cursor = list[tuple[object, ...]](), None
        for number in range(_MAX_PAGES):
            page = await listed.fetch(_SIZE, cursor)
            items = _read_items(listed, page)
            assert len(items) <= _SIZE
            seen += [listed.identify(item) for item in items]
            for item in items:
                path = listed.remove(item)
                if path is not None:
                    assert (await listed.caller.send("DELETE", path)).is_success, (name, path)
            if listed.add is not None:
                await listed.add(50 + number)
            cursor = _read_cursor(page)
            if cursor is None:
                break

        assert cursor is None, name
        assert len(seen) == len(set(seen)), name
        assert [entry for entry in seen if entry in set(first)] == first, name


def test_each_tool_that_is_a_list_is_walked_here() -> None:
    """A tool shows its cursor, and no number of a page beside it."""
    arguments = {str(tool["name"]): cast("Json", cast("Json", tool["inputSchema"])["properties"]).keys() for tool in catalogue()}

    assert {name for name, names in arguments.items() if "cursor" in names} == {
        f"{server}__{tool}" for server, tool, _, _ in TOOLS.values()
    }
    assert [name for name, names in arguments.items() if names & {"page", "offset"}] == []


@pytest.mark.parametrize("group", [group for group, lists in GROUPS.items() if lists.keys() & TOOLS.keys()])
async def test_a_walk_of_a_tool_returns_each_entry_once(instance: Instance, group: str) -> None:
    """The same over MCP, by `next_cursor` of the results; a page by number is accepted too."""
    for name in GROUPS[group].keys() & TOOLS.keys():
        listed, (server, tool, arguments, items_field) = await GROUPS[group][name](instance), TOOLS[name]
        if name == "list_session_events":
            arguments = Json(session_id=listed.path.split("/")[3])

        async def call(more: Json, server: str = server, tool: str = tool, arguments: Json = arguments, listed: Listed = listed) -> Json:
            body = {"server": server, "tool": tool, "arguments": {**arguments, listed.size: _SIZE, **more}}
            result = await _create(listed.caller, "/api/v1/mcp/tools/call", body)
            return cast("Json", cast("Json", result["result"])["structuredContent"])

        first = [listed.identify(item) for item in _read_items(listed, await listed.fetch(100))]
        second = await call({"offset": _SIZE} if listed.size == "limit" else {"page": 2})
        seen, more = list[tuple[object, ...]](), Json()
        for number in range(_MAX_PAGES):
            page = await call(more)
            items = cast("list[Json]", page[items_field])
            seen += [listed.identify(item) for item in items]
            for item in items:
                path = listed.remove(item)
                if path is not None:
                    assert (await listed.caller.send("DELETE", path)).is_success, (name, path)
            await cast("Callable[[int], Awaitable[object]]", listed.add)(50 + number)
            if page.get("next_cursor") is None:
                break
            more = {"cursor": page["next_cursor"]}

        assert [listed.identify(item) for item in cast("list[Json]", second[items_field])] == first[_SIZE : 2 * _SIZE], name
        assert [entry for entry in seen if entry in set(first)] == first, name
        assert len(seen) == len(set(seen)), name


@each_group
async def test_pages_by_number_are_as_before(instance: Instance, group: str) -> None:
    """The same entries in the same order, with links by number; a page asked for by a cursor links to the next one by a cursor."""
    for name, fill in GROUPS[group].items():
        listed = await fill(instance)
        whole = [listed.identify(item) for item in _read_items(listed, await listed.fetch(100))]
        first = await listed.fetch(_SIZE)
        skip: Json = {"offset": _SIZE} if listed.size == "limit" else {"page": 2}
        by_number, by_cursor = await listed.fetch(_SIZE, more=skip), await listed.fetch(_SIZE, _read_cursor(first))

        assert [listed.identify(item) for item in _read_items(listed, first)] == whole[:_SIZE], name
        assert (
            [listed.identify(item) for item in _read_items(listed, by_number)]
            == [listed.identify(item) for item in _read_items(listed, by_cursor)]
            == whole[_SIZE : 2 * _SIZE]
        ), name
        if "links" in first:
            links, later = cast("dict[str, str]", first["links"]), cast("dict[str, str]", by_cursor["links"])
            assert links["next"].endswith("page=2"), name
            assert f"cursor={_read_cursor(by_cursor)}" in later["next"], name
            assert {**cast("Json", by_number["meta"]), "next_cursor": None} == {**cast("Json", by_cursor["meta"]), "next_cursor": None}


@each_group
async def test_a_cursor_that_the_list_did_not_return_is_rejected(instance: Instance, group: str) -> None:
    """Broken ones, ones with other values, those of other filters, and a cursor beside a number of a page."""
    for name, fill in GROUPS[group].items():
        listed = await fill(instance)
        cursor = _read_cursor(await listed.fetch(_SIZE)) or ""
        content = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        digest, values = content[:_DIGEST_BYTES], cast("list[object]", orjson.loads(content[_DIGEST_BYTES:]))
        wrong: list[object] = [[], [1], [0, *values[1:]], values[:-1], [*values, 1], [1, *([{}] * (len(values) - 1))], {"a": 1}]
        wrong += [[*values[:place], 5 if isinstance(value, str) else "x", *values[place + 1 :]] for place, value in enumerate(values)]
        wrong += [[*values[:place], "a\0b", *values[place + 1 :]] for place, value in enumerate(values) if isinstance(value, str)]
        wrong += [[*values[:place], 2**63, *values[place + 1 :]] for place, value in enumerate(values) if isinstance(value, int)]

        assert "at least 1" in await listed.reject(cursor=""), name
        for broken in ("x", "%C3%A9", cursor[:-3], cursor[1:], "A" * 1000):
            assert "not a cursor that this list returned" in await listed.reject(cursor=broken), (name, broken)
        for other in wrong:
            forged = urlsafe_b64encode(digest + orjson.dumps(other)).rstrip(b"=").decode()
            assert "cursor that this list returned" in await listed.reject(cursor=forged), (name, other)
        foreign = urlsafe_b64encode(bytes(_DIGEST_BYTES) + content[_DIGEST_BYTES:]).rstrip(b"=").decode()
        assert "belongs to another list" in await listed.reject(cursor=foreign), name
        skip: Json = {"offset": 1} if listed.size == "limit" else {"page": 2}
        assert "cannot be combined with" in await listed.reject(cursor=cursor, **skip), name
