"""Changes of keys: expiry, suspension, permissions and addresses."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rookery.access.errors import KeyExpired, KeyRevoked
from rookery.access.key_fields import NewAgentKey
from rookery.access.models import KeyStatus
from rookery.kernel.errors import Conflict, ValidationFailed
from tests.access.makers import Access
from tests.conftest import OPERATOR


async def test_extending_an_expired_agent_key_makes_it_active(access: Access) -> None:
    """Its expiry is replaced or cleared; a revoked key stays revoked."""
    workspace, keys = await access.create_workspace(), access.agent_keys
    new_key = await access.create_agent_key(
        workspace, NewAgentKey(name="rook", permissions=("*",), expires_at=access.clock() + timedelta(hours=1))
    )
    access.clock.advance(hours=1)
    with pytest.raises(KeyExpired):
        await access.admit(new_key)
    assert (await keys.get(workspace, new_key.key.id)).key.status(access.clock()) is KeyStatus.EXPIRED

    extended = await keys.extend(workspace, new_key.key.id, access.clock() + timedelta(hours=1), by=OPERATOR)
    assert extended.status(access.clock()) is KeyStatus.ACTIVE
    await access.admit(new_key)
    with pytest.raises(ValidationFailed):
        await keys.extend(workspace, new_key.key.id, access.clock(), by=OPERATOR)
    await keys.extend(workspace, new_key.key.id, None, by=OPERATOR)
    access.clock.advance(days=3650)
    await access.admit(new_key)

    await keys.revoke(workspace, new_key.key.id, by=OPERATOR)
    for reactivation in (keys.extend(workspace, new_key.key.id, None, by=OPERATOR), keys.resume(workspace, new_key.key.id, by=OPERATOR)):
        with pytest.raises(Conflict, match="stays revoked"):
            await reactivation
    revoked_key = (await keys.get(workspace, new_key.key.id)).key
    assert revoked_key.status(access.clock()) is KeyStatus.REVOKED
    assert (await keys.revoke(workspace, new_key.key.id, by=OPERATOR)).revoked_at == revoked_key.revoked_at
    with pytest.raises(KeyRevoked):
        await access.admit(new_key)


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_either_kind_can_be_suspended_and_resumed(access: Access, kind: str) -> None:
    """401 key_revoked while suspended, label Revoked."""
    workspace = await access.create_workspace()
    keyring = access.api_keys if kind == "api" else access.agent_keys
    new_key = await (access.create_api_key if kind == "api" else access.create_agent_key)(workspace)

    suspended_key = await keyring.suspend(workspace, new_key.key.id, by=OPERATOR)

    assert suspended_key.status(access.clock()) is KeyStatus.REVOKED
    access.clock.advance(hours=1)
    assert (await keyring.suspend(workspace, new_key.key.id, by=OPERATOR)).suspended_at == suspended_key.suspended_at
    with pytest.raises(KeyRevoked):
        await access.admit(new_key)
    assert await keyring.resume(workspace, new_key.key.id, by=OPERATOR) == new_key.key
    await access.admit(new_key)


async def test_addresses_can_be_added_removed_and_replaced(access: Access) -> None:
    """With one invalid line nothing is stored: 422 errors.ips."""
    workspace, keys = await access.create_workspace(), access.agent_keys
    key_id = (await access.create_agent_key(workspace)).key.id

    assert (await keys.set_addresses(workspace, key_id, "# office\n192.0.2.1\n2001:DB8::/32", is_enforced=True, by=OPERATOR)).ip_list == (
        "192.0.2.1",
        "2001:db8::/32",
    )
    assert (await keys.add_addresses(workspace, key_id, ["198.51.100.7/24", "192.0.2.1"], by=OPERATOR)).ip_list == (
        "192.0.2.1",
        "2001:db8::/32",
        "198.51.100.0/24",
    )
    assert (await keys.remove_addresses(workspace, key_id, ["2001:db8::/32", "203.0.113.1"], by=OPERATOR)).ip_list == (
        "192.0.2.1",
        "198.51.100.0/24",
    )
    for change in (keys.set_addresses, keys.add_addresses, keys.remove_addresses):
        with pytest.raises(ValidationFailed) as refusal:
            await change(workspace, key_id, "203.0.113.1\nnonsense", by=OPERATOR)
        assert refusal.value.detail["errors"] == {"ips": ["nonsense: Invalid IP address"]}
    key = (await keys.get(workspace, key_id)).key
    assert (key.ip_list, key.ip_restriction) == (("192.0.2.1", "198.51.100.0/24"), True)
    assert not (await keys.set_enforcement(workspace, key_id, is_enforced=False, by=OPERATOR)).ip_restriction


async def test_permissions_are_replaced(access: Access) -> None:
    """On an existing key; unknown ones change nothing."""
    workspace, keys = await access.create_workspace(), access.agent_keys
    new_key = await access.create_agent_key(workspace)

    assert (await keys.set_permissions(workspace, new_key.key.id, ["plans.write", "notify.send"], by=OPERATOR)).scopes == (
        "plans.write",
        "notify:send",
    )
    for permissions in ([], ["plans.rite"]):
        with pytest.raises(ValidationFailed):
            await keys.set_permissions(workspace, new_key.key.id, permissions, by=OPERATOR)
    assert (await access.admit(new_key, required_scope="notify.send")).caller.scopes == {"plans.write", "notify:send"}
