"""Idempotency-Key and the work are one transaction: no crash leaves the one without the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import func, select, text

from rookery.app import build_route_table
from rookery.kernel.db import metadata
from rookery.kernel.secret import Secret
from rookery.wiring import build_platform
from tests.chat_service import run_chat_service
from tests.conftest import Caller, Instance, Settings, eventually

_HOOK = "http://[2a00:ffff::1]/hook"
_PHASE = {"name": "build", "tasks": [{"name": "one"}, {"name": "two"}, {"name": "three"}]}

BODIES: dict[str, object] = {
    "POST /v1/brain/remember": {"type": "fact", "content": "a"},
    "POST /v1/brain/remember/batch": {"memories": [{"type": "fact", "content": "b"}, {"content": 1}]},
    "POST /api/v1/api-keys": {"name": "made", "scopes": ["brain:read"]},
    "POST /api/v1/api-keys/{api_key}/rotate": {"grace_period_hours": 1},
    "POST /api/v1/agent-keys": {"name": "made", "permissions": ["brain:read"]},
    "POST /api/v1/agent-keys/{agent_key}/rotate": {"grace_period_hours": 1},
    "POST /api/v1/servers": {"id": "made", "url": "http://[2a00:ffff::1]/mcp", "enabled": False},
    "POST /api/v1/workspaces": {"name": "made"},
    "POST /api/v1/workspaces/{workspace}/api-keys": {"name": "made", "scopes": ["brain:read"]},
    "POST /api/v1/webhooks": {"url": _HOOK, "events": ["key.created"], "enabled": False},
    "POST /api/v1/webhooks/{webhook}/rotate-secret": {"grace_period_hours": 1},
    "POST /api/v1/webhooks/{webhook}/test": None,
    "POST /api/v1/webhooks/{webhook}/deliveries/{delivery}/resend": None,
    "POST /v1/plans": {"title": "made", "phases": [_PHASE]},
    "POST /v1/plans/{plan}/phases": {"name": "made"},
    "POST /v1/plans/{plan}/phases/1/checkpoints": {"note": "made"},
    "POST /v1/plans/{plan}/phases/1/tasks": {"name": "made"},
    "POST /v1/tasks/claim-next": {"plan": "whole"},
    "POST /v1/tasks/{task}/claim": {},
    "POST /v1/tasks/{task}/release": {"force": True},
    "POST /v1/tasks/{task}/complete": {"force": True},
    "POST /v1/tasks/{hopeless}/fail": {"force": True, "error": "made"},
    "POST /v1/templates": {"slug": "made", "name": "made", "phases": [{"name": "a"}]},
    "POST /v1/templates/{template}/copies": {"slug": "copied"},
    "POST /v1/templates/{template}/plans": {"variables": {}},
    "POST /v1/sessions": {"agent_type": "made", "agent_id": "made"},
    "POST /v1/sessions/{session}/events": {"message": "made"},
    "POST /v1/sessions/{session}/resume": {"takeover": True},
    "POST /v1/sessions/{done}/end": {},
    "POST /v1/plans/{plan}/archive": {},
    "POST /v1/plans/{plan}/restore": {},
    "POST /v1/notify/subscribers": {"external_id": "made"},
    "POST /v1/notify/campaigns": {"name": "made", "title": "a", "body": "a", "audience": {}},
    "POST /v1/notify/campaigns/{draft}/duplicate": {},
    "POST /v1/notify/campaigns/{draft}/test": {"subscribers": ["given"]},
    "POST /v1/notify/campaigns/{draft}/send": None,
    "POST /v1/notify/campaigns/{scheduled}/schedule": {"at": "2031-02-01T00:00"},
    "POST /v1/notify/campaigns/{scheduled}/unschedule": None,
    "POST /v1/notify/campaigns/{sending}/pause": None,
    "POST /v1/notify/campaigns/{paused}/resume": None,
    "POST /v1/notify/campaigns/{cancellable}/cancel": None,
    "POST /v1/notify/webhook-secret/rotate": {},
    "POST /v1/content/generations": {"prompt": "made", "model": "hang", "mode": "queued"},
    "POST /v1/content/generations/{generation}/retry": None,
    "POST /v1/content/batches": {"requests": [{"prompt": "made", "model": "hang"}]},
    "POST /v1/content/templates": {"slug": "made", "name": "made", "prompt": "made"},
    # The last one: the campaign fails again at some time after it, which is audited.
    "POST /v1/notify/campaigns/{failed}/retry": None,
}
"""One request for each route that accepts the header; /api/agent has the same handlers as /v1."""

_RAISE = "RAISE EXCEPTION 'refused by the test' USING ERRCODE = '53400'"
_MANY_TRANSACTIONS = {"POST /api/v1/webhooks/{webhook_id}/resend-failed"}
"""Resends failed deliveries in batches. A repetition finds only those that are still failed, so it needs no stored response."""

_BACKGROUND_TABLES = {
    *("kept_answers", "access_calls", "access_days", "access_use", "webhook_attempts", "notify_attempts"),
    *("usage_days", "jobs", "memory_active_models", "memory_vector_sets"),
}
"""Tables that change independently of the requests: claims, usage, delivery attempts, usage of queued generations, background
jobs, the models of indexed memories."""


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """Settings of a server with a language model. Queued calls hang, so that they change nothing during a test."""
    with run_chat_service() as provider:
        yield replace(settings, generation=Secret(provider.url()))


def _normalize(name: str) -> str:
    """Return a route's name with every parameter as `{}`."""
    return "/".join("{}" if part.startswith("{") or part == "1" else part for part in name.split("/"))


def test_the_list_has_every_route_that_accepts_the_header(settings: Settings) -> None:
    """BODIES is complete, so that a new route is tested too."""
    routes = {
        f"POST {endpoint.path}" for endpoint in build_route_table(build_platform(settings)).endpoints if endpoint.idempotency is not None
    }
    shapes = {_normalize(name) for name in routes - _MANY_TRANSACTIONS if not name.startswith("POST /api/agent/")}

    assert {_normalize(name) for name in BODIES} == shapes


@asynccontextmanager
async def _reject_stored_responses(instance: Instance, row: str = "NEW") -> AsyncGenerator[None]:
    """
    Let the record store reject responses to requests with a key until the block ends.

    Args:
        row: NEW rejects every response. OLD rejects one that replaces a stored row, as if the process had died before.
    """
    db = instance.rookery.db
    if db.dialect == "sqlite":
        setup = [
            f"CREATE TRIGGER refuse BEFORE UPDATE ON kept_answers WHEN {row}.owner IS NULL BEGIN SELECT abs(-9223372036854775808); END"
        ]
        teardown = ["DROP TRIGGER refuse"]
    else:
        setup = [
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {_RAISE}; END $$",
            f"CREATE TRIGGER refuse BEFORE UPDATE ON kept_answers FOR EACH ROW WHEN ({row}.owner IS NULL) EXECUTE FUNCTION refuse()",
        ]
        teardown = ["DROP TRIGGER refuse ON kept_answers", "DROP FUNCTION refuse()"]
    for statement in setup:
        await db.write(lambda tx, statement=statement: tx.execute(text(statement)))
    try:
        yield
    finally:
        teardown.append("UPDATE kept_answers SET until = 0 WHERE owner IS NOT NULL")  # expire the lease
        for statement in teardown:
            await db.write(lambda tx, statement=statement: tx.execute(text(statement)))


async def _counts(instance: Instance) -> dict[str, int]:
    """Return the number of rows of each table."""
    tables = [table for table in metadata.tables.values() if table.name not in _BACKGROUND_TABLES]
    statements = {table.name: select(func.count().label("n")).select_from(table) for table in tables}
    return await instance.rookery.db.read(
        lambda tx: {name: tx.fetch_all(statement)[0].integer("n") for name, statement in statements.items()}
    )


async def _is_held(caller: Caller, webhook: str, delivery: str) -> bool:
    return (await caller.get(f"/api/v1/webhooks/{webhook}/deliveries/{delivery}")).json()["state"] == "held"


async def _create_campaigns(admin: Caller) -> dict[str, str]:
    """Create a campaign in each status that a path needs."""
    person = {"external_id": "given", "channels": [{"type": "webhook", "url": _HOOK}], "attributes": {"link": "no URL"}}
    assert (await admin.post("/v1/notify/subscribers", person)).status_code == 201
    slow: dict[str, object] = {"name": "a", "title": "a", "body": "a", "audience": {"all": True}, "rate_per_second": 0.01}
    fields: dict[str, dict[str, object]] = {
        "draft": {**slow, "audience": {}},
        "failed": {**slow, "url": "{{ link }}", "rate_per_second": None},
        **dict.fromkeys(("scheduled", "sending", "paused", "cancellable"), slow),
    }
    ids = {name: (await admin.post("/v1/notify/campaigns", body)).json()["id"] for name, body in fields.items()}
    await admin.post(f"/v1/notify/campaigns/{ids['scheduled']}/schedule", {"at": "2031-01-01T00:00"})
    for name in ("sending", "paused", "cancellable", "failed"):
        assert (await admin.post(f"/v1/notify/campaigns/{ids[name]}/send")).status_code == 202
    await admin.post(f"/v1/notify/campaigns/{ids['paused']}/pause")
    await eventually(lambda: _is_failed(admin, ids["failed"]))
    return ids


async def _is_failed(caller: Caller, campaign: str) -> bool:
    return (await caller.get(f"/v1/notify/campaigns/{campaign}")).json()["status"] == "failed"


async def _create_resources(instance: Instance) -> dict[str, str]:
    """Create the resources that the paths name."""
    admin = instance.admin
    plan = (await admin.post("/v1/plans", {"title": "whole", "status": "active", "phases": [_PHASE]})).json()
    tasks = [task["id"] for task in plan["phases"][0]["tasks"]]
    webhook = (await admin.post("/api/v1/webhooks", {"url": _HOOK, "events": ["key.created"]})).json()["id"]
    delivery = (await admin.post(f"/api/v1/webhooks/{webhook}/test")).json()["id"]
    await admin.send("PATCH", f"/api/v1/webhooks/{webhook}", {"enabled": False})
    await eventually(lambda: _is_held(admin, webhook, delivery))
    await admin.send("PATCH", f"/api/v1/webhooks/{webhook}", {"enabled": True})
    await admin.post("/v1/templates", {"slug": "given", "name": "given", "phases": [{"name": "a"}]})
    failed = (await admin.post("/v1/content/generations", {"prompt": "given", "model": "413"})).json()["generation_id"]
    return {
        **await _create_campaigns(admin),
        "generation": failed,
        "plan": plan["id"],
        "task": tasks[2],
        "hopeless": (await admin.post(f"/v1/plans/{plan['id']}/phases/1/tasks", {"name": "hopeless"})).json()["id"],
        "done": (await admin.post("/v1/sessions", {"agent_type": "x", "agent_id": "done"})).json()["session"]["id"],
        "webhook": webhook,
        "delivery": delivery,
        "template": "given",
        "workspace": str(instance.workspace_id),
        "session": (await admin.post("/v1/sessions", {"agent_type": "x", "agent_id": "x"})).json()["session"]["id"],
        "api_key": (await admin.post("/api/v1/api-keys", {"name": "old", "scopes": ["brain:read"]})).json()["id"],
        "agent_key": (await admin.post("/api/v1/agent-keys", {"name": "old", "permissions": ["brain:read"]})).json()["id"],
    }


async def test_no_work_is_committed_without_its_response(instance: Instance) -> None:
    """On every route with the header, one transaction does the work and stores the response."""
    ids = await _create_resources(instance)
    instance.admin = await instance.api_key("*", "platform:workspaces")
    for number, (name, body) in enumerate(BODIES.items()):
        path, headers = name.split()[1].format(**ids), {"Idempotency-Key": f"m{number}"}
        before = await _counts(instance)
        async with _reject_stored_responses(instance):
            failed = await instance.admin.post(path, body, **headers)
        assert failed.status_code >= 400, name
        assert await _counts(instance) == before, name

        first, repeated = [await instance.admin.post(path, body, **headers) for _ in range(2)]

        assert first.is_success, (name, first.text)
        assert "idempotent-replay" not in first.headers, name
        if repeated.status_code == 409:
            assert repeated.json()["error"] == "secret_already_shown", name
            assert repeated.json()["id"] == first.json()["id"], name
        else:
            assert (repeated.headers["idempotent-replay"], repeated.text) == ("true", first.text), name


@pytest.mark.parametrize("path", ["/v1/sessions", "/api/v1/servers"])
async def test_a_repetition_after_a_crash_builds_the_response_from_the_resource(instance: Instance, path: str) -> None:
    """Some transactions store only the id of the created resource; a repetition builds the response from it."""
    body, headers = BODIES[f"POST {path}"], {"Idempotency-Key": "m"}
    async with _reject_stored_responses(instance, "OLD"):
        first = await instance.admin.post(path, body, **headers)
    repeated = await instance.admin.post(path, body, **headers)

    assert first.status_code == 201, first.text
    assert (repeated.status_code, repeated.headers["idempotent-replay"]) == (201, "true")
    assert repeated.json() == first.json()
