"""Operations of keys on other keys, through the real services and in one transaction (D-24, D-25)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

import psycopg
import pytest

from rookery.access.agent_keys import AgentKeys
from rookery.access.errors import DelegationDenied, KeyExpired, KeyInGrace, KeyRevoked, NameTaken, ScopeMissing, Unauthorised
from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import Actor, KeyWithSecret, Tier
from rookery.kernel.errors import NotFound, PermissionDenied, RookeryError, ValidationFailed
from rookery.kernel.secret import Secret
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR, Instance, eventually

BUILDER = NewApiKey(name="builder", scopes=("keys:*", "brain:read", "mcp:*"), tier=Tier.BUSINESS)


async def acting(access: Access, minted: KeyWithSecret) -> Actor:
    """Return who acts with that key, admitted by the guard."""
    return Actor.from_caller((await access.admit(minted)).caller)


async def error_of(attempt: Awaitable[object]) -> RookeryError:
    """Return the refusal of *attempt*."""
    with pytest.raises(RookeryError) as refusal:
        await attempt
    return refusal.value


async def test_a_key_makes_keys_within_its_own_powers(access: Access) -> None:
    """D-24: of both kinds; what it lacks is refused, and nothing is stored."""
    workspace = await access.create_workspace()
    by = await acting(access, await access.create_api_key(workspace, BUILDER))

    made = await access.api_keys.create(workspace, NewApiKey(name="reader", scopes=("brain:read",), tier=Tier.PRO), by=by)
    assert (await access.admit(made)).caller.scopes == {"brain:read"}
    await access.agent_keys.create(workspace, NewAgentKey(name="caller", permissions=("mcp:write",)), by=by)

    assert isinstance(
        await error_of(access.api_keys.create(workspace, NewApiKey(name="key", scopes=("brain:write",)), by=by)), ScopeMissing
    )
    faster = NewApiKey(name="key", scopes=("brain:read",), tier=Tier.ENTERPRISE)
    assert isinstance(await error_of(access.api_keys.create(workspace, faster, by=by)), DelegationDenied)
    several = [NewAgentKey(name=name, permissions=(name,)) for name in ("mcp:read", "plans.read")]
    assert isinstance(await error_of(access.agent_keys.create_many(workspace, several, by=by)), ScopeMissing)
    assert ((await access.api_keys.list_page(workspace, limit=9))[1], (await access.agent_keys.list_page(workspace, limit=9))[1]) == (2, 1)


async def test_a_key_changes_itself_to_less_and_never_to_more(access: Access) -> None:
    """D-24: it holds itself before; what it gives up it cannot take back, nor outlive its own end."""
    workspace = await access.create_workspace()
    end = access.clock() + timedelta(days=1)
    minted = await access.create_agent_key(
        workspace,
        NewAgentKey(name="rook", permissions=("keys:write", "brain:read"), expires_at=end, ip_restriction=True, ip_list=("192.0.2.0/24",)),
    )
    by, ring, key_id = await acting(access, minted), access.agent_keys, minted.key.id

    for attempt in (
        ring.extend(workspace, key_id, end + timedelta(microseconds=1), by=by),
        ring.extend(workspace, key_id, None, by=by),
        ring.set_enforcement(workspace, key_id, is_enforced=False, by=by),
        ring.add_addresses(workspace, key_id, ["203.0.113.9"], by=by),
        ring.set_addresses(workspace, key_id, ["192.0.0.0/16"], by=by),
        ring.update(workspace, key_id, KeyChanges(rate_limit=601), by=by),
        ring.set_permissions(workspace, key_id, ["keys:write", "brain:*"], by=by),
    ):
        assert isinstance(await error_of(attempt), DelegationDenied | PermissionDenied)
    assert (await ring.get(workspace, key_id)).key == minted.key

    await ring.extend(workspace, key_id, end - timedelta(hours=1), by=by)
    await ring.set_addresses(workspace, key_id, ["192.0.2.1"], by=by)
    await ring.set_permissions(workspace, key_id, ["keys:write"], by=by)
    assert isinstance(await error_of(ring.set_permissions(workspace, key_id, ["keys:write", "brain:read"], by=by)), PermissionDenied)
    assert isinstance(await error_of(ring.extend(workspace, key_id, end, by=by)), DelegationDenied)


async def test_a_key_that_has_more_is_out_of_reach_even_to_make_it_less(access: Access) -> None:
    """D-24: before and after; to take away, revoking and deleting, needs only that it is in sight."""
    workspace = await access.create_workspace()
    by = await acting(access, await access.create_api_key(workspace, BUILDER))
    strong = await access.create_api_key(workspace)
    agent = await access.create_agent_key(workspace, NewAgentKey(name="strong", permissions=("*",)))

    for attempt in (
        access.api_keys.update(workspace, strong.key.id, KeyChanges(grants=("brain:read",), tier=Tier.FREE), by=by),
        access.api_keys.suspend(workspace, strong.key.id, by=by),
        access.api_keys.rotate(workspace, strong.key.id, by=by),
        access.agent_keys.extend(workspace, agent.key.id, access.clock() + timedelta(hours=1), by=by),
    ):
        assert isinstance(await error_of(attempt), ScopeMissing)
    await access.agent_keys.revoke(workspace, agent.key.id, by=by)
    await access.api_keys.delete(workspace, strong.key.id, by=by)
    for gone in (agent, strong):
        with pytest.raises(Unauthorised):
            await access.admit(gone)


async def test_test_keys_reach_test_keys_alone(access: Access) -> None:
    """D-25: to a test key a live one is missing, in every verb, whatever state it is in; a live key reaches both."""
    workspace = await access.create_workspace()
    trial = NewApiKey(name="trial", scopes=("*",), tier=Tier.ENTERPRISE, environment="test")
    tester, other = await access.create_api_key(workspace, trial), await access.create_api_key(workspace, trial)
    live, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    ending = await access.create_api_key(workspace)
    await access.api_keys.rotate(workspace, ending.key.id, by=OPERATOR)
    by, from_live = await acting(access, tester), await acting(access, live)
    api_keys, agent_keys = access.api_keys, access.agent_keys

    assert isinstance(await error_of(api_keys.create(workspace, NewApiKey(name="key", scopes=("*",)), by=by)), DelegationDenied)
    assert isinstance(
        await error_of(agent_keys.create(workspace, NewAgentKey(name="key", permissions=("mcp:read",)), by=by)), DelegationDenied
    )
    for hidden in (live, ending):
        missing = str(await error_of(api_keys.rotate(workspace, "0" * 36, by=by))).replace("0" * 36, hidden.key.id)
        for attempt in (
            api_keys.get(workspace, hidden.key.id, environment="test"),
            api_keys.update(workspace, hidden.key.id, KeyChanges(name="taken"), by=by),
            api_keys.suspend(workspace, hidden.key.id, by=by),
            api_keys.rotate(workspace, hidden.key.id, by=by),
            api_keys.delete(workspace, hidden.key.id, by=by),
        ):
            refusal = await error_of(attempt)
            assert (type(refusal), str(refusal)) == (NotFound, missing)
    for attempt in (
        agent_keys.revoke(workspace, agent.key.id, by=by),
        agent_keys.set_enforcement(workspace, agent.key.id, is_enforced=True, by=by),
    ):
        assert isinstance(await error_of(attempt), NotFound)
    assert [each.key.id for each in (await api_keys.list_page(workspace, limit=9, environment="test"))[0]] == [other.key.id, tester.key.id]

    await api_keys.update(workspace, other.key.id, KeyChanges(name="renamed"), by=by)
    await api_keys.rotate(workspace, other.key.id, by=from_live)
    made = await api_keys.create(workspace, trial, by=from_live)
    assert made.key.tenant_id == tester.key.tenant_id


async def test_a_key_does_nothing_in_another_workspace(access: Access) -> None:
    """Spec 2.8, D-24: its keys are missing there, and none is made, whatever the caller of the verb says; platform:workspaces may."""
    home, abroad = await access.create_workspace(), await access.create_workspace("abroad")
    by = await acting(access, await access.create_api_key(home))
    theirs = await access.create_api_key(abroad)

    assert isinstance(
        await error_of(access.api_keys.create(abroad, NewApiKey(name="key", scopes=("brain:read",)), by=by)), DelegationDenied
    )
    for attempt in (
        access.api_keys.suspend(abroad, theirs.key.id, by=by),
        access.api_keys.delete(abroad, theirs.key.id, by=by),
        access.api_keys.rotate(abroad, theirs.key.id, by=by),
    ):
        assert isinstance(await error_of(attempt), NotFound)
    everywhere = NewApiKey(name="all", scopes=("*", "platform:workspaces"), tier=Tier.ENTERPRISE)
    manager = await acting(access, await access.create_api_key(home, everywhere))
    made = await access.api_keys.create(abroad, NewApiKey(name="first", scopes=("*",)), by=manager)
    assert (await access.admit(made)).caller.workspace_id == abroad


@pytest.mark.parametrize(
    ("fate", "error"),
    [
        ("revoke", KeyRevoked),
        ("suspend", KeyRevoked),
        ("expire", KeyExpired),
        ("delete", Unauthorised),
        ("end", Unauthorised),
        ("narrow", PermissionDenied),
    ],
)
async def test_who_is_not_good_any_more_changes_nothing(access: Access, fate: str, error: type[RookeryError]) -> None:
    """D-24: between the guard and the change a key may go, or lose what it had: it is read again in the change's transaction."""
    workspace = await access.create_workspace()
    new = NewAgentKey(name="rook", permissions=("*",), expires_at=access.clock() + timedelta(hours=1), rate_limit=6_000)
    minted, target = await access.create_agent_key(workspace, new), await access.create_agent_key(workspace)
    by, ring = await acting(access, minted), access.agent_keys
    if fate == "revoke":
        await ring.revoke(workspace, minted.key.id, by=OPERATOR)
    elif fate == "suspend":
        await ring.suspend(workspace, minted.key.id, by=OPERATOR)
    elif fate == "expire":
        access.clock.advance(hours=1)
    elif fate == "delete":
        await ring.delete(workspace, minted.key.id, by=OPERATOR)
    elif fate == "end":
        await ring.rotate(workspace, minted.key.id, grace_hours=0, by=OPERATOR)
    else:
        await ring.set_permissions(workspace, minted.key.id, ["keys:write"], by=OPERATOR)
    keys = (await ring.list_page(workspace, limit=9))[1]

    for attempt in (
        ring.create(workspace, NewAgentKey(name="new", permissions=("mcp:read",)), by=by),
        ring.update(workspace, target.key.id, KeyChanges(name="taken"), by=by),
        ring.rotate(workspace, target.key.id, by=by),
    ):
        assert type(await error_of(attempt)) is error
    if fate != "narrow":
        assert type(await error_of(ring.revoke(workspace, target.key.id, by=by))) is error
        assert type(await error_of(ring.delete(workspace, target.key.id, by=by))) is error
    assert ((await ring.get(workspace, target.key.id)).key, (await ring.list_page(workspace, limit=9))[1]) == (target.key, keys)


@pytest.mark.parametrize("change", ["alter", "rotate"])
async def test_a_key_that_is_narrowed_meanwhile_does_not_widen_itself_again(access: Access, database_url: str, change: str) -> None:
    """D-24: it waits for a concurrent change and is judged by the result. SQLite has one writer at a time."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("*",)))
    by, ring = await acting(access, minted), access.agent_keys
    await access.usage.flush()
    if database_url == "embedded:":
        return

    def attempt() -> Awaitable[object]:
        if change == "rotate":
            return ring.rotate(workspace, minted.key.id, by=by)
        return ring.update(workspace, minted.key.id, KeyChanges(grants=("*",), name="again"), by=by)

    with psycopg.connect(database_url) as operator, psycopg.connect(database_url, autocommit=True) as onlooker:
        narrowed = "UPDATE access_keys SET scopes = '[\"keys:write\"]', suspended_at = %s WHERE id = %s"
        operator.execute(narrowed, (1 if change == "rotate" else None, minted.key.id))
        attempting = asyncio.ensure_future(attempt())
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        await eventually(lambda: onlooker.execute(waiting).fetchone() == (1,))
        operator.commit()
        refusal = await error_of(attempting)

    assert type(refusal) is (KeyRevoked if change == "rotate" else PermissionDenied)
    assert (await ring.get(workspace, minted.key.id)).key.scopes == ("keys:write",)


@pytest.fixture
def known(access: Access) -> tuple[AgentKeys, set[str]]:
    """Agent keys in a platform where the agents of the set have memories of their own."""
    agents = set[str]()
    ring = AgentKeys(access.db, access.usage, access.audit, access.clock, is_agent_in_use=lambda _tx, _workspace, agent: agent in agents)
    return ring, agents


async def test_who_speaks_for_one_agent_makes_none_that_speaks_for_another(access: Access, known: tuple[AgentKeys, set[str]]) -> None:
    """D-24, D-43: a new agent may be made while it has no memories; those of a deleted key's agent are not to be had by its name."""
    ring, agents = known
    workspace = await access.create_workspace()
    rook = NewAgentKey(name="rook", permissions=("keys:*", "brain:read", "mcp:*"))
    by = await acting(access, await ring.create(workspace, rook, by=OPERATOR))
    owl = await ring.create(workspace, NewAgentKey(name="owl", permissions=("brain:read",)), by=OPERATOR)
    await ring.delete(workspace, owl.key.id, by=OPERATOR)
    agents.add("owl")

    for name, agent_id in (("owl", None), ("Owl", None), ("somebody", "owl")):
        new = NewAgentKey(name=name, permissions=("brain:read",), agent_id=agent_id)
        refusal = await error_of(ring.create(workspace, new, by=by))
        assert isinstance(refusal, DelegationDenied)
        assert refusal.field == "agent_id"
    assert isinstance(
        await error_of(ring.create(workspace, NewAgentKey(name="x", permissions=("brain:read",), agent_id="rook"), by=by)), NameTaken
    )
    anybody = NewApiKey(name="any", scopes=("brain:read",), tier=Tier.FREE)
    assert isinstance(await error_of(access.api_keys.create(workspace, anybody, by=by)), DelegationDenied)

    assert (await ring.create(workspace, NewAgentKey(name="owl", permissions=("mcp:read",)), by=by)).key.agent_id == "owl"
    fresh = await ring.create(workspace, NewAgentKey(name="wren", permissions=("brain:read",)), by=by)
    assert fresh.key.agent_id == "wren"
    own = NewApiKey(name="own", scopes=("brain:read",), tier=Tier.FREE, agent_id="rook")
    assert (await access.api_keys.create(workspace, own, by=by)).key.agent_id == "rook"
    free_of_agents = await acting(access, await access.create_api_key(workspace))
    again = NewAgentKey(name="dove", permissions=("brain:read",))
    agents.add("dove")
    assert (await ring.create(workspace, again, by=free_of_agents)).key.agent_id == "dove"


async def test_the_memories_of_a_deleted_agent_are_not_to_be_had_by_its_name(instance: Instance) -> None:
    """D-24, D-43: over HTTP: an agent that may make keys makes none for an agent that left memories of its own."""
    owl = await instance.rookery.access.agent_keys.create(
        instance.workspace_id, NewAgentKey(name="owl", permissions=("brain:*",)), by=OPERATOR
    )
    await instance.caller(owl.plaintext.reveal()).remember("Only owls may know.", memory_scope="agent")
    await instance.rookery.access.agent_keys.delete(instance.workspace_id, owl.key.id, by=OPERATOR)
    rook = await instance.agent_key("keys:write", "brain:read")
    asked = {"name": "owl", "permissions": ["brain:read"]}

    refused = await rook.post("/api/v1/agent-keys", asked)
    assert (refused.status_code, refused.json()["error"], refused.json()["field"]) == (403, "permission_denied", "agent_id")
    assert (await instance.admin.post("/api/v1/agent-keys", asked)).status_code == 201


async def test_another_agent_s_key_is_not_rotated_by_who_may_not_read_its_memories(access: Access) -> None:
    """D-24: rotation gives its plaintext, and with it the agent's own memories; brain:admin may read those anyway."""
    workspace = await access.create_workspace()
    rook, wise = [
        await acting(access, await access.create_agent_key(workspace, NewAgentKey(name=name, permissions=permissions)))
        for name, permissions in (("rook", ("keys:*", "brain:read")), ("wise", ("keys:*", "brain:*")))
    ]
    owl = await access.create_agent_key(workspace, NewAgentKey(name="owl", permissions=("brain:read",)))

    for attempt in (
        access.agent_keys.rotate(workspace, owl.key.id, by=rook),
        access.agent_keys.extend(workspace, owl.key.id, None, by=rook),
    ):
        assert isinstance(await error_of(attempt), DelegationDenied)
    assert (await access.agent_keys.rotate(workspace, owl.key.id, by=wise)).key.agent_id == "owl"
    await access.agent_keys.delete(workspace, owl.key.id, by=rook)


async def test_an_agent_s_id_never_changes(access: Access) -> None:
    """D-23: a key has no settings of the other kind, for any caller; an API key may be given another agent."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)

    for changes in (KeyChanges(agent_id="owl"), KeyChanges(agent_id=None), KeyChanges(tier=Tier.FREE)):
        with pytest.raises(ValidationFailed):
            await access.agent_keys.update(workspace, agent.key.id, changes, by=OPERATOR)
    for changes in (KeyChanges(rate_limit=5), KeyChanges(ip_restriction=True), KeyChanges(ip_list=("192.0.2.1",))):
        with pytest.raises(ValidationFailed):
            await access.api_keys.update(workspace, api.key.id, changes, by=OPERATOR)
    assert (await access.api_keys.update(workspace, api.key.id, KeyChanges(agent_id="owl"), by=OPERATOR)).agent_id == "owl"


async def test_platform_scopes_come_from_operators_alone(access: Access) -> None:
    """D-23: 422 for every key, even one that has them; what a key has may stay through a change, and is copied by a rotation."""
    workspace = await access.create_workspace()
    whole = NewApiKey(name="root", scopes=("*", "platform:audit", "platform:metrics"), tier=Tier.ENTERPRISE)
    root = await access.create_api_key(workspace, whole)
    by = await acting(access, root)
    other = await access.create_api_key(workspace)

    for attempt in (
        access.api_keys.create(workspace, whole, by=by),
        access.agent_keys.create(workspace, NewAgentKey(name="key", permissions=("platform:audit",)), by=by),
        access.api_keys.update(workspace, other.key.id, KeyChanges(grants=("*", "platform:audit")), by=by),
        access.api_keys.update(workspace, root.key.id, KeyChanges(grants=("*", "platform:servers")), by=by),
    ):
        assert isinstance(await error_of(attempt), ValidationFailed)
    kept = await access.api_keys.update(workspace, root.key.id, KeyChanges(grants=("platform:audit", "brain:read")), by=by)
    assert kept.scopes == ("platform:audit", "brain:read")
    assert isinstance(
        await error_of(access.api_keys.update(workspace, root.key.id, KeyChanges(grants=("platform:metrics",)), by=by)), ValidationFailed
    )
    wide = await acting(access, other)
    assert isinstance(await error_of(access.api_keys.suspend(workspace, root.key.id, by=wide)), ScopeMissing)
    given = await access.api_keys.update(workspace, other.key.id, KeyChanges(grants=("*", "platform:audit")), by=OPERATOR)
    assert given.scopes == ("*", "platform:audit")
    successor = await access.api_keys.rotate(workspace, other.key.id, by=await acting(access, other))
    assert successor.key.scopes == ("*", "platform:audit")


class FailingHasher(Bcrypt):
    """bcrypt that must not be asked for a hash."""

    async def hash(self, secret: Secret) -> str:
        """Fail."""
        pytest.fail(f"asked to hash {secret}")


async def test_what_is_refused_costs_no_hash(access: Access) -> None:
    """D-20, D-24: a rotation that cannot be is told before bcrypt runs, which many callers wait for."""
    workspace = await access.create_workspace()
    by = await acting(access, await access.create_api_key(workspace, BUILDER))
    strong, ending = await access.create_api_key(workspace), await access.create_api_key(workspace)
    await access.api_keys.rotate(workspace, ending.key.id, by=OPERATOR)
    idle = build_access(access.db, access.counter, access.clock, bcrypt=FailingHasher(cost=4)).api_keys

    assert isinstance(await error_of(idle.rotate(workspace, strong.key.id, by=by)), ScopeMissing)
    assert isinstance(await error_of(idle.rotate(workspace, ending.key.id, by=OPERATOR)), KeyInGrace)
    assert isinstance(await error_of(idle.rotate(workspace, "unknown", by=OPERATOR)), NotFound)
