"""Reads everything that clients get from a server, so that the answers of two versions can be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import cast

import httpx2

from tests.upgrade_check.contents import AGENT, FACTS, FACTS_ORG, ORG, Contents
from tests.upgrade_check.versions import RunningServer

Json = dict[str, object]
Readings = dict[str, object]

WORDS = ("oven", "crane AND library", '"two people"', "n0042", "telescope -museum", "storm", "cellar spare", "gate nine")
FAILED = "request failed:"
"""The start of an answer that is an error and should be none."""

_PAGE = 100
_NOT_FOUND, _INVALID = 404, 422
_CHANGING = frozenset(
    # changes with each request, or with the time
    ("call_count", "last_used_at", "last_used_ip", "took_ms", "recall_id", "effective_confidence", "expires_in_s", "age_s", "recall_count",
     "last_recalled_at", "access_count", "last_accessed_at", "seconds", "updated_at_ms", "last_seen_at", "last_activity_at", "health",
     "last_error", "checked_at", "last_success_at", "links", "score", "idle_s", "indexed")
)  # fmt: skip
_PROBES = (
    "/api/v1/whoami",
    "/v1/brain/tags",
    "/api/v1/mcp/servers",
    "/v1/plans",
    "/api/v1/audit",
    "/api/v1/agent-keys",
    "/v1/brain/memories?org=other",
)


def read_all(server: RunningServer, contents: Contents) -> Readings:
    """Return everything that two versions have to answer in the same way, by the name of the comparison."""
    readings: Readings = {}
    for name, key in contents.keys.items():
        with server.connect(key) as client:
            readings |= _read_key(name, client, next(iter(contents.memory_ids)))
    with server.connect() as client:
        for name, read in _list_readings(contents).items():
            try:
                readings[name] = read(client)
            except httpx2.HTTPStatusError as error:
                readings[name] = f"{FAILED} {error.response.status_code} {error.response.text[:200]}"
    return {name: value for name, value in readings.items() if not any(name.startswith(kind) for kind in contents.absent)}


def _read_key(name: str, client: httpx2.Client, memory: str) -> Readings:
    answers = [_describe(client.get(path)) for path in (*_PROBES, f"/v1/brain/memories/{memory}")]
    answers.append(_describe(client.post("/v1/brain/remember", json={})))
    answers.append(_describe(client.post("/api/v1/mcp/tools/call", json={"server": "echo", "tool": "authorization"})))
    answers.append(_describe(client.post("/api/v1/mcp/tools/call", json={"server": "variable", "tool": "secret"})))
    whoami = client.get("/api/v1/whoami")
    described = _strip(whoami.json()) if whoami.is_success else whoami.status_code
    return {
        f"key '{name}': statuses of 11 requests": answers,
        f"key '{name}': what it is": {"body": described, "limit": whoami.headers.get("x-ratelimit-limit")},
    }


def _describe(response: httpx2.Response) -> str:
    body = cast("object", response.json()) if response.content and "json" in response.headers.get("content-type", "") else None
    code = cast("Json", body).get("error") if isinstance(body, dict) and not response.is_success else None
    return f"{response.status_code} {code or ''}".strip()


def _list_readings(contents: Contents) -> dict[str, Callable[[httpx2.Client], object]]:
    return {
        "memories: every one with its fields": lambda client: _read_list(client, "/v1/brain/memories", org=ORG, per_page=_PAGE),
        "memories: agent's own": lambda client: _read_list(client, f"/v1/brain/agent/{AGENT}/context", per_page=_PAGE),
        "memories: of a session": lambda client: _read_list(
            client, "/v1/brain/memories", session_id=contents.session, memory_scope="session"
        ),
        "memories: archived": lambda client: _read_list(client, "/v1/brain/memories", org=ORG, state="archived"),
        "memories: history": lambda client: _read(client, f"/v1/brain/memories/{contents.replaced_memory}/history"),
        "memories: tags": lambda client: _read(client, "/v1/brain/tags", org=ORG),
        "memories: orgs and projects": lambda client: _read(client, "/v1/brain/scopes", org=ORG),
        "memories: boot of an agent": lambda client: _read_ids(client, f"/v1/brain/agent/{AGENT}/boot", org=ORG, project="mill"),
        "recall: search by words": lambda client: [_read_found(client, words) for words in WORDS],
        "recall: semantic, in order": lambda client: [_recall(client, question, "semantic") for question in FACTS],
        "recall: keyword, best answer": lambda client: [_recall(client, question, "keyword")[:1] for question in FACTS],
        "recall: hybrid, best answer": lambda client: [_recall(client, question, "hybrid")[:1] for question in FACTS],
        "recall: semantic in a project": lambda client: [_recall(client, question, "semantic", project="office") for question in FACTS],
        "sandbox: memories of test keys": lambda client: _read_other(client, contents.keys["sandbox"], "/v1/brain/memories"),
        "other workspace: memories": lambda client: _read_other(client, contents.keys["other workspace"], "/v1/brain/memories"),
        "plans: list": lambda client: _read_list(client, "/v1/plans"),
        "plans: phases and tasks": lambda client: _read(client, f"/v1/plans/{contents.plan}"),
        "plans: graph": lambda client: _read(client, f"/v1/plans/{contents.plan}/graph"),
        "plans: events": lambda client: _read(client, f"/v1/plans/{contents.plan}/events"),
        "plans: as Markdown": lambda client: client.get(f"/v1/plans/{contents.plan}.md").raise_for_status().text,
        "plans: claimed task": lambda client: _read(client, f"/v1/tasks/{contents.task}"),
        "templates: of the workspace": lambda client: _read(client, "/v1/templates/hotfix"),
        "templates: versions": lambda client: _read_list(client, "/v1/templates/hotfix/versions"),
        "templates: copy of a built-in one": lambda client: _read(client, "/v1/templates/our-bug-fix"),
        "templates: preview": lambda client: _read_posted(client, "/v1/templates/hotfix/preview", {"variables": {"target": "tea"}}),
        "sessions: list": lambda client: _read_list(client, "/v1/sessions"),
        "sessions: one": lambda client: _read(client, f"/v1/sessions/{contents.session}"),
        "sessions: events": lambda client: _read(client, f"/v1/sessions/{contents.session}/events"),
        "servers: of the workspace": lambda client: _read_list(client, "/api/v1/servers"),
        "servers: tools": lambda client: [_read(client, f"/api/v1/mcp/servers/{name}/tools") for name in ("echo", "variable")],
        "servers: secret of the workspace": lambda client: _call(client, "echo", "authorization"),
        "servers: secret of the environment": lambda client: _call(client, "variable", "secret"),
        "servers: switched off": lambda client: _describe(client.post("/api/v1/mcp/servers/resting/tools/authorization", json={})),
        "keys: API keys": lambda client: _read_list(client, "/api/v1/api-keys", per_page=_PAGE),
        "keys: agent keys": lambda client: _read_list(client, "/api/v1/agent-keys", per_page=_PAGE),
        "workspaces": lambda client: _read_fields(client, "/api/v1/workspaces", "workspace_id", "name"),
        "webhooks: endpoints": lambda client: _read_list(client, "/api/v1/webhooks"),
        "webhooks: held delivery": lambda client: _read(client, f"/api/v1/webhooks/{contents.held}/deliveries/{contents.held_delivery}"),
        "subscribers": lambda client: _read_list(client, "/api/agent/notify/subscribers"),
        "campaigns": lambda client: _read_list(client, "/api/agent/notify/campaigns"),
        "prompt templates": lambda client: _read_list(client, "/api/agent/content/templates"),
    }


def _read(client: httpx2.Client, path: str, **query: str | int) -> object:
    return _strip(client.get(path, params=query).raise_for_status().json())


def _read_posted(client: httpx2.Client, path: str, body: Mapping[str, object]) -> object:
    return _strip(client.post(path, json=dict(body)).raise_for_status().json())


def _read_list(client: httpx2.Client, path: str, **query: str | int) -> object:
    """Return the elements of all pages, or None where the version has no such list."""
    try:
        return _strip(list_elements(client, path, **query))
    except LookupError:
        return None


def _read_fields(client: httpx2.Client, path: str, *names: str) -> object:
    """Return these fields of the elements of all pages, for a list whose elements have others in one version only."""
    return [{name: element[name] for name in names} for element in list_elements(client, path)]


def list_elements(client: httpx2.Client, path: str, **query: str | int) -> list[Json]:
    """
    Return the elements of all pages of a list.

    Raises:
        LookupError: The version has no such list.
    """
    elements: list[Json] = []
    page = 1
    while True:
        response = client.get(path, params={**query, **({"page": page} if page > 1 else {})})
        if response.status_code == _NOT_FOUND:
            raise LookupError(path)
        body = cast("object", response.raise_for_status().json())
        fields = cast("Json", body) if isinstance(body, dict) else {"data": body}
        data = fields.get("data", fields)
        elements.extend(cast("list[Json]", data) if isinstance(data, list) else [cast("Json", data)])
        meta = fields.get("meta")
        total = cast("Json", meta).get("total") if isinstance(meta, dict) else None
        if not isinstance(total, int) or len(elements) >= total or not data:
            return elements
        page += 1


def _read_other(client: httpx2.Client, key: str, path: str) -> object:
    with httpx2.Client(
        base_url=client.base_url, headers={"Authorization": f"Bearer {key}"}, timeout=client.timeout, trust_env=False
    ) as other:
        return _read_list(other, path)


def _read_ids(client: httpx2.Client, path: str, **query: str | int) -> object:
    body = cast("Json", client.get(path, params=query).raise_for_status().json())
    return {name: sorted(_ids(cast("object", part))) for name, part in body.items() if isinstance(part, list)}


def _read_found(client: httpx2.Client, words: str) -> object:
    body = cast("Json", client.get("/v1/brain/search", params={"q": words, "org": ORG, "limit": 20}).raise_for_status().json())
    return {"total": body["total"], "ids": _ids(body["hits"])}


def _recall(client: httpx2.Client, question: str, mode: str, **filters: str) -> list[str]:
    body = {"query": question, "mode": mode, "org": FACTS_ORG, "top_k": 5, "min_relevance": 0, **filters}
    response = client.post("/v1/brain/recall", json=body)
    if response.status_code == _INVALID:
        response = client.post("/v1/brain/recall", json={name: value for name, value in body.items() if name != "min_relevance"})
    return _ids(cast("Json", response.raise_for_status().json())["memories"])


def _call(client: httpx2.Client, server: str, tool: str) -> object:
    body = cast("Json", client.post("/api/v1/mcp/tools/call", json={"server": server, "tool": tool}).raise_for_status().json())
    return cast("list[Json]", cast("Json", body["result"])["content"])[0]["text"]


def _ids(elements: object) -> list[str]:
    return [str(element["id"]) for element in cast("list[Json]", elements)]


def _strip(value: object) -> object:
    """Return the value without what changes with the time or with each request."""
    if isinstance(value, dict):
        return {name: _strip(part) for name, part in cast("Json", value).items() if name not in _CHANGING}
    if isinstance(value, list):
        return [_strip(part) for part in cast("Iterable[object]", value)]
    return value
