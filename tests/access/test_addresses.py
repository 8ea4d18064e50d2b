"""Allowed client addresses of keys: IP lists, proxies, spoofed headers (spec 5.3, step 4; D-28)."""

from __future__ import annotations

import pytest

from rookery.access.errors import AddressNotAllowed
from rookery.access.key_fields import NewAgentKey
from tests.access.makers import Access, build_access
from tests.conftest import OPERATOR


async def test_a_restricted_key_opens_from_its_addresses_alone(access: Access) -> None:
    """Spec 5.3, step 4: IPv4, IPv6 and ranges of either; unknown addresses are in none (D-28)."""
    new = NewAgentKey(name="rook", permissions=("brain:read",), ip_restriction=True, ip_list=("192.0.2.0/25", "2001:db8::/32"))
    minted = await access.create_agent_key(await access.create_workspace(), new)

    for inside in ("192.0.2.127", "::ffff:192.0.2.1", "2001:db8:ffff::1"):
        assert (await access.admit(minted, address=inside)).caller.key_id == minted.key.id
    for outside in ("192.0.2.128", "2001:db9::1", None, "testclient"):
        with pytest.raises(AddressNotAllowed):
            await access.admit(minted, address=outside)


async def test_a_list_without_the_restriction_restricts_nobody(access: Access) -> None:
    """D-28: the switch decides; on with an empty list it denies all."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), ip_list=("192.0.2.7",)))
    await access.admit(minted, address="203.0.113.1")
    await access.agent_keys.set_addresses(workspace, minted.key.id, "# nobody", is_enforced=True, by=OPERATOR)

    with pytest.raises(AddressNotAllowed):
        await access.admit(minted, address="192.0.2.7")


async def test_behind_a_trusted_proxy_the_forwarded_address_counts(access: Access) -> None:
    """D-28: the rightmost untrusted X-Forwarded-For, from trusted peers alone."""
    proxied = build_access(access.db, access.counter, access.clock, trusted=("10.0.0.0/8",))
    minted = await access.create_agent_key(
        await access.create_workspace(),
        NewAgentKey(name="rook", permissions=("brain:read",), ip_restriction=True, ip_list=("192.0.2.7", "10.0.0.0/8")),
    )
    forwarded = (b"x-forwarded-for", b"192.0.2.7")

    assert (await proxied.admit(minted, address="10.1.1.1", headers=(forwarded,))).caller.address == "192.0.2.7"
    for address, value in (("203.0.113.1", b"192.0.2.7"), ("10.1.1.1", b"192.0.2.7, 203.0.113.1"), ("10.1.1.1", b"garbage")):
        with pytest.raises(AddressNotAllowed):
            await proxied.admit(minted, address=address, headers=((b"x-forwarded-for", value),))
    await proxied.close()
