"""Addresses, ranges and the client address of a request."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.networks import (
    UNKNOWN_ADDRESS,
    canonical_address,
    canonical_network,
    client_network,
    contains,
    parse_list,
    parse_networks,
    parse_proxies,
    resolve_client_address,
)
from rookery.kernel.errors import WrongSettings

addresses = st.ip_addresses()
v4 = st.ip_addresses(v=4)
PROXIES = parse_networks(["10.0.0.0/8", "fd00::/8"])


@given(addresses)
def test_every_address_has_one_form(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """The short and the long spelling of an address are the same."""
    assert canonical_address(str(address)) == canonical_address(address.exploded)
    assert canonical_address(canonical_address(str(address)) or "") == canonical_address(str(address))


@given(v4, st.integers(0, 32))
def test_a_mapped_address_is_its_ipv4_address(address: ipaddress.IPv4Address, prefix: int) -> None:
    """IPv4-mapped IPv6 is IPv4, in requests and in lists."""
    mapped = f"::ffff:{address}"
    range_ = canonical_network(f"{address}/{prefix}") or ""

    assert canonical_address(mapped) == str(address)
    assert canonical_network(f"{mapped}/{prefix + 96}") == range_
    assert contains(parse_networks([range_]), mapped)
    assert contains(parse_networks([f"{mapped}/{prefix + 96}"]), str(address))


@given(addresses, addresses, st.integers(0, 128))
def test_matching_agrees_with_the_standard_library(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, other: ipaddress.IPv4Address | ipaddress.IPv6Address, prefix: int
) -> None:
    """The address must lie in a listed address or range."""
    first, second = (ipaddress.ip_address(canonical_address(str(entry)) or "") for entry in (address, other))
    network = ipaddress.ip_network(f"{second}/{min(prefix, second.max_prefixlen)}", strict=False)

    assert contains(parse_networks([str(network)]), str(first)) == (first.version == network.version and first in network)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        " ",
        "garbage",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "01.2.3.4",
        "1.2.3.4 ",
        "1.2.3.4:80",
        "fe80::1%eth0",
        "::ffff:1.2.3.4%1",
        "::1/64",
        "1" * 1_000_000,
    ],
)
def test_invalid_text_is_no_address_and_in_no_network(garbage: str) -> None:
    """Invalid text never becomes an address, and is rejected fast, however long it is."""
    assert canonical_address(garbage) is None
    assert not contains(parse_networks(["0.0.0.0/0", "::/0"]), garbage)


@given(st.text(max_size=40))
def test_any_text_can_be_checked(text: str) -> None:
    """No input of a caller causes a 500."""
    canonical_address(text)
    canonical_network(text)
    contains(PROXIES, text)
    parse_list(text)


def test_an_empty_list_contains_no_address() -> None:
    """A restriction with an empty list denies all; so does a list of invalid entries."""
    assert not contains((), "192.0.2.1")
    assert not contains(parse_networks(["nonsense"]), "192.0.2.1")


def test_a_list_as_text_is_read_line_by_line() -> None:
    """One entry per line, lines starting with # are comments, invalid ones are named."""
    text = "# office\n192.0.2.7\r\n\n  198.51.100.77/24  \n2001:DB8:0::1\n::ffff:192.0.2.7\nnonsense\n1.2.3.4/33\nfe80::1%eth0\n# end"

    addresses_, errors = parse_list(text)

    assert addresses_ == ("192.0.2.7", "198.51.100.0/24", "2001:db8::1")
    assert errors == ["nonsense: Invalid IP address", "1.2.3.4/33: Invalid IP address", "fe80::1%eth0: Invalid IP address"]


@given(st.lists(addresses.map(str), max_size=6))
def test_reading_a_list_twice_changes_nothing(entries: list[str]) -> None:
    """The canonical form is stored."""
    entries_, errors = parse_list(entries)

    assert errors == []
    assert parse_list(entries_) == (entries_, [])


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [b"198.51.100.1"], "192.0.2.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"203.0.113.9", b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        ("10.0.0.1", [b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("::ffff:10.0.0.1", [b"::ffff:198.51.100.1"], "198.51.100.1"),
        ("fd00::1", [b"2001:DB8::5"], "2001:db8::5"),
        ("10.0.0.1", [b"198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", [b"[2001:db8::5]:4711"], "2001:db8::5"),
        ("10.0.0.1", [b"[2001:db8::5]"], "2001:db8::5"),
        ("10.0.0.1", [b"198.51.100.1, garbage"], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b"198.51.100.1, garbage, 10.0.0.2"], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b"198.51.100.1,"], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b""], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b"\xff\xfe"], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b"[::1"], UNKNOWN_ADDRESS),
        ("10.0.0.1", [b"1.2.3.4:x"], UNKNOWN_ADDRESS),
        (None, [b"198.51.100.1"], UNKNOWN_ADDRESS),
        ("/run/rookery.sock", [], UNKNOWN_ADDRESS),
    ],
)
def test_the_client_is_the_rightmost_address_that_is_no_trusted_proxy(peer: str | None, forwarded: list[bytes], client: str) -> None:
    """The address of the socket, unless a trusted proxy forwards another one. An unreadable address matches no list."""
    assert resolve_client_address(peer, forwarded, PROXIES) == client


@given(peer=addresses.map(str), forged=st.lists(st.binary(max_size=20), max_size=3))
def test_only_a_trusted_proxy_may_forward_an_address(peer: str, forged: list[bytes]) -> None:
    """X-Forwarded-For of an untrusted peer changes nothing."""
    if not contains(PROXIES, peer):
        assert resolve_client_address(peer, forged, PROXIES) == canonical_address(peer)


@given(forged=st.binary(max_size=40), client=v4.map(str))
def test_a_forwarded_address_written_by_the_client_is_ignored(forged: bytes, client: str) -> None:
    """The proxy appends the client's address to the right of what the client wrote."""
    if not contains(PROXIES, client):
        assert resolve_client_address("10.0.0.1", [forged + b"," + client.encode()], PROXIES) == client


def test_addresses_of_one_network_share_a_failure_budget() -> None:
    """One IPv6 client owns a /64, so a single address does not identify a client."""
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff") != client_network("2001:db8:0:1::1")
    assert client_network("192.0.2.1") == "192.0.2.1"
    assert client_network(UNKNOWN_ADDRESS) == UNKNOWN_ADDRESS


@pytest.mark.parametrize("entry", ["*", "0.0.0.0/0", "::/0", "nonsense", "", "10.0.0.1/33", "proxy.example"])
def test_an_invalid_proxy_list_prevents_the_start(entry: str) -> None:
    """Trusting every address would allow any client to claim any address."""
    with pytest.raises(WrongSettings):
        parse_proxies(["10.0.0.1", entry])


def test_proxies_are_addresses_or_ranges() -> None:
    """ROOKERY_TRUSTED_PROXIES accepts addresses and CIDR ranges."""
    assert parse_proxies(["10.0.0.1", "192.168.1.7/16", "::1"]) == parse_networks(["10.0.0.1", "192.168.0.0/16", "::1"])
    assert parse_proxies([]) == ()
