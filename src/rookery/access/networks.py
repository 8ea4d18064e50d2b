"""
IP addresses and networks of keys and clients. No I/O, no settings.

Each has one canonical form: an IPv4-mapped IPv6 address is the IPv4 address, and a network has no host bits. An invalid
address matches no network.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from rookery.kernel.errors import WrongSettings

Network = IPv4Network | IPv6Network

UNKNOWN_ADDRESS = "unknown"
"""The address of a client without a valid one. It is in no network."""

_IPV4_MAPPED = IPv6Network("::ffff:0:0/96")
_MAX_ENTRY_LENGTH = 64
"""Maximum characters of an entry. Longer ones are rejected without being parsed."""


@lru_cache(maxsize=4096)
def canonical_address(text: str) -> str | None:
    """Return the canonical form of an address, or None if it is invalid. Zone ids, ports and spaces are invalid."""
    address = _parse_address(text)
    return None if address is None else str(address)


def canonical_network(text: str) -> str | None:
    """Return the canonical form of an address or CIDR range, with host bits cleared; None if *text* is neither."""
    network = _parse_network(text)
    if network is None:
        return None
    return str(network.network_address) if network.num_addresses == 1 else str(network)


def parse_networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks of *entries*. Invalid entries are skipped, so they allow no address."""
    return tuple(network for entry in entries if (network := _parse_network(entry)) is not None)


def parse_proxies(entries: Iterable[str]) -> tuple[Network, ...]:
    """
    Return the networks of ROOKERY_TRUSTED_PROXIES.

    Raises:
        WrongSettings: An entry is neither an address nor a range, or it covers all addresses: any client could then claim
            any address.
    """
    networks: list[Network] = []
    for entry in entries:
        network = _parse_network(entry)
        if network is None or network.prefixlen == 0:
            reason = "trusts every address" if network is not None or entry == "*" else "is neither an address nor a CIDR range"
            msg = f"ROOKERY_TRUSTED_PROXIES: {entry[:_MAX_ENTRY_LENGTH]!r} {reason}; list the proxies, such as 10.0.0.5 or 10.0.0.0/24"
            raise WrongSettings(msg)
        networks.append(network)
    return tuple(networks)


def contains(allowed: Sequence[Network], address: str) -> bool:
    """Return whether *address* is in one of *allowed*. False for an invalid address and for an empty list."""
    parsed = _parse_address(address)
    return parsed is not None and any(parsed.version == network.version and parsed in network for network in allowed)


def covers_all(outer: Sequence[Network], inner: Sequence[Network]) -> bool:
    """Return whether each of *inner* is a subnet of one of *outer*. True if *inner* is empty."""
    return all(any(_is_subnet(network, other) for other in outer) for network in inner)


def parse_list(text: str | Iterable[str]) -> tuple[tuple[str, ...], list[str]]:
    """
    Parse a list of addresses, one per line. Empty lines and lines that start with # are skipped.

    Returns:
        The canonical entries without duplicates, in order; and `<input>: Invalid IP address` for each invalid line.
    """
    lines = text.splitlines() if isinstance(text, str) else text
    valid_networks: dict[str, None] = {}
    errors: list[str] = []
    for line in lines:
        entry = line.strip()
        if not entry or entry.startswith("#"):
            continue
        network = canonical_network(entry)
        if network is None:
            errors.append(f"{entry[:_MAX_ENTRY_LENGTH]}: Invalid IP address")
        else:
            valid_networks[network] = None
    return tuple(valid_networks), errors


def resolve_client_address(peer: str | None, forwarded: Sequence[bytes], trusted: Sequence[Network]) -> str:
    """
    Return the client's canonical address, or `UNKNOWN_ADDRESS`.

    Args:
        peer: The peer address of the socket.
        forwarded: The values of all X-Forwarded-For headers, in order. Ignored unless *peer* is in *trusted*.
        trusted: Networks of the proxies. The rightmost address outside them is the client. An invalid address ends
            the search with `UNKNOWN_ADDRESS`: a guess could admit a client to a restricted key.
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
    """Return the network that one client may control: its IPv4 address, or the /64 of its IPv6 address."""
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
    """Remove the port that some proxies add: `192.0.2.1:50000`, `[2001:db8::1]:50000`, `[2001:db8::1]`."""
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        return inside if bracket and (not rest or _is_port(rest)) else text
    host, colon, port = text.partition(":")
    return host if colon and _is_port(f":{port}") else text


def _is_port(text: str) -> bool:
    return text.startswith(":") and text[1:].isascii() and text[1:].isdigit()
