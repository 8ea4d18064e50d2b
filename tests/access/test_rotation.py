"""The rotation of a key: its successor, its grace period and its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.errors import KeyInGrace, Unauthorised
from rookery.access.key_fields import NewApiKey
from rookery.access.models import KeyRestrictions, KeyWithUsage, Tier
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access
from tests.conftest import OPERATOR


async def test_rotation_copies_every_setting(access: Access) -> None:
    """The successor differs only in id, plaintext, hint and creation time. Both authenticate in the grace period."""
    workspace = await access.create_workspace()
    reach = KeyRestrictions(
        servers=frozenset({"web"}), tools=("web/*",), orgs=frozenset(), projects=frozenset({"nest"}), tool_limits={"web/*": 3}
    )
    new = NewApiKey(
        name="key",
        scopes=("*:read",),
        rate_limit_tier=Tier.FREE,
        environment="test",
        expires_at=access.clock() + timedelta(days=9),
        agent_id="rook",
        restrictions=reach,
    )
    old_key = await access.create_api_key(workspace, new)
    access.clock.advance(hours=1)
    successor = await access.api_keys.rotate(workspace, old_key.key.id, by=OPERATOR)

    assert successor.key == replace(old_key.key, id=successor.key.id, hint=successor.key.hint, created_at=access.clock())
    assert successor.plaintext.reveal() != old_key.plaintext.reveal()
    assert successor.plaintext.reveal().startswith("sk_test_")
    rotated = (await access.api_keys.get(workspace, old_key.key.id)).key
    assert rotated == replace(old_key.key, delete_after=access.clock() + timedelta(hours=24))
    assert [(await access.admit(key)).caller.key_id for key in (old_key, successor)] == [old_key.key.id, successor.key.id]


async def test_a_key_in_grace_cannot_be_rotated(access: Access) -> None:
    """409; its successor can."""
    workspace = await access.create_workspace()
    old_key = await access.create_api_key(workspace)
    successor = await access.api_keys.rotate(workspace, old_key.key.id, by=OPERATOR)

    with pytest.raises(KeyInGrace) as refusal:
        await access.api_keys.rotate(workspace, old_key.key.id, by=OPERATOR)
    assert (refusal.value.status, refusal.value.code) == (409, "key_in_grace")
    await access.api_keys.rotate(workspace, successor.key.id, grace_hours=0, by=OPERATOR)
    with pytest.raises(Unauthorised):
        await access.admit(successor)


async def test_concurrent_rotations_create_one_successor(access: Access) -> None:
    """The second rotation finds the key in its grace period."""
    workspace = await access.create_workspace()
    old_key = await access.create_api_key(workspace)

    results = await asyncio.gather(
        *(access.api_keys.rotate(workspace, old_key.key.id, by=OPERATOR) for _ in range(4)), return_exceptions=True
    )

    assert sorted(type(result).__name__ for result in results) == ["KeyInGrace", "KeyInGrace", "KeyInGrace", "KeyWithSecret"]
    assert (await access.api_keys.list_page(workspace, page=PageSlice(9)))[1] == 2


@pytest.mark.parametrize("hours", [-1, 721])
async def test_a_grace_period_out_of_bounds_is_rejected(access: Access, hours: int) -> None:
    """A grace period outside 0 to 720 hours is rejected."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)

    with pytest.raises(ValidationFailed):
        await access.api_keys.rotate(workspace, new_key.key.id, grace_hours=hours, by=OPERATOR)


async def test_an_expired_key_cannot_be_rotated(access: Access) -> None:
    """The successor would copy the expiry and be expired at its creation."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    access.clock.advance(hours=1)

    with pytest.raises(Conflict):
        await access.api_keys.rotate(workspace, new_key.key.id, by=OPERATOR)


async def test_a_key_past_its_grace_period_is_not_found_before_it_is_deleted(access: Access) -> None:
    """For every reader, immediately; the periodic task only deletes the row."""
    workspace = await access.create_workspace()
    old_key = await access.create_api_key(workspace)
    successor = await access.api_keys.rotate(workspace, old_key.key.id, grace_hours=2, by=OPERATOR)
    access.clock.advance(hours=2)

    with pytest.raises(Unauthorised):
        await access.admit(old_key)
    with pytest.raises(NotFound):
        await access.api_keys.get(workspace, old_key.key.id)
    for operation in (access.api_keys.delete, access.api_keys.suspend, access.api_keys.rotate):
        with pytest.raises(NotFound):
            await operation(workspace, old_key.key.id, by=OPERATOR)
    assert [listed.key.id for listed in (await access.api_keys.list_page(workspace, page=PageSlice(9)))[0]] == [successor.key.id]
    assert await access.api_keys.delete_past_grace() == 1
    assert await access.api_keys.delete_past_grace() == 0


async def test_prune_deletes_expired_keys_and_no_others(access: Access) -> None:
    """--dry-run changes nothing, and a workspace can be named."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    expiring = NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(days=1))
    expired_key, other_expired_key, rotated_key = (
        await access.create_api_key(workspace, expiring),
        await access.create_api_key(other, expiring),
        await access.create_api_key(workspace),
    )
    successor = await access.api_keys.rotate(workspace, rotated_key.key.id, grace_hours=1, by=OPERATOR)
    access.clock.advance(days=3)

    def ids(pruned: list[KeyWithUsage]) -> set[str]:
        return {key.key.id for key in pruned}

    assert ids(await access.api_keys.prune(expired_for=timedelta(days=7), dry_run=True, by=OPERATOR)) == {rotated_key.key.id}
    assert ids(await access.api_keys.prune(dry_run=True, by=OPERATOR)) == {expired_key.key.id, other_expired_key.key.id, rotated_key.key.id}
    assert ids(await access.api_keys.prune(workspace_id=other, by=OPERATOR)) == {other_expired_key.key.id}
    assert ids(await access.api_keys.prune(by=OPERATOR)) == {expired_key.key.id, rotated_key.key.id}
    assert await access.api_keys.prune(by=OPERATOR) == []
    with pytest.raises(Unauthorised):
        await access.admit(expired_key)
    await access.admit(successor)
