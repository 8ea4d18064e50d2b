"""Webhooks never send data that the key may not read (D-23, D-24)."""

from __future__ import annotations

from typing import cast

from rookery.access.models import KeyRestrictions
from rookery.webhooks.event_types import EVENT_TYPES_BY_NAME, list_scopes
from tests.conftest import Caller, Instance

HOOKS = "/api/v1/webhooks"
NOWHERE = "http://[2a00:ffff::1]/hook"


async def make(caller: Caller, *events: str, status: int = 201) -> dict[str, object]:
    """Try to make a disabled endpoint."""
    answer = await caller.post(HOOKS, {"url": NOWHERE, "events": list(events), "enabled": False})
    assert answer.status_code == status, answer.text
    return cast("dict[str, object]", answer.json())


def test_every_event_is_read_by_some_scope() -> None:
    """D-24: the scope is that of the GET whose answer an event's data is; `*` takes them all but tool.called's, which is its own."""
    assert all(len(list_scopes([name])) == 1 for name in EVENT_TYPES_BY_NAME)
    assert list_scopes(["memory.*", "memory.stored", "plan.*", "task.failed"]) == ["brain:read", "plans.read"]
    assert set(list_scopes(["*"])) == {scope for name in EVENT_TYPES_BY_NAME for scope in list_scopes([name])}


async def test_a_key_subscribes_to_what_it_may_read(instance: Instance) -> None:
    """D-24: a key hands on no more than it holds, to a webhook neither."""
    hooks, reader = await instance.api_key("webhooks:*"), await instance.api_key("webhooks:*", "brain:read")

    for events in (["memory.*"], ["*"], ["webhook.*", "memory.stored"]):
        assert (await make(hooks, *events, status=403))["required_scope"] == "brain:read"
    assert (await make(reader, "memory.*", "plan.*", status=403))["required_scope"] == "plans.read"
    assert await make(hooks, "webhook.*")
    assert await make(reader, "memory.*")


async def test_a_key_changes_of_anothers_endpoint_what_tells_it_nothing(instance: Instance) -> None:
    """D-24, before and after: its address and its events are for those who may read what it is told of."""
    hooks, made = await instance.api_key("webhooks:*"), await make(instance.admin, "memory.*")
    at = f"{HOOKS}/{made['id']}"

    for change in ({"url": f"{NOWHERE}2"}, {"events": ["webhook.*"]}, {"include_content": True}):
        refused = await hooks.send("PATCH", at, change)
        assert (refused.status_code, refused.json()["required_scope"]) == (403, "brain:read")
    changed = await hooks.send("PATCH", at, {"description": "Ours.", "concurrency": 1, "url": NOWHERE})

    assert (changed.status_code, changed.json()["description"], changed.json()["url"]) == (200, "Ours.", NOWHERE)


async def test_the_log_shows_what_was_sent_to_those_who_may_read_it(instance: Instance) -> None:
    """D-24: the body of a delivery contains the resource; readers of the log see only that it exists."""
    hooks, made = await instance.api_key("webhooks:*"), await make(instance.admin, "memory.*")
    await instance.admin.remember("For our eyes only.")
    log = f"{HOOKS}/{made['id']}/deliveries"

    listed = (await hooks.get(log)).json()["data"]
    refused = await hooks.get(f"{log}/{listed[0]['id']}")

    assert [each["type"] for each in listed] == ["memory.stored"]
    assert (refused.status_code, refused.json()["required_scope"]) == (403, "brain:read")
    assert (await instance.admin.get(f"{log}/{listed[0]['id']}")).status_code == 200


_ACME = frozenset({"acme"})


async def test_a_key_for_a_part_of_the_workspace_has_nothing_to_do_with_webhooks(instance: Instance) -> None:
    """D-23: allow-lists are applied in every query; a webhook is told of the whole workspace."""
    made = await make(instance.admin, "webhook.*")

    for part in (
        KeyRestrictions(orgs=_ACME),
        KeyRestrictions(projects=_ACME),
        KeyRestrictions(servers=_ACME),
        KeyRestrictions(tools=("acme/*",)),
    ):
        limited = await instance.api_key("*", restrictions=part)
        await make(limited, "webhook.*", status=403)
        for path in (HOOKS, f"{HOOKS}/{made['id']}", f"{HOOKS}/{made['id']}/deliveries"):
            assert (await limited.get(path)).json()["error"] == "permission_denied", f"{part} {path}"


async def test_a_key_that_speaks_for_one_agent_is_not_told_another_agents_own_memories(instance: Instance) -> None:
    """D-43, D-24: a webhook is told of all agents' memories, which such a key reads with brain:admin alone; its log the same."""
    one = await instance.api_key("webhooks:*", "brain:read", "plans.read", agent_id="bee")
    admin = await instance.api_key("webhooks:*", "brain:read", "brain:admin", agent_id="bee")
    told = await make(instance.admin, "memory.*")
    await instance.admin.remember("Mine alone.", agent_id="wasp", memory_scope="agent")
    log = f"{HOOKS}/{told['id']}/deliveries"
    row = (await instance.admin.get(log)).json()["data"][0]["id"]

    assert (await make(one, "memory.*", status=403))["required_scope"] == "brain:admin"
    assert (await one.get(f"{log}/{row}")).status_code == 403
    assert await make(one, "plan.*")
    assert await make(admin, "memory.*")
    assert (await admin.get(f"{log}/{row}")).status_code == 200


async def test_what_an_endpoint_was_told_before_is_not_sent_to_another_address_by_who_may_not_read_it(instance: Instance) -> None:
    """D-24: its events were changed since, but its log may still be sent again, and goes where the endpoint is then."""
    hooks, made = await instance.api_key("webhooks:*"), await make(instance.admin, "memory.*")
    at = f"{HOOKS}/{made['id']}"
    await instance.admin.remember("For our eyes only.")
    assert (await instance.admin.send("PATCH", at, {"events": ["webhook.*"]})).status_code == 200

    refused = await hooks.send("PATCH", at, {"url": f"{NOWHERE}2"})

    assert (refused.status_code, refused.json()["required_scope"]) == (403, "brain:read")
    assert (await hooks.send("PATCH", f"{HOOKS}/{(await make(hooks, 'webhook.*'))['id']}", {"url": f"{NOWHERE}2"})).status_code == 200
    assert (await instance.admin.send("PATCH", at, {"url": f"{NOWHERE}2"})).status_code == 200
