"""Webhooks never send data that the key may not read."""

from __future__ import annotations

from typing import cast

from rookery.access.models import KeyRestrictions
from tests.conftest import Caller, Instance
from tests.webhooks.makers import CATALOGUE

HOOKS = "/api/v1/webhooks"
UNREACHABLE = "http://[2a00:ffff::1]/hook"


async def create_webhook(caller: Caller, *events: str, status: int = 201) -> dict[str, object]:
    """Create a disabled endpoint, which must return *status*."""
    response = await caller.post(HOOKS, {"url": UNREACHABLE, "events": list(events), "enabled": False})
    assert response.status_code == status, response.text
    return cast("dict[str, object]", response.json())


def test_every_event_type_needs_exactly_one_scope() -> None:
    """The scope is that of the GET whose response the event contains."""
    assert all(CATALOGUE.list_scopes([name]) == [event_type.scope] for name, event_type in CATALOGUE.by_name.items())
    assert CATALOGUE.list_scopes(["memory.*", "memory.stored", "plan.*", "task.failed"]) == ["brain:read", "plans.read"]
    assert set(CATALOGUE.list_scopes(["*"])) == {event_type.scope for event_type in CATALOGUE.types}


async def test_a_key_subscribes_to_what_it_may_read(instance: Instance) -> None:
    """A webhook cannot receive data that its key may not read."""
    webhooks_only, reader = await instance.api_key("webhooks:*"), await instance.api_key("webhooks:*", "brain:read")

    for events in (["memory.*"], ["*"], ["webhook.*", "memory.stored"]):
        assert (await create_webhook(webhooks_only, *events, status=403))["required_scope"] == "brain:read"
    assert (await create_webhook(reader, "memory.*", "plan.*", status=403))["required_scope"] == "plans.read"
    assert await create_webhook(webhooks_only, "webhook.*")
    assert await create_webhook(reader, "memory.*")


async def test_a_key_without_read_scope_can_change_only_harmless_fields(instance: Instance) -> None:
    """Before and after: address, events and content need the scopes of the current and the new events."""
    webhooks_only, webhook = await instance.api_key("webhooks:*"), await create_webhook(instance.admin, "memory.*")
    path = f"{HOOKS}/{webhook['id']}"

    for change in ({"url": f"{UNREACHABLE}2"}, {"events": ["webhook.*"]}, {"include_content": True}):
        rejected = await webhooks_only.send("PATCH", path, change)
        assert (rejected.status_code, rejected.json()["required_scope"]) == (403, "brain:read")
    changed = await webhooks_only.send("PATCH", path, {"description": "Ours.", "concurrency": 1, "url": UNREACHABLE})

    assert (changed.status_code, changed.json()["description"], changed.json()["url"]) == (200, "Ours.", UNREACHABLE)


async def test_the_body_of_a_delivery_needs_the_read_scope(instance: Instance) -> None:
    """The body of a delivery contains the resource; readers of the log see only that it exists."""
    webhooks_only, webhook = await instance.api_key("webhooks:*"), await create_webhook(instance.admin, "memory.*")
    await instance.admin.remember("Confidential.")
    log = f"{HOOKS}/{webhook['id']}/deliveries"

    deliveries = (await webhooks_only.get(log)).json()["data"]
    rejected = await webhooks_only.get(f"{log}/{deliveries[0]['id']}")

    assert [delivery["type"] for delivery in deliveries] == ["memory.stored"]
    assert (rejected.status_code, rejected.json()["required_scope"]) == (403, "brain:read")
    assert (await instance.admin.get(f"{log}/{deliveries[0]['id']}")).status_code == 200


_ACME = frozenset({"acme"})


async def test_a_key_with_an_allow_list_cannot_use_webhooks(instance: Instance) -> None:
    """A webhook gets events of the whole workspace, past any allow-list."""
    webhook = await create_webhook(instance.admin, "webhook.*")

    for restrictions in (
        KeyRestrictions(orgs=_ACME),
        KeyRestrictions(projects=_ACME),
        KeyRestrictions(servers=_ACME),
        KeyRestrictions(tools=("acme/*",)),
    ):
        limited = await instance.api_key("*", restrictions=restrictions)
        await create_webhook(limited, "webhook.*", status=403)
        for path in (HOOKS, f"{HOOKS}/{webhook['id']}", f"{HOOKS}/{webhook['id']}/deliveries"):
            assert (await limited.get(path)).json()["error"] == "permission_denied", f"{restrictions} {path}"


async def test_a_key_of_one_agent_needs_brain_admin_for_memory_events(instance: Instance) -> None:
    """A webhook gets memories of all agents, which such a key may read only with brain:admin; so does its log."""
    agent_key = await instance.api_key("webhooks:*", "brain:read", "plans.read", agent_id="bee")
    admin_key = await instance.api_key("webhooks:*", "brain:read", "brain:admin", agent_id="bee")
    webhook = await create_webhook(instance.admin, "memory.*")
    await instance.admin.remember("Mine alone.", agent_id="wasp", memory_scope="agent")
    log = f"{HOOKS}/{webhook['id']}/deliveries"
    delivery_id = (await instance.admin.get(log)).json()["data"][0]["id"]

    assert (await create_webhook(agent_key, "memory.*", status=403))["required_scope"] == "brain:admin"
    assert (await agent_key.get(f"{log}/{delivery_id}")).status_code == 403
    assert await create_webhook(agent_key, "plan.*")
    assert await create_webhook(admin_key, "memory.*")
    assert (await admin_key.get(f"{log}/{delivery_id}")).status_code == 200


async def test_a_key_without_read_scope_cannot_redirect_past_deliveries(instance: Instance) -> None:
    """The log of an endpoint can be resent to its new address, so the address needs the scopes of past events too."""
    webhooks_only, webhook = await instance.api_key("webhooks:*"), await create_webhook(instance.admin, "memory.*")
    path = f"{HOOKS}/{webhook['id']}"
    await instance.admin.remember("Confidential.")
    assert (await instance.admin.send("PATCH", path, {"events": ["webhook.*"]})).status_code == 200

    rejected = await webhooks_only.send("PATCH", path, {"url": f"{UNREACHABLE}2"})

    assert (rejected.status_code, rejected.json()["required_scope"]) == (403, "brain:read")
    assert (
        await webhooks_only.send("PATCH", f"{HOOKS}/{(await create_webhook(webhooks_only, 'webhook.*'))['id']}", {"url": f"{UNREACHABLE}2"})
    ).status_code == 200
    assert (await instance.admin.send("PATCH", path, {"url": f"{UNREACHABLE}2"})).status_code == 200


async def test_tokens_in_urls_need_the_write_scope(instance: Instance) -> None:
    """Many services put a token into the query or the path. Readers, events and the audit log have neither."""
    token = "tkn4aXq81LzPw03MbYs7"
    urls = (f"{UNREACHABLE}?key={token}", f"http://[2a00:ffff::1]/services/T1/{token}")
    ids = [str((await instance.admin.send("POST", HOOKS, _new_webhook(url))).json()["id"]) for url in urls]
    reader, writer = await instance.api_key("webhooks:read", "audit:read"), await instance.api_key("webhooks:read", "webhooks:write")

    for path in (HOOKS, *(f"{HOOKS}/{webhook_id}" for webhook_id in ids)):
        hidden, shown = await reader.get(path), await writer.get(path)
        assert (hidden.status_code, token in hidden.text, "***" in hidden.text) == (200, False, True)
        assert (shown.status_code, token in shown.text) == (200, True)
    assert (await reader.get(f"{HOOKS}?q={token[:4]}")).json()["data"] == [], "a search does not reveal a token letter by letter"
    assert len((await writer.get(f"{HOOKS}?q={token[:4]}")).json()["data"]) == 2
    assert token not in (await instance.admin.get("/api/v1/audit?action=webhook.created")).text


def _new_webhook(url: str) -> dict[str, object]:
    return {"url": url, "events": ["webhook.*"], "enabled": False}
