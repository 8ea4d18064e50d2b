"""
Addresses and networks as keys know them (spec 5.3, D-28). Pure: no I/O, no settings.

One form for each: an IPv4-mapped IPv6 address is the IPv4 address, a network has no host bits. What cannot be read is
never an address, so it matches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from rookery.kernel.errors import WrongSettings

Network = IPv4Network | IPv6Network

UNKNOWN_ADDRESS = "unknown"
"""Stands for the address of a caller that has none we can read; it is in no network."""

_IPV4_MAPPED = IPv6Network("::ffff:0:0/96")
_MAX_ENTRY_LENGTH = 64
"""Characters; more than any address or network needs, so that a line of a megabyte is refused without being read."""


@lru_cache(maxsize=4096)
def canonical_address(text: str) -> str | None:
    """Return the one form of the address *text*, or None if it is none; zone ids, ports and spaces are refused."""
    address = _parse_address(text)
    return None if address is None else str(address)


def canonical_network(text: str) -> str | None:
    """Return the one form of an address or a CIDR range, host bits cleared, or None if *text* is neither."""
    network = _parse_network(text)
    if network is None:
        return None
    return str(network.network_address) if network.num_addresses == 1 else str(network)


def parse_networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of *entries*; what is not readable is left out, so it allows nobody."""
    return tuple(network for entry in entries if (network := _parse_network(entry)) is not None)


def parse_proxies(entries: Iterable[str]) -> tuple[Network, ...]:
    """
    Return the networks of ROOKERY_TRUSTED_PROXIES.

    Raises:
        WrongSettings: An entry that is neither address nor range, or one that trusts everybody, so that anybody could
            claim any address.
    """
    found: list[Network] = []
    for entry in entries:
        network = _parse_network(entry)
        if network is None or network.prefixlen == 0:
            reason = "trusts everybody" if network is not None or entry == "*" else "is neither an address nor a CIDR range"
            msg = f"ROOKERY_TRUSTED_PROXIES: {entry[:_MAX_ENTRY_LENGTH]!r} {reason}"
            raise WrongSettings(msg)
        found.append(network)
    return tuple(found)


def contains(allowed: Sequence[Network], address: str) -> bool:
    """Tell whether *address* lies in one of *allowed*; garbage, and anything in an empty list, does not."""
    parsed = _parse_address(address)
    return parsed is not None and any(parsed.version == network.version and parsed in network for network in allowed)


def covers_all(outer: Sequence[Network], inner: Sequence[Network]) -> bool:
    """Tell whether each of *inner* lies wholly in one of *outer*; nothing lies in everything."""
    return all(any(_is_subnet(each, other) for other in outer) for each in inner)


def parse_list(text: str | Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """
    Read a pasted list, one entry per line; empty lines and those that start with # do not count (spec 5.3).

    Returns:
        The entries in their one form, each once, in order; and `<input>: Invalid IP address` for each bad line.
    """
    lines = text.splitlines() if isinstance(text, str) else text
    good: dict[str, None] = {}
    wrong: list[str] = []
    for line in lines:
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        network = canonical_network(entry)
        if network is None:
            wrong.append(f"{entry[:_MAX_ENTRY_LENGTH]}: Invalid IP address")
        else:
            good[network] = None
    return tuple(good), wrong


def resolve_client_address(peer: str | None, forwarded: Sequence[bytes], trusted: Sequence[Network]) -> str:
    """
    Return the client's address in its one form, or `UNKNOWN_ADDRESS`.

    Args:
        peer: The socket's other end.
        forwarded: The values of all X-Forwarded-For headers, in order; believed only when *peer* is in *trusted*.
        trusted: Networks of the proxies; the rightmost address outside them is the client (D-28). One that cannot be
            read ends the walk: who stands behind it is not known, and guessing would open a restricted key.
    """
    client = canonical_address(peer) if peer else None
    if client is None:
        return UNKNOWN_ADDRESS
    if not trusted or not contains(trusted, client):
        return client
    for part in reversed(b",".join(forwarded).split(b",")) if forwarded else ():
        hop = canonical_address(_without_port(part.decode("latin-1").strip()))
        if hop is None:
            return UNKNOWN_ADDRESS
        client = hop
        if not contains(trusted, hop):
            break
    return client


@lru_cache(maxsize=4096)
def client_network(address: str) -> str:
    """Return what one client may be assumed to own: its IPv4 address, or the /64 of its IPv6 address."""
    parsed = _parse_address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((int(parsed) >> 64 << 64, 64)))
    return address


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    if len(text) > _MAX_ENTRY_LENGTH or "%" in text:
        return None
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def _parse_network(text: str) -> Network | None:
    if len(text) > _MAX_ENTRY_LENGTH or "%" in text:
        return None
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    if isinstance(network, IPv6Network) and network.subnet_of(_IPV4_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network


def _is_subnet(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network):
        return isinstance(outer, IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, IPv6Network) and inner.subnet_of(outer)


def _without_port(text: str) -> str:
    """Drop the port that some proxies add: `192.0.2.1:50000`, `[2001:db8::1]:50000`, `[2001:db8::1]`."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        return inside if bracket and (not rest or _is_port(rest)) else text
    host, colon, port = text.partition(":")
    return host if colon and _is_port(f":{port}") else text


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isascii() and text[1:].isdigit()
