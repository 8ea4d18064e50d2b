"""Making, changing, rotating, pruning keys of both kinds; each only within its workspace (spec 2.2, 2.3, 3.2, 3.3; D-20..D-28)."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import bcrypt
import pytest

from rookery.access import first_run as first_run_module
from rookery.access.agent_keys import AgentKeys
from rookery.access.errors import KeyExpired, KeyInGrace, KeyRevoked, NameTaken, Unauthorised
from rookery.access.first_run import first_run
from rookery.access.hashing import Bcrypt
from rookery.access.models import Entry, Key, KeyStatus, Minted, Reach, Tier
from rookery.access.scopes import PRESETS
from rookery.access.settings import NewAgentKey, NewApiKey, free_slug, slug
from rookery.access.store import keys as key_store
from rookery.access.store import usage as usage_store
from rookery.access.store import workspaces as workspace_store
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Row, Tx, open_database
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.secret import Secret
from tests.access.makers import Access
from tests.conftest import FakeClock


async def test_a_new_api_key_is_of_the_spec_s_form(access: Access) -> None:
    """Spec 2.3, 5.2: sk_{environment}_ and 32 characters; live and pro by default (D-27)."""
    workspace = await access.workspace()
    minted = await access.api_key(workspace, NewApiKey(name=" reader ", scopes=("brain.read",)))

    assert re.fullmatch(r"sk_live_[A-Za-z0-9]{32}", minted.plaintext.reveal())
    assert (minted.key.name, minted.key.scopes, minted.key.tier, minted.key.environment) == ("reader", ("brain:read",), Tier.PRO, "live")
    assert minted.key.hint == f"{minted.plaintext.reveal()[:16]}..."
    assert (await access.api_keys.get(workspace, minted.key.id)).key == minted.key


async def test_only_hashes_are_stored(access: Access) -> None:
    """Spec 2.2, 2.3: bcrypt of the whole plaintext, SHA-256 of an agent key; neither plaintext is anywhere in the store."""
    workspace = await access.workspace()
    api, agent = await access.api_key(workspace), await access.agent_key(workspace)
    tokens = [each.plaintext.reveal() for each in (api, agent)]

    def rows(tx: Tx) -> list[Row]:
        return [
            *key_store.by_lookup(tx, "api", tokens[0][8:16]),
            *key_store.by_lookup(tx, "agent", hashlib.sha256(tokens[1].encode()).hexdigest()),
        ]

    stored = await access.db.quick(rows)

    assert [row.text("id") for row in stored] == [api.key.id, agent.key.id]
    assert bcrypt.checkpw(tokens[0].encode(), stored[0].text("key_hash").encode())
    assert not any(token in str(row.values) for token in tokens for row in stored)


async def test_a_new_agent_key_is_of_the_spec_s_form(access: Access) -> None:
    """Spec 2.2, 5.3: ak_ and 32 characters; 600 a minute by default (D-21), never expires, no restriction."""
    minted = await access.agent_key(await access.workspace(), NewAgentKey(name="Nest Builder!", permissions=("plans.read", "plans:read")))

    assert re.fullmatch(r"ak_[A-Za-z0-9]{32}", minted.plaintext.reveal())
    assert (minted.key.agent_id, minted.key.scopes, minted.key.rate_limit, minted.key.expires_at) == (
        "nest-builder",
        ("plans.read",),
        600,
        None,
    )
    assert (minted.key.ip_restriction, minted.key.ip_list, minted.key.status(access.clock())) == (False, (), KeyStatus.ACTIVE)


async def test_an_agent_id_is_unique_in_its_workspace(access: Access) -> None:
    """D-23: a slug of the name, numbered when taken, the same again elsewhere; even when made at once."""
    workspace, other = await access.workspace(), await access.workspace("other")
    new = NewAgentKey(name="Rook", permissions=("brain:read",))

    made = await asyncio.gather(*(access.agent_key(workspace, new) for _ in range(5)))

    assert sorted(each.key.agent_id or "" for each in made) == ["rook", "rook-2", "rook-3", "rook-4", "rook-5"]
    assert (await access.agent_key(other, new)).key.agent_id == "rook"
    with pytest.raises(NameTaken) as refusal:
        await access.agent_key(workspace, replace(new, agent_id="rook-3"))
    assert (refusal.value.status, refusal.value.code) == (409, "name_taken")
    assert (await access.agent_keys.change(workspace, made[0].key.id, lambda key: replace(key, name="Other"))).agent_id == made[
        0
    ].key.agent_id


def test_slugs_are_short_and_never_empty() -> None:
    """D-23: 1 to 64 of a-z, 0-9, -; numbering keeps them so."""
    assert [slug(name) for name in ("Rook", "  a  b ", "鴉", "---", "x" * 99)] == ["rook", "a-b", "agent", "agent", "x" * 64]
    assert free_slug("x" * 99, {"x" * 64}) == "x" * 62 + "-2"


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("name", NewApiKey(name=" ", scopes=("*",))),
        ("name", NewApiKey(name="x" * 101, scopes=("*",))),
        ("name", NewApiKey(name="a\nb", scopes=("*",))),
        ("scopes", NewApiKey(name="key", scopes=())),
        ("scopes", NewApiKey(name="key", scopes=("brain:reed",))),
        ("scopes", NewApiKey(name="key", scopes=("platform:metrics",))),
        ("scopes", NewApiKey(name="key", scopes=("brain:read",) * 1001)),
        ("agent_id", NewApiKey(name="key", scopes=("*",), agent_id="Not A Slug")),
        ("servers", NewApiKey(name="key", scopes=("*",), reach=Reach(servers=frozenset({""})))),
        ("orgs", NewApiKey(name="key", scopes=("*",), reach=Reach(orgs=frozenset(str(number) for number in range(1001))))),
        ("tool_limits", NewApiKey(name="key", scopes=("*",), reach=Reach(tool_limits={"a/*": 0}))),
        ("permissions", NewAgentKey(name="key", permissions=("nonsense",))),
        ("rate_limit", NewAgentKey(name="key", permissions=("*",), rate_limit=0)),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=("nonsense",))),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(1001)))),
    ],
)
async def test_a_key_with_a_wrong_field_is_not_made(access: Access, field: str, new: NewApiKey | NewAgentKey) -> None:
    """D-12, D-23: 422 naming the field, and nothing stored."""
    workspace = await access.workspace()

    with pytest.raises(ValidationFailed) as refusal:
        await (access.api_key(workspace, new) if isinstance(new, NewApiKey) else access.agent_key(workspace, new))

    assert str(refusal.value.detail["errors"]).startswith(f"{{'{field}': [")
    assert (await access.api_keys.page(workspace, limit=9))[1] + (await access.agent_keys.page(workspace, limit=9))[1] == 0


async def test_a_key_is_not_born_expired(access: Access) -> None:
    """Spec 2.3: an expiry lies ahead, to the microsecond."""
    workspace, now = await access.workspace(), access.clock()
    with pytest.raises(ValidationFailed):
        await access.api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now))

    await access.api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now + timedelta(microseconds=1)))


async def test_a_key_needs_its_workspace(access: Access) -> None:
    """Spec 2.8: none is made in a workspace that is not there, nor in a twin directly."""
    workspace = await access.workspace()
    twin = (await access.api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.acts_in

    for nowhere in (999_999, twin):
        with pytest.raises(NotFound):
            await access.api_key(nowhere)
        with pytest.raises(NotFound):
            await access.agent_key(nowhere)


async def test_rotation_copies_every_setting(access: Access) -> None:
    """Spec 3.3, D-26: the successor differs in id, plaintext, hint and birth alone; both authenticate during the grace."""
    workspace = await access.workspace()
    reach = Reach(servers=frozenset({"web"}), tools=("web/*",), orgs=frozenset(), projects=frozenset({"nest"}), tool_limits={"web/*": 3})
    new = NewApiKey(
        name="key",
        scopes=("*:read",),
        tier=Tier.FREE,
        environment="test",
        expires_at=access.clock() + timedelta(days=9),
        agent_id="rook",
        reach=reach,
    )
    old = await access.api_key(workspace, new)
    access.clock.advance(hours=1)
    minted = await access.api_keys.rotate(workspace, old.key.id)

    assert minted.key == replace(old.key, id=minted.key.id, hint=minted.key.hint, created_at=access.clock())
    assert minted.plaintext.reveal() != old.plaintext.reveal()
    assert minted.plaintext.reveal().startswith("sk_test_")
    ending = (await access.api_keys.get(workspace, old.key.id)).key
    assert ending == replace(old.key, delete_after=access.clock() + timedelta(hours=24))
    assert [(await access.admit(each)).caller.key_id for each in (old, minted)] == [old.key.id, minted.key.id]


async def test_a_key_in_grace_cannot_be_rotated(access: Access) -> None:
    """D-26: 409; its successor can."""
    workspace = await access.workspace()
    old = await access.api_key(workspace)
    new = await access.api_keys.rotate(workspace, old.key.id)

    with pytest.raises(KeyInGrace) as refusal:
        await access.api_keys.rotate(workspace, old.key.id)
    assert (refusal.value.status, refusal.value.code) == (409, "key_in_grace")
    await access.api_keys.rotate(workspace, new.key.id, grace_hours=0)
    with pytest.raises(Unauthorised):
        await access.admit(new)


async def test_two_rotations_at_once_make_one_successor(access: Access) -> None:
    """D-26: the second one finds the key in its grace."""
    workspace = await access.workspace()
    old = await access.api_key(workspace)

    done = await asyncio.gather(*(access.api_keys.rotate(workspace, old.key.id) for _ in range(4)), return_exceptions=True)

    assert sorted(type(each).__name__ for each in done) == ["KeyInGrace", "KeyInGrace", "KeyInGrace", "Minted"]
    assert (await access.api_keys.page(workspace, limit=9))[1] == 2


@pytest.mark.parametrize("hours", [-1, 721])
async def test_a_grace_out_of_bounds_is_refused(access: Access, hours: int) -> None:
    """D-26: 0 to 720 hours."""
    workspace = await access.workspace()
    minted = await access.api_key(workspace)

    with pytest.raises(ValidationFailed):
        await access.api_keys.rotate(workspace, minted.key.id, grace_hours=hours)


async def test_an_expired_key_has_no_successor(access: Access) -> None:
    """D-26: it would copy the expiry, and be born expired."""
    workspace = await access.workspace()
    minted = await access.api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)

    with pytest.raises(Conflict):
        await access.api_keys.rotate(workspace, minted.key.id)


async def test_past_its_grace_a_key_is_gone_before_it_is_swept(access: Access) -> None:
    """Spec 3.3, D-26: to every reader, at once; the sweeper only tidies up."""
    workspace = await access.workspace()
    old = await access.api_key(workspace)
    new = await access.api_keys.rotate(workspace, old.key.id, grace_hours=2)
    access.clock.advance(hours=2)

    with pytest.raises(Unauthorised):
        await access.admit(old)
    for gone in (access.api_keys.get, access.api_keys.delete, access.api_keys.suspend, access.api_keys.rotate):
        with pytest.raises(NotFound):
            await gone(workspace, old.key.id)
    assert [each.key.id for each in (await access.api_keys.page(workspace, limit=9))[0]] == [new.key.id]
    assert await access.api_keys.sweep() == 1
    assert await access.api_keys.sweep() == 0


async def test_prune_deletes_expired_keys_and_no_others(access: Access) -> None:
    """Spec 3.3, 5.2 rule 9; D-04: --dry-run changes nothing, a workspace can be named."""
    workspace, other = await access.workspace(), await access.workspace("other")
    brief = NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(days=1))
    here, there, lasting = await access.api_key(workspace, brief), await access.api_key(other, brief), await access.api_key(workspace)
    rotated = await access.api_keys.rotate(workspace, lasting.key.id, grace_hours=1)
    access.clock.advance(days=3)

    def ids(pruned: list[Entry]) -> set[str]:
        return {each.key.id for each in pruned}

    assert ids(await access.api_keys.prune(expired_for=timedelta(days=7), dry_run=True)) == {lasting.key.id}
    assert ids(await access.api_keys.prune(dry_run=True)) == {here.key.id, there.key.id, lasting.key.id}
    assert ids(await access.api_keys.prune(workspace_id=other)) == {there.key.id}
    assert ids(await access.api_keys.prune()) == {here.key.id, lasting.key.id}
    assert await access.api_keys.prune() == []
    with pytest.raises(Unauthorised):
        await access.admit(here)
    await access.admit(rotated)


async def test_extending_an_expired_agent_key_makes_it_active(access: Access) -> None:
    """D-21, spec 3.2: its expiry is replaced or cleared; a revoked key stays revoked."""
    workspace, keys = await access.workspace(), access.agent_keys
    minted = await access.agent_key(workspace, NewAgentKey(name="rook", permissions=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)
    with pytest.raises(KeyExpired):
        await access.admit(minted)
    assert (await keys.get(workspace, minted.key.id)).key.status(access.clock()) is KeyStatus.EXPIRED

    extended = await keys.extend(workspace, minted.key.id, access.clock() + timedelta(hours=1))
    assert extended.status(access.clock()) is KeyStatus.ACTIVE
    await access.admit(minted)
    with pytest.raises(ValidationFailed):
        await keys.extend(workspace, minted.key.id, access.clock())
    await keys.extend(workspace, minted.key.id, None)
    access.clock.advance(days=3650)
    await access.admit(minted)

    await keys.revoke(workspace, minted.key.id)
    revoked = await keys.extend(workspace, minted.key.id, None)
    assert revoked.status(access.clock()) is KeyStatus.REVOKED
    assert (await keys.revoke(workspace, minted.key.id)).revoked_at == revoked.revoked_at
    await keys.resume(workspace, minted.key.id)
    with pytest.raises(KeyRevoked):
        await access.admit(minted)


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_either_kind_can_be_suspended_and_resumed(access: Access, kind: str) -> None:
    """D-21: 401 key_revoked while suspended, label Revoked."""
    workspace = await access.workspace()
    ring = access.api_keys if kind == "api" else access.agent_keys
    minted = await (access.api_key if kind == "api" else access.agent_key)(workspace)

    suspended = await ring.suspend(workspace, minted.key.id)

    assert suspended.status(access.clock()) is KeyStatus.REVOKED
    access.clock.advance(hours=1)
    assert (await ring.suspend(workspace, minted.key.id)).suspended_at == suspended.suspended_at
    with pytest.raises(KeyRevoked):
        await access.admit(minted)
    assert await ring.resume(workspace, minted.key.id) == minted.key
    await access.admit(minted)


async def test_the_list_of_addresses_is_added_to_removed_from_and_replaced(access: Access) -> None:
    """Spec 5.3, D-28: one bad line stores nothing: 422 errors.ips."""
    workspace, keys = await access.workspace(), access.agent_keys
    key_id = (await access.agent_key(workspace)).key.id

    assert (await keys.set_addresses(workspace, key_id, "# office\n192.0.2.1\n2001:DB8::/32", restriction=True)).ip_list == (
        "192.0.2.1",
        "2001:db8::/32",
    )
    assert (await keys.add_addresses(workspace, key_id, ["198.51.100.7/24", "192.0.2.1"])).ip_list == (
        "192.0.2.1",
        "2001:db8::/32",
        "198.51.100.0/24",
    )
    assert (await keys.remove_addresses(workspace, key_id, ["2001:db8::/32", "203.0.113.1"])).ip_list == ("192.0.2.1", "198.51.100.0/24")
    for change in (keys.set_addresses, keys.add_addresses, keys.remove_addresses):
        with pytest.raises(ValidationFailed) as refusal:
            await change(workspace, key_id, "203.0.113.1\nnonsense")
        assert refusal.value.detail["errors"] == {"ips": ["nonsense: Invalid IP address"]}
    after = (await keys.get(workspace, key_id)).key
    assert (after.ip_list, after.ip_restriction) == (("192.0.2.1", "198.51.100.0/24"), True)
    assert not (await keys.restrict(workspace, key_id, on=False)).ip_restriction


async def test_permissions_are_replaced(access: Access) -> None:
    """Spec 5.3: on an existing key; unknown ones change nothing."""
    workspace, keys = await access.workspace(), access.agent_keys
    minted = await access.agent_key(workspace)

    assert (await keys.set_permissions(workspace, minted.key.id, ["plans.write", "notify.send"])).scopes == ("plans.write", "notify:send")
    for bad in ([], ["plans.rite"], ["platform:audit"]):
        with pytest.raises(ValidationFailed):
            await keys.set_permissions(workspace, minted.key.id, bad)
    assert (await access.admit(minted, needs="notify.send")).caller.scopes == {"plans.write", "notify:send"}


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_no_workspace_touches_another_s_keys(access: Access, kind: str) -> None:
    """Spec 2.8: every verb, tried as another workspace, finds nothing and changes nothing."""
    owner, other = await access.workspace(), await access.workspace("other")
    ring = access.api_keys if kind == "api" else access.agent_keys
    minted = await (access.api_key if kind == "api" else access.agent_key)(owner)
    key_id, agents = minted.key.id, access.agent_keys
    attempts = [ring.get(other, key_id), ring.suspend(other, key_id), ring.resume(other, key_id), ring.delete(other, key_id)]
    if kind == "api":
        attempts += [access.api_keys.rotate(other, key_id)]
    else:
        attempts += [
            agents.revoke(other, key_id),
            agents.extend(other, key_id, None),
            agents.set_permissions(other, key_id, ["*"]),
            agents.set_addresses(other, key_id, []),
            agents.add_addresses(other, key_id, []),
            agents.remove_addresses(other, key_id, []),
            agents.restrict(other, key_id, on=True),
        ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt

    assert await ring.page(other, limit=9) == ([], 0)
    assert (await ring.get(owner, key_id)).key == minted.key
    wrong_kind = access.agent_keys if kind == "api" else access.api_keys
    with pytest.raises(NotFound):
        await wrong_kind.get(owner, key_id)


async def test_no_store_function_reaches_into_another_workspace(access: Access) -> None:
    """Spec 2.8: the same, below the verbs."""
    owner, other = await access.workspace(), await access.workspace("other")
    minted = await access.api_key(owner)
    key_id, at = minted.key.id, to_micros(access.clock())
    admission = await access.admit(minted)
    admission.record(method="GET", route="/x", status=200, duration_ms=1)
    await access.usage.flush()

    def work(tx: Tx) -> list[object]:
        key_store.change_key(tx, replace(minted.key, workspace_id=other, name="taken"))
        key_store.delete_keys(tx, other)
        usage_store.delete_calls(tx, other)
        return [
            key_store.find_key(tx, "api", other, key_id, at=at),
            key_store.page_of_keys(tx, "api", other, at=at, limit=9, offset=0),
            key_store.delete_key(tx, "api", other, key_id),
            key_store.count_keys(tx, other),
            key_store.agent_ids(tx, other),
            usage_store.page_of_calls(tx, other, key_id, limit=9, offset=0),
            usage_store.count_calls(tx, other),
            workspace_store.find_twin(tx, other),
        ]

    assert await access.db.write(work) == [None, ([], 0), False, 0, set(), ([], 0), 0, None]
    assert (await access.api_keys.get(owner, key_id)).key == minted.key
    assert (await access.usage.page(owner, key_id, limit=9, offset=0))[1] == 1


async def test_lists_come_in_pages_newest_first(access: Access) -> None:
    """D-12: with the number of all."""
    workspace = await access.workspace()
    made = [(await access.agent_key(workspace)).key.id for _ in range(5)]

    page, total = await access.agent_keys.page(workspace, limit=2, offset=1)

    assert ([each.key.id for each in page], total) == ([made[3], made[2]], 5)


async def test_changes_are_noted_in_their_transaction(access: Access) -> None:
    """D-29: whoever keeps the audit log sees before and after; what it raises undoes the change."""
    workspace = await access.workspace()
    seen: list[tuple[str | None, str | None]] = []

    def note(_tx: Tx, before: Key | None, after: Key | None) -> None:
        seen.append((before and before.name, after and after.name))
        if len(seen) == 3:
            msg = "the log is full"
            raise Conflict(msg)

    ring = AgentKeys(access.db, access.usage, access.clock, note=note)
    key_id = (await ring.create(workspace, NewAgentKey(name="rook", permissions=("*",)))).key.id
    await ring.change(workspace, key_id, lambda key: replace(key, name="raven"))
    await ring.change(workspace, key_id, lambda key: key)
    with pytest.raises(Conflict):
        await ring.delete(workspace, key_id)

    assert seen == [(None, "rook"), ("rook", "raven"), ("raven", None)]
    assert (await ring.get(workspace, key_id)).key.name == "raven"


async def test_workspaces_have_names_of_their_own(access: Access) -> None:
    """Spec 2.8: 409 for a second one of the same name, 422 for none."""
    first = await access.workspaces.create("nest")

    assert await access.workspaces.get(first.id) == first
    assert await access.workspaces.list() == [first]
    with pytest.raises(NameTaken):
        await access.workspaces.create(" nest ")
    for bad in ("", "x" * 101, "nest/test"):
        with pytest.raises(ValidationFailed):
            await access.workspaces.create(bad)


async def test_deleting_a_workspace_takes_all_domains_with_it(access: Access) -> None:
    """D-04: one transaction with every purger, for the twin too; a dry run changes nothing; numbers are never given twice."""
    purged: list[int] = []

    def purge(_tx: Tx, tenant: int) -> int:
        purged.append(tenant)
        return 3

    workspaces = Workspaces(access.db, access.clock, purgers=[purge])
    workspace, other = await access.workspace(), await access.workspace("other")
    twin = (await access.api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.acts_in
    kept = await access.agent_key(other)
    await access.agent_key(workspace)

    would = await workspaces.delete(workspace, dry_run=True)
    assert (would.keys, would.rows, purged) == (2, None, [])
    done = await workspaces.delete(workspace)
    assert (done.keys, done.rows, purged) == (2, 6, [workspace, twin])
    assert [each.id for each in await workspaces.list()] == [other]
    await access.admit(kept)
    for nowhere in (workspace, twin):
        with pytest.raises(NotFound):
            await workspaces.delete(nowhere)
    assert (await workspaces.create("nest")).id > twin


async def test_a_purger_that_fails_keeps_the_workspace(access: Access) -> None:
    """D-04: all of it goes, or nothing."""

    def purge(_tx: Tx, _tenant: int) -> int:
        msg = "not now"
        raise Conflict(msg)

    workspace = await access.workspace()
    minted = await access.agent_key(workspace)
    with pytest.raises(Conflict):
        await Workspaces(access.db, access.clock, purgers=[purge]).delete(workspace)

    await access.admit(minted)


async def test_the_first_run_makes_a_workspace_and_two_keys_once(access: Access) -> None:
    """D-03: `default`, an enterprise key with all scopes, an agent key of preset agent; again nothing; concurrently once."""
    runs = await asyncio.gather(*(first_run(access.db, access.bcrypt, access.clock) for _ in range(3)))
    made = [each for each in runs if each.api_key is not None]

    assert len(made) == 1
    assert made[0].api_key is not None
    assert made[0].agent_key is not None
    assert len({each.workspace_id for each in runs}) == 1
    api, agent = [(await access.admit(key.reveal(), needs="brain:read")) for key in (made[0].api_key, made[0].agent_key)]
    assert api.caller.may("platform:workspaces")
    assert dict(api.headers)[b"x-ratelimit-limit"] == b"2147483647"
    assert agent.caller.scopes == frozenset(PRESETS["agent"])
    again = await first_run(access.db, access.bcrypt, access.clock)
    assert (again.workspace_id, again.api_key, again.agent_key) == (made[0].workspace_id, None, None)


async def test_two_processes_that_start_together_make_it_once(data_dir: Path, clock: FakeClock) -> None:
    """D-03: the one that comes second finds it done."""
    databases = [open_database("embedded:", data_dir=data_dir) for _ in range(3)]
    bcrypt_ = Bcrypt(cost=4)

    runs = await asyncio.gather(*(first_run(each, bcrypt_, clock) for each in databases))

    assert sorted(each.api_key is not None for each in runs) == [False, False, True]
    assert {each.workspace_id for each in runs} == {1}
    bcrypt_.close()
    for each in databases:
        await each.close()


async def test_what_the_operator_deleted_is_not_made_again(access: Access) -> None:
    """D-03: once in an installation's life; the number is then the oldest workspace's."""
    first = await first_run(access.db, access.bcrypt, access.clock)
    assert first.workspace_id is not None
    await access.workspaces.delete(first.workspace_id)
    assert (await first_run(access.db, access.bcrypt, access.clock)).workspace_id is None
    other = await access.workspace("other")

    again = await first_run(access.db, access.bcrypt, access.clock)
    assert (again.workspace_id, again.api_key) == (other, None)
    assert [each.name for each in await access.workspaces.list()] == ["other"]
    assert first_run_module.WORKSPACE == "default"


def test_a_secret_never_prints() -> None:
    """D-20: not in logs, reprs or tracebacks, and not through pickle."""
    secret = Secret("sk_live_secret")

    assert "sk_live" not in f"{secret} {secret!r} {[secret]} {(secret,)!s}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "sk_live_secret"


async def test_a_minted_key_never_prints(access: Access) -> None:
    """D-20: the noun that carries a plaintext through the code shows stars."""
    minted: Minted = await access.api_key(await access.workspace())

    assert minted.plaintext.reveal() not in f"{minted} {minted!r}"
