"""A key's successor, its grace, and its end (spec 3.3; D-26)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.errors import KeyInGrace, Unauthorised
from rookery.access.key_fields import NewApiKey
from rookery.access.models import KeyRestrictions, KeyWithUsage, Tier
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from tests.access.makers import Access
from tests.conftest import OPERATOR


async def test_rotation_copies_every_setting(access: Access) -> None:
    """Spec 3.3, D-26: the successor differs in id, plaintext, hint and birth alone; both authenticate during the grace."""
    workspace = await access.create_workspace()
    reach = KeyRestrictions(
        servers=frozenset({"web"}), tools=("web/*",), orgs=frozenset(), projects=frozenset({"nest"}), tool_limits={"web/*": 3}
    )
    new = NewApiKey(
        name="key",
        scopes=("*:read",),
        tier=Tier.FREE,
        environment="test",
        expires_at=access.clock() + timedelta(days=9),
        agent_id="rook",
        restrictions=reach,
    )
    old = await access.create_api_key(workspace, new)
    access.clock.advance(hours=1)
    minted = await access.api_keys.rotate(workspace, old.key.id, by=OPERATOR)

    assert minted.key == replace(old.key, id=minted.key.id, hint=minted.key.hint, created_at=access.clock())
    assert minted.plaintext.reveal() != old.plaintext.reveal()
    assert minted.plaintext.reveal().startswith("sk_test_")
    ending = (await access.api_keys.get(workspace, old.key.id)).key
    assert ending == replace(old.key, delete_after=access.clock() + timedelta(hours=24))
    assert [(await access.admit(each)).caller.key_id for each in (old, minted)] == [old.key.id, minted.key.id]


async def test_a_key_in_grace_cannot_be_rotated(access: Access) -> None:
    """D-26: 409; its successor can."""
    workspace = await access.create_workspace()
    old = await access.create_api_key(workspace)
    new = await access.api_keys.rotate(workspace, old.key.id, by=OPERATOR)

    with pytest.raises(KeyInGrace) as refusal:
        await access.api_keys.rotate(workspace, old.key.id, by=OPERATOR)
    assert (refusal.value.status, refusal.value.code) == (409, "key_in_grace")
    await access.api_keys.rotate(workspace, new.key.id, grace_hours=0, by=OPERATOR)
    with pytest.raises(Unauthorised):
        await access.admit(new)


async def test_two_rotations_at_once_make_one_successor(access: Access) -> None:
    """D-26: the second one finds the key in its grace."""
    workspace = await access.create_workspace()
    old = await access.create_api_key(workspace)

    done = await asyncio.gather(*(access.api_keys.rotate(workspace, old.key.id, by=OPERATOR) for _ in range(4)), return_exceptions=True)

    assert sorted(type(each).__name__ for each in done) == ["KeyInGrace", "KeyInGrace", "KeyInGrace", "KeyWithSecret"]
    assert (await access.api_keys.list_page(workspace, limit=9))[1] == 2


@pytest.mark.parametrize("hours", [-1, 721])
async def test_a_grace_out_of_bounds_is_refused(access: Access, hours: int) -> None:
    """A grace period outside 0 to 720 hours is rejected (D-26)."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)

    with pytest.raises(ValidationFailed):
        await access.api_keys.rotate(workspace, minted.key.id, grace_hours=hours, by=OPERATOR)


async def test_an_expired_key_has_no_successor(access: Access) -> None:
    """D-26: it would copy the expiry, and be born expired."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)

    with pytest.raises(Conflict):
        await access.api_keys.rotate(workspace, minted.key.id, by=OPERATOR)


async def test_past_its_grace_a_key_is_gone_before_it_is_swept(access: Access) -> None:
    """Spec 3.3, D-26: to every reader, at once; the sweeper only tidies up."""
    workspace = await access.create_workspace()
    old = await access.create_api_key(workspace)
    new = await access.api_keys.rotate(workspace, old.key.id, grace_hours=2, by=OPERATOR)
    access.clock.advance(hours=2)

    with pytest.raises(Unauthorised):
        await access.admit(old)
    with pytest.raises(NotFound):
        await access.api_keys.get(workspace, old.key.id)
    for gone in (access.api_keys.delete, access.api_keys.suspend, access.api_keys.rotate):
        with pytest.raises(NotFound):
            await gone(workspace, old.key.id, by=OPERATOR)
    assert [each.key.id for each in (await access.api_keys.list_page(workspace, limit=9))[0]] == [new.key.id]
    assert await access.api_keys.delete_past_grace() == 1
    assert await access.api_keys.delete_past_grace() == 0


async def test_prune_deletes_expired_keys_and_no_others(access: Access) -> None:
    """Spec 3.3, 5.2 rule 9; D-04: --dry-run changes nothing, a workspace can be named."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    brief = NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(days=1))
    here, there, lasting = (
        await access.create_api_key(workspace, brief),
        await access.create_api_key(other, brief),
        await access.create_api_key(workspace),
    )
    rotated = await access.api_keys.rotate(workspace, lasting.key.id, grace_hours=1, by=OPERATOR)
    access.clock.advance(days=3)

    def ids(pruned: list[KeyWithUsage]) -> set[str]:
        return {each.key.id for each in pruned}

    assert ids(await access.api_keys.prune(expired_for=timedelta(days=7), dry_run=True, by=OPERATOR)) == {lasting.key.id}
    assert ids(await access.api_keys.prune(dry_run=True, by=OPERATOR)) == {here.key.id, there.key.id, lasting.key.id}
    assert ids(await access.api_keys.prune(workspace_id=other, by=OPERATOR)) == {there.key.id}
    assert ids(await access.api_keys.prune(by=OPERATOR)) == {here.key.id, lasting.key.id}
    assert await access.api_keys.prune(by=OPERATOR) == []
    with pytest.raises(Unauthorised):
        await access.admit(here)
    await access.admit(rotated)
