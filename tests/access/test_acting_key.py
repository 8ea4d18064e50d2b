"""Operations of keys on other keys, through the real services and in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import psycopg
import pytest

from rookery.access.agent_keys import AgentKeys
from rookery.access.errors import DelegationDenied, KeyExpired, KeyInGrace, KeyRevoked, KeySuspended, NameTaken, ScopeMissing, Unauthorised
from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import Actor, KeyWithSecret, Tier
from rookery.kernel.errors import NotFound, PermissionDenied, RookeryError, ValidationFailed
from rookery.kernel.pages import PageSlice
from rookery.kernel.secret import Secret
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, Instance, eventually

BUILDER = NewApiKey(name="builder", scopes=("keys:*", "brain:read", "mcp:*"), rate_limit_tier=Tier.BUSINESS)


async def admitted_actor(access: Access, new_key: KeyWithSecret) -> Actor:
    """Admit the key and return it as the actor of changes."""
    return Actor.from_caller((await access.admit(new_key)).caller)


async def error_of(attempt: Awaitable[object]) -> RookeryError:
    """Return the error that *attempt* raises."""
    with pytest.raises(RookeryError) as refusal:
        await attempt
    return refusal.value


async def test_a_key_creates_keys_within_its_own_permissions(access: Access) -> None:
    """A key creates keys of both kinds. A new key with more than the creator has is rejected, and nothing is stored."""
    workspace = await access.create_workspace()
    by = await admitted_actor(access, await access.create_api_key(workspace, BUILDER))

    reader_key = await access.api_keys.create(workspace, NewApiKey(name="reader", scopes=("brain:read",), rate_limit_tier=Tier.PRO), by=by)
    assert (await access.admit(reader_key)).caller.scopes == {"brain:read"}
    await access.agent_keys.create(workspace, NewAgentKey(name="caller", permissions=("mcp:write",)), by=by)

    assert isinstance(
        await error_of(access.api_keys.create(workspace, NewApiKey(name="key", scopes=("brain:write",)), by=by)), ScopeMissing
    )
    with_higher_tier = NewApiKey(name="key", scopes=("brain:read",), rate_limit_tier=Tier.ENTERPRISE)
    assert isinstance(await error_of(access.api_keys.create(workspace, with_higher_tier, by=by)), DelegationDenied)
    agent_keys = [NewAgentKey(name=name, permissions=(name,)) for name in ("mcp:read", "plans.read")]
    assert isinstance(await error_of(access.agent_keys.create_many(workspace, agent_keys, by=by)), ScopeMissing)
    assert (
        (await access.api_keys.list_page(workspace, page=PageSlice(9)))[1],
        (await access.agent_keys.list_page(workspace, page=PageSlice(9)))[1],
    ) == (2, 1)


async def test_a_key_may_reduce_its_own_permissions_and_never_extend_them(access: Access) -> None:
    """A key cannot take back what it gave up, nor move its expiry to a later time."""
    workspace = await access.create_workspace()
    end = access.clock() + timedelta(days=1)
    new_key = await access.create_agent_key(
        workspace,
        NewAgentKey(name="rook", permissions=("keys:write", "brain:read"), expires_at=end, ip_restriction=True, ip_list=("192.0.2.0/24",)),
    )
    by, keyring, key_id = await admitted_actor(access, new_key), access.agent_keys, new_key.key.id

    for attempt in (
        keyring.extend(workspace, key_id, end + timedelta(microseconds=1), by=by),
        keyring.extend(workspace, key_id, None, by=by),
        keyring.set_enforcement(workspace, key_id, is_enforced=False, by=by),
        keyring.add_addresses(workspace, key_id, ["203.0.113.9"], by=by),
        keyring.set_addresses(workspace, key_id, ["192.0.0.0/16"], by=by),
        keyring.update(workspace, key_id, KeyChanges(rate_limit=601), by=by),
        keyring.set_permissions(workspace, key_id, ["keys:write", "brain:*"], by=by),
    ):
        assert isinstance(await error_of(attempt), DelegationDenied | PermissionDenied)
    assert (await keyring.get(workspace, key_id)).key == new_key.key

    await keyring.extend(workspace, key_id, end - timedelta(hours=1), by=by)
    await keyring.set_addresses(workspace, key_id, ["192.0.2.1"], by=by)
    await keyring.set_permissions(workspace, key_id, ["keys:write"], by=by)
    assert isinstance(await error_of(keyring.set_permissions(workspace, key_id, ["keys:write", "brain:read"], by=by)), PermissionDenied)
    assert isinstance(await error_of(keyring.extend(workspace, key_id, end, by=by)), DelegationDenied)


async def test_a_key_with_more_permissions_cannot_be_changed_even_to_reduce_them(access: Access) -> None:
    """The key before and after the change is compared. Revoking and deleting need only visibility."""
    workspace = await access.create_workspace()
    by = await admitted_actor(access, await access.create_api_key(workspace, BUILDER))
    unrestricted = await access.create_api_key(workspace)
    agent = await access.create_agent_key(workspace, NewAgentKey(name="strong", permissions=("*",)))

    for attempt in (
        access.api_keys.update(workspace, unrestricted.key.id, KeyChanges(scopes=("brain:read",), rate_limit_tier=Tier.FREE), by=by),
        access.api_keys.suspend(workspace, unrestricted.key.id, by=by),
        access.api_keys.rotate(workspace, unrestricted.key.id, by=by),
        access.agent_keys.extend(workspace, agent.key.id, access.clock() + timedelta(hours=1), by=by),
    ):
        assert isinstance(await error_of(attempt), ScopeMissing)
    await access.agent_keys.revoke(workspace, agent.key.id, by=by)
    await access.api_keys.delete(workspace, unrestricted.key.id, by=by)
    for deleted_key in (agent, unrestricted):
        with pytest.raises(Unauthorised):
            await access.admit(deleted_key)


async def test_test_keys_manage_only_test_keys(access: Access) -> None:
    """For a test key a live key does not exist, in every operation and in every state; a live key manages both."""
    workspace = await access.create_workspace()
    new_test_key = NewApiKey(name="trial", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE, environment="test")
    test_key, other_test_key = await access.create_api_key(workspace, new_test_key), await access.create_api_key(workspace, new_test_key)
    live_key, agent_key = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    key_in_grace = await access.create_api_key(workspace)
    await access.api_keys.rotate(workspace, key_in_grace.key.id, by=OPERATOR)
    by, live_actor = await admitted_actor(access, test_key), await admitted_actor(access, live_key)
    api_keys, agent_keys = access.api_keys, access.agent_keys

    assert isinstance(await error_of(api_keys.create(workspace, NewApiKey(name="key", scopes=("*",)), by=by)), DelegationDenied)
    assert isinstance(
        await error_of(agent_keys.create(workspace, NewAgentKey(name="key", permissions=("mcp:read",)), by=by)), DelegationDenied
    )
    for invisible_key in (live_key, key_in_grace):
        expected_message = str(await error_of(api_keys.rotate(workspace, "0" * 36, by=by))).replace("0" * 36, invisible_key.key.id)
        for attempt in (
            api_keys.get(workspace, invisible_key.key.id, environment="test"),
            api_keys.update(workspace, invisible_key.key.id, KeyChanges(name="taken"), by=by),
            api_keys.suspend(workspace, invisible_key.key.id, by=by),
            api_keys.rotate(workspace, invisible_key.key.id, by=by),
            api_keys.delete(workspace, invisible_key.key.id, by=by),
        ):
            refusal = await error_of(attempt)
            assert (type(refusal), str(refusal)) == (NotFound, expected_message)
    for attempt in (
        agent_keys.revoke(workspace, agent_key.key.id, by=by),
        agent_keys.set_enforcement(workspace, agent_key.key.id, is_enforced=True, by=by),
    ):
        assert isinstance(await error_of(attempt), NotFound)
    assert [listed.key.id for listed in (await api_keys.list_page(workspace, page=PageSlice(9), environment="test"))[0]] == [
        other_test_key.key.id,
        test_key.key.id,
    ]

    await api_keys.update(workspace, other_test_key.key.id, KeyChanges(name="renamed"), by=by)
    await api_keys.rotate(workspace, other_test_key.key.id, by=live_actor)
    created = await api_keys.create(workspace, new_test_key, by=live_actor)
    assert created.key.tenant_id == test_key.key.tenant_id


async def test_a_key_changes_nothing_in_another_workspace(access: Access) -> None:
    """Keys of another workspace are not found, and none can be created there. platform:workspaces allows it."""
    workspace, other_workspace = await access.create_workspace(), await access.create_workspace("abroad")
    by = await admitted_actor(access, await access.create_api_key(workspace))
    other_key = await access.create_api_key(other_workspace)

    assert isinstance(
        await error_of(access.api_keys.create(other_workspace, NewApiKey(name="key", scopes=("brain:read",)), by=by)), DelegationDenied
    )
    for attempt in (
        access.api_keys.suspend(other_workspace, other_key.key.id, by=by),
        access.api_keys.delete(other_workspace, other_key.key.id, by=by),
        access.api_keys.rotate(other_workspace, other_key.key.id, by=by),
    ):
        assert isinstance(await error_of(attempt), NotFound)
    all_workspaces = NewApiKey(name="all", scopes=("*", "platform:workspaces"), rate_limit_tier=Tier.ENTERPRISE)
    manager = await admitted_actor(access, await access.create_api_key(workspace, all_workspaces))
    created = await access.api_keys.create(other_workspace, NewApiKey(name="first", scopes=("*",)), by=manager)
    assert (await access.admit(created)).caller.workspace_id == other_workspace


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("revoke", KeyRevoked),
        ("suspend", KeySuspended),
        ("expire", KeyExpired),
        ("delete", Unauthorised),
        ("end", Unauthorised),
        ("narrow", PermissionDenied),
    ],
)
async def test_a_key_that_became_invalid_changes_nothing(access: Access, change: str, error: type[RookeryError]) -> None:
    """A key may be revoked or restricted between the guard and the change. It is read again in the change's transaction."""
    workspace = await access.create_workspace()
    new = NewAgentKey(name="rook", permissions=("*",), expires_at=access.clock() + timedelta(hours=1), rate_limit=6_000)
    new_key, target = await access.create_agent_key(workspace, new), await access.create_agent_key(workspace)
    by, keyring = await admitted_actor(access, new_key), access.agent_keys
    if change == "revoke":
        await keyring.revoke(workspace, new_key.key.id, by=OPERATOR)
    elif change == "suspend":
        await keyring.suspend(workspace, new_key.key.id, by=OPERATOR)
    elif change == "expire":
        access.clock.advance(hours=1)
    elif change == "delete":
        await keyring.delete(workspace, new_key.key.id, by=OPERATOR)
    elif change == "end":
        await keyring.rotate(workspace, new_key.key.id, grace_hours=0, by=OPERATOR)
    else:
        await keyring.set_permissions(workspace, new_key.key.id, ["keys:write"], by=OPERATOR)
    keys = (await keyring.list_page(workspace, page=PageSlice(9)))[1]

    for attempt in (
        keyring.create(workspace, NewAgentKey(name="new", permissions=("mcp:read",)), by=by),
        keyring.update(workspace, target.key.id, KeyChanges(name="taken"), by=by),
        keyring.rotate(workspace, target.key.id, by=by),
    ):
        assert type(await error_of(attempt)) is error
    if change != "narrow":
        assert type(await error_of(keyring.revoke(workspace, target.key.id, by=by))) is error
        assert type(await error_of(keyring.delete(workspace, target.key.id, by=by))) is error
    assert ((await keyring.get(workspace, target.key.id)).key, (await keyring.list_page(workspace, page=PageSlice(9)))[1]) == (
        target.key,
        keys,
    )


@pytest.mark.parametrize("change", ["alter", "rotate"])
async def test_a_key_restricted_by_a_concurrent_change_cannot_extend_itself(access: Access, database_url: str, change: str) -> None:
    """The change waits for a concurrent one and is checked against its result. SQLite has one writer at a time."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("*",)))
    by, keyring = await admitted_actor(access, new_key), access.agent_keys
    await access.usage.flush()
    if database_url == "embedded:":
        return

    def attempt() -> Awaitable[object]:
        if change == "rotate":
            return keyring.rotate(workspace, new_key.key.id, by=by)
        return keyring.update(workspace, new_key.key.id, KeyChanges(scopes=("*",), name="again"), by=by)

    with psycopg.connect(database_url) as operator, psycopg.connect(database_url, autocommit=True) as observer:
        restrict = "UPDATE access_keys SET scopes = '[\"keys:write\"]', suspended_at = %s WHERE id = %s"
        operator.execute(restrict, (1 if change == "rotate" else None, new_key.key.id))
        pending_change = asyncio.ensure_future(attempt())
        waiting_count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await eventually(lambda: observer.execute(waiting_count).fetchone() == (1,))
        operator.commit()
        refusal = await error_of(pending_change)

    assert type(refusal) is (KeySuspended if change == "rotate" else PermissionDenied)
    assert (await keyring.get(workspace, new_key.key.id)).key.scopes == ("keys:write",)


@pytest.fixture
def keys_and_agents(access: Access) -> tuple[AgentKeys, set[str]]:
    """Agent keys, and the set of agents that have memories of their own."""
    agents = set[str]()
    keyring = AgentKeys(access.db, access.usage, access.audit, access.clock, is_agent_in_use=lambda _tx, _workspace, agent: agent in agents)
    return keyring, agents


async def test_an_agent_creates_no_key_that_acts_for_another_agent(access: Access, keys_and_agents: tuple[AgentKeys, set[str]]) -> None:
    """A new agent may be created while it has no memories. A deleted agent's name gives no access to its memories."""
    keyring, agents = keys_and_agents
    workspace = await access.create_workspace()
    rook = NewAgentKey(name="rook", permissions=("keys:*", "brain:read", "mcp:*"))
    by = await admitted_actor(access, await keyring.create(workspace, rook, by=OPERATOR))
    owl = await keyring.create(workspace, NewAgentKey(name="owl", permissions=("brain:read",)), by=OPERATOR)
    await keyring.delete(workspace, owl.key.id, by=OPERATOR)
    agents.add("owl")

    for name, agent_id in (("owl", None), ("Owl", None), ("somebody", "owl")):
        new = NewAgentKey(name=name, permissions=("brain:read",), agent_id=agent_id)
        refusal = await error_of(keyring.create(workspace, new, by=by))
        assert isinstance(refusal, DelegationDenied)
        assert refusal.field == "agent_id"
    assert isinstance(
        await error_of(keyring.create(workspace, NewAgentKey(name="x", permissions=("brain:read",), agent_id="rook"), by=by)), NameTaken
    )
    without_agent = NewApiKey(name="any", scopes=("brain:read",), rate_limit_tier=Tier.FREE)
    assert isinstance(await error_of(access.api_keys.create(workspace, without_agent, by=by)), DelegationDenied)

    assert (await keyring.create(workspace, NewAgentKey(name="owl", permissions=("mcp:read",)), by=by)).key.agent_id == "owl"
    wren = await keyring.create(workspace, NewAgentKey(name="wren", permissions=("brain:read",)), by=by)
    assert wren.key.agent_id == "wren"
    for_the_same_agent = NewApiKey(name="own", scopes=("brain:read",), rate_limit_tier=Tier.FREE, agent_id="rook")
    assert (await access.api_keys.create(workspace, for_the_same_agent, by=by)).key.agent_id == "rook"
    actor_without_agent = await admitted_actor(access, await access.create_api_key(workspace))
    dove = NewAgentKey(name="dove", permissions=("brain:read",))
    agents.add("dove")
    assert (await keyring.create(workspace, dove, by=actor_without_agent)).key.agent_id == "dove"


async def test_the_name_of_a_deleted_agent_gives_no_access_to_its_memories(instance: Instance) -> None:
    """Over HTTP: an agent that may create keys creates none for an agent that left memories of its own."""
    owl = await instance.rookery.access.agent_keys.create(
        instance.workspace_id, NewAgentKey(name="owl", permissions=("brain:*",)), by=OPERATOR
    )
    await instance.caller(owl.plaintext.reveal()).remember("Only owls may know.", memory_scope="agent")
    await instance.rookery.access.agent_keys.delete(instance.workspace_id, owl.key.id, by=OPERATOR)
    rook = await instance.agent_key("keys:write", "brain:read")
    body = {"name": "owl", "permissions": ["brain:read"]}

    response = await rook.post("/api/v1/agent-keys", body)
    assert (response.status_code, response.json()["error"], response.json()["field"]) == (403, "permission_denied", "agent_id")
    assert (await instance.admin.post("/api/v1/agent-keys", body)).status_code == 201


async def test_an_agent_creates_no_key_that_acts_in_the_sessions_of_another_agent(instance: Instance) -> None:
    """Keys without an agent act in all sessions. So the key of an agent creates none, nor one of an agent with sessions."""
    owl = await instance.agent_key("sessions.write", agent_id="owl")
    session = (await owl.post("/v1/sessions", {"agent_type": "owl"})).json()["session"]["id"]
    rook = await instance.agent_key("keys:*", "sessions.read", "sessions.write", agent_id="rook")
    assert (await rook.send("PATCH", f"/v1/sessions/{session}", {"goal": "taken over"})).status_code == 403
    scopes = {"scopes": ["sessions.write"], "rate_limit_tier": "free"}

    refusals = [
        await rook.post("/api/v1/api-keys", {"name": "any", **scopes}),
        await rook.post("/api/v1/api-keys", {"name": "owl", "agent_id": "owl", **scopes}),
    ]
    assert (await rook.send("DELETE", f"/api/v1/agent-keys/{owl.key_id}")).status_code == 204
    refusals.append(await rook.post("/api/v1/agent-keys", {"name": "owl", "permissions": ["sessions.write"]}))

    assert [(refusal.status_code, refusal.json()["field"]) for refusal in refusals] == [(403, "agent_id")] * 3
    for body in ({"name": "any", "scopes": ["sessions.read"], "rate_limit_tier": "free"}, {"name": "own", "agent_id": "rook", **scopes}):
        assert (await rook.post("/api/v1/api-keys", body)).status_code == 201
    assert (await rook.post("/api/v1/agent-keys", {"name": "wren", "permissions": ["sessions.write"]})).status_code == 201


async def test_rotating_another_agents_key_needs_access_to_its_memories(access: Access) -> None:
    """A rotation returns the plaintext, which gives access to the agent's own memories. brain:admin may read those anyway."""
    workspace = await access.create_workspace()
    rook, brain_admin = [
        await admitted_actor(access, await access.create_agent_key(workspace, NewAgentKey(name=name, permissions=permissions)))
        for name, permissions in (("rook", ("keys:*", "brain:read")), ("wise", ("keys:*", "brain:*")))
    ]
    owl = await access.create_agent_key(workspace, NewAgentKey(name="owl", permissions=("brain:read",)))

    for attempt in (
        access.agent_keys.rotate(workspace, owl.key.id, by=rook),
        access.agent_keys.extend(workspace, owl.key.id, None, by=rook),
    ):
        assert isinstance(await error_of(attempt), DelegationDenied)
    assert (await access.agent_keys.rotate(workspace, owl.key.id, by=brain_admin)).key.agent_id == "owl"
    await access.agent_keys.delete(workspace, owl.key.id, by=rook)


async def test_an_agent_s_id_never_changes(access: Access) -> None:
    """A key has no settings of the other kind, for any caller. An API key may be assigned to another agent."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)

    for changes in (KeyChanges(agent_id="owl"), KeyChanges(agent_id=None), KeyChanges(rate_limit_tier=Tier.FREE)):
        with pytest.raises(ValidationFailed):
            await access.agent_keys.update(workspace, agent.key.id, changes, by=OPERATOR)
    for changes in (KeyChanges(rate_limit=5), KeyChanges(ip_restriction=True), KeyChanges(ip_list=("192.0.2.1",))):
        with pytest.raises(ValidationFailed):
            await access.api_keys.update(workspace, api.key.id, changes, by=OPERATOR)
    assert (await access.api_keys.update(workspace, api.key.id, KeyChanges(agent_id="owl"), by=OPERATOR)).agent_id == "owl"


async def test_platform_scopes_come_from_operators_alone(access: Access) -> None:
    """422 for every key, even one that has them. An update may keep the scopes of a key, and a rotation copies them."""
    workspace = await access.create_workspace()
    new_root_key = NewApiKey(name="root", scopes=("*", "platform:audit", "platform:metrics"), rate_limit_tier=Tier.ENTERPRISE)
    root = await access.create_api_key(workspace, new_root_key)
    by = await admitted_actor(access, root)
    other = await access.create_api_key(workspace)

    for attempt in (
        access.api_keys.create(workspace, new_root_key, by=by),
        access.agent_keys.create(workspace, NewAgentKey(name="key", permissions=("platform:audit",)), by=by),
        access.api_keys.update(workspace, other.key.id, KeyChanges(scopes=("*", "platform:audit")), by=by),
        access.api_keys.update(workspace, root.key.id, KeyChanges(scopes=("*", "platform:servers")), by=by),
    ):
        assert isinstance(await error_of(attempt), ValidationFailed)
    updated = await access.api_keys.update(workspace, root.key.id, KeyChanges(scopes=("platform:audit", "brain:read")), by=by)
    assert updated.scopes == ("platform:audit", "brain:read")
    assert isinstance(
        await error_of(access.api_keys.update(workspace, root.key.id, KeyChanges(scopes=("platform:metrics",)), by=by)), ValidationFailed
    )
    wildcard_actor = await admitted_actor(access, other)
    assert isinstance(await error_of(access.api_keys.suspend(workspace, root.key.id, by=wildcard_actor)), ScopeMissing)
    updated_by_operator = await access.api_keys.update(workspace, other.key.id, KeyChanges(scopes=("*", "platform:audit")), by=OPERATOR)
    assert updated_by_operator.scopes == ("*", "platform:audit")
    successor = await access.api_keys.rotate(workspace, other.key.id, by=await admitted_actor(access, other))
    assert successor.key.scopes == ("*", "platform:audit")


class FailingHasher(Bcrypt):
    """A bcrypt that fails the test if a hash is requested."""

    async def hash(self, secret: Secret) -> str:
        """Fail."""
        pytest.fail(f"unexpected hash of {secret}")


async def test_a_rejected_rotation_computes_no_hash(access: Access) -> None:
    """An impossible rotation is rejected before bcrypt runs, since many callers wait for it."""
    workspace = await access.create_workspace()
    by = await admitted_actor(access, await access.create_api_key(workspace, BUILDER))
    unrestricted, key_in_grace = await access.create_api_key(workspace), await access.create_api_key(workspace)
    await access.api_keys.rotate(workspace, key_in_grace.key.id, by=OPERATOR)
    api_keys = build_access(access.db, access.counter, access.clock, bcrypt=FailingHasher(cost=4)).api_keys

    assert isinstance(await error_of(api_keys.rotate(workspace, unrestricted.key.id, by=by)), ScopeMissing)
    assert isinstance(await error_of(api_keys.rotate(workspace, key_in_grace.key.id, by=OPERATOR)), KeyInGrace)
    assert isinstance(await error_of(api_keys.rotate(workspace, "unknown", by=OPERATOR)), NotFound)
