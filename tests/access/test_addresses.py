"""Allowed client addresses of keys: IP lists, proxies, spoofed headers."""

from __future__ import annotations

import pytest

from rookery.access.errors import AddressNotAllowed
from rookery.access.key_fields import NewAgentKey
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR


async def test_a_restricted_key_is_admitted_only_from_its_addresses(access: Access) -> None:
    """IPv4, IPv6 and ranges of either. Unknown addresses are in no range."""
    new = NewAgentKey(name="rook", permissions=("brain:read",), ip_restriction=True, ip_list=("192.0.2.0/25", "2001:db8::/32"))
    new_key = await access.create_agent_key(await access.create_workspace(), new)

    for address in ("192.0.2.127", "::ffff:192.0.2.1", "2001:db8:ffff::1"):
        assert (await access.admit(new_key, address=address)).caller.key_id == new_key.key.id
    for address in ("192.0.2.128", "2001:db9::1", None, "testclient"):
        with pytest.raises(AddressNotAllowed):
            await access.admit(new_key, address=address)


async def test_a_list_without_the_restriction_has_no_effect(access: Access) -> None:
    """ip_restriction decides; enabled with an empty list it denies all."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), ip_list=("192.0.2.7",)))
    await access.admit(new_key, address="203.0.113.1")
    await access.agent_keys.set_addresses(workspace, new_key.key.id, "# nobody", is_enforced=True, by=OPERATOR)

    with pytest.raises(AddressNotAllowed):
        await access.admit(new_key, address="192.0.2.7")


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(access: Access) -> None:
    """The rightmost untrusted X-Forwarded-For, from trusted peers alone."""
    behind_proxy = build_access(access.db, access.counter, access.clock, trusted=("10.0.0.0/8",))
    new_key = await access.create_agent_key(
        await access.create_workspace(),
        NewAgentKey(name="rook", permissions=("brain:read",), ip_restriction=True, ip_list=("192.0.2.7", "10.0.0.0/8")),
    )
    forwarded = (b"x-forwarded-for", b"192.0.2.7")

    assert (await behind_proxy.admit(new_key, address="10.1.1.1", headers=(forwarded,))).caller.address == "192.0.2.7"
    for address, value in (("203.0.113.1", b"192.0.2.7"), ("10.1.1.1", b"192.0.2.7, 203.0.113.1"), ("10.1.1.1", b"garbage")):
        with pytest.raises(AddressNotAllowed):
            await behind_proxy.admit(new_key, address=address, headers=((b"x-forwarded-for", value),))
    await behind_proxy.close()
