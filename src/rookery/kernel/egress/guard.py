"""
Checks of the addresses that outgoing requests connect to.

A user who adds a URL also chooses its DNS server, which may answer late. Look-ups of hosts that were slow before share a few threads, so
that they cannot delay the look-ups of other hosts.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

from rookery.kernel.errors import RookeryError, WrongSettings

LookUp = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host name and may block; raises OSError if the name has no address."""

_MAX_LOOKUPS = 32
_MAX_SLOW_LOOKUPS = 4
_MAX_SLOW_HOSTS = 1_000
_SLOW_THRESHOLD_S = 1.0

_DNS_TIMEOUT_S = 5.0

_LOOPBACK_VALUE = '= ["127.0.0.0/8", "::1/128"]'
"""The value for names of this host, such as localhost, which may have an address of each family."""

_GUIDE = "docs/how-to/manage-tool-servers.md#allowed-addresses"

_NAT64_NETWORK = IPv6Network("64:ff9b::/96")
_SITE_LOCAL_NETWORK = IPv6Network("fec0::/10")


class DnsResolver:
    """A DNS resolver that runs at most one look-up per name at a time."""

    def __init__(self, look_up: LookUp | None = None, *, slow_threshold_s: float = _SLOW_THRESHOLD_S) -> None:
        self._slow_threshold_s = slow_threshold_s
        self._look_up = look_up or _resolve_with_system
        self._threads = ThreadPoolExecutor(_MAX_LOOKUPS, thread_name_prefix="egress-names")
        self._slow_threads = ThreadPoolExecutor(_MAX_SLOW_LOOKUPS, thread_name_prefix="egress-slow-names")
        self._slow_hosts: dict[str, None] = {}
        self._pending: dict[tuple[str, int], asyncio.Future[Sequence[str]]] = {}

    @property
    def pending_count(self) -> int:
        """The number of look-ups that have not finished."""
        return len(self._pending)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of *host*. A cancelled caller does not cancel the look-up, which other callers may share."""
        loop = asyncio.get_running_loop()
        lookup = self._pending.get((host, port))
        if lookup is None or lookup.get_loop() is not loop:
            threads = self._slow_threads if host in self._slow_hosts else self._threads
            lookup = self._pending[host, port] = loop.run_in_executor(threads, self._look_up, host, port)
            lookup.add_done_callback(lambda future: self._on_done((host, port), future))
        began = time.monotonic()
        try:
            addresses = await asyncio.shield(lookup)
        except asyncio.CancelledError:
            if time.monotonic() - began > self._slow_threshold_s:
                self._slow_hosts[host] = None
                if len(self._slow_hosts) > _MAX_SLOW_HOSTS:
                    del self._slow_hosts[next(iter(self._slow_hosts))]
            raise
        self._slow_hosts.pop(host, None)
        return addresses

    def _on_done(self, key: tuple[str, int], future: asyncio.Future[Sequence[str]]) -> None:
        if self._pending.get(key) is future:
            del self._pending[key]
        if not future.cancelled():
            future.exception()  # marks the exception as retrieved, even if no caller waited for it


def _resolve_with_system(host: str, port: int) -> Sequence[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host name; raises OSError if the name has no address."""

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network


_PRIVATE_NETWORKS: tuple[_Network, ...] = tuple(
    ip_network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7")
)
"""RFC 1918, RFC 6598 (carrier-grade NAT and overlay networks) and RFC 4193."""

_METADATA_NETWORKS: tuple[_Network, ...] = tuple(
    ip_network(network)
    for network in (
        "169.254.169.254/32",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
)
"""Metadata services, where clouds give a machine its credentials. Not all are in ranges that are rejected anyway."""


class AddressRefused(RookeryError):
    """
    A login at a tool server uses an address that is not allowed; see `ROOKERY_EGRESS_ALLOW`.

    For the `url` of a webhook or server, the code is `validation_error` with `errors.url`.
    """

    status, code = 422, "address_refused"


class HostNotResolved(AddressRefused):
    """The host name has no address, or the DNS server did not answer. It may have one later."""


class EgressGuard:
    """
    A check of addresses against the operator's settings.

    Args:
        allow: CIDR ranges that are always allowed (ROOKERY_EGRESS_ALLOW).
        allow_private: Allow private ranges (ROOKERY_EGRESS_PRIVATE).
        resolve: Resolves host names; tests pass their own.

    Raises:
        WrongSettings: *allow* has an entry that is neither an address nor a CIDR range.
    """

    def __init__(self, *, allow: Sequence[str] = (), allow_private: bool = False, resolve: Resolve | None = None) -> None:
        self._allow = tuple(_parse_network(network) for network in allow)
        self._allow_private = allow_private
        self._resolve = resolve or DnsResolver().resolve

    async def resolve_allowed(self, host: str, port: int) -> tuple[str, ...]:
        """
        Return the addresses of *host*, all allowed, in the order in which to try them.

        Raises:
            AddressRefused: The host has no address, or one of its addresses is not allowed. The message does not contain the
                address, so that names of an internal network stay private.
        """
        name = host.removeprefix("[").removesuffix("]")
        literal = _parse_address(name)
        if literal is not None:
            self._require_allowed(literal, f"{name} is", f'= ["{ip_network(literal)}"]')
            return (str(literal),)
        try:
            async with asyncio.timeout(_DNS_TIMEOUT_S):
                address_texts = await self._resolve(name, port)
        except (OSError, UnicodeError, TimeoutError):
            address_texts = ()
        addresses = [_parse_address(text) for text in address_texts]
        if not addresses:
            raise HostNotResolved(f"The host name {name[:253]!r} has no address.")
        for address in addresses:
            if address is None:
                raise AddressRefused(f"The host name {name[:253]!r} has an invalid address.")
            self._require_allowed(address, f"the host name {name!r} has", _LOOPBACK_VALUE if address.is_loopback else "with its address")
        return tuple(dict.fromkeys(str(address) for address in addresses))

    async def require_allowed_url(self, url: str) -> None:
        """
        Check that the host of *url* may be connected to.

        Raises:
            AddressRefused: It may not, or *url* is not an http or https URL.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
            parts = urlsplit("")
        if parts.scheme not in {"http", "https"} or not host:
            raise AddressRefused("The URL must begin with http:// or https:// and name a host.")
        await self.resolve_allowed(host, port or (443 if parts.scheme == "https" else 80))

    def _require_allowed(self, address: _Address, subject: str, value: str) -> None:
        """Raise if the address is not allowed. *value* is the advice for egress_allow, which does not show the address of a name."""
        if any(address in network for network in self._allow):
            return
        kind = _classify_address(address)
        if kind == "public" or (kind == "private" and self._allow_private):
            return
        article = "an" if kind[0] in "aeiou" else "a"
        ways = ["egress_private = true"] if kind == "private" else []
        ways.append(f"egress_allow {value}")
        raise AddressRefused(
            f"Rookery does not connect to this address: {subject} {article} {kind} address. The operator can allow it by"
            f" {' or '.join(ways)} in rookery.toml, and a restart; see {_GUIDE}."
        )


def _classify_address(address: _Address) -> str:
    """Return the kind of *address*. An IPv6 address that embeds an IPv4 address is classified by the latter."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64_NETWORK:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _classify_address(inner)
    if any(address in network for network in _METADATA_NETWORKS):
        return "metadata"
    if any(address in network for network in _PRIVATE_NETWORKS):
        return "private"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local or address in _SITE_LOCAL_NETWORK:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    return "public" if address.is_global and not address.is_reserved else "reserved"


def _parse_address(text: str) -> _Address | None:
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _parse_network(text: str) -> _Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise WrongSettings(f"ROOKERY_EGRESS_ALLOW: {text[:64]!r} is neither an address nor a CIDR range") from None
