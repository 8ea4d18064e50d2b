"""The address of a store on a server: `scheme://user:password@host:port/name?option=value`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from rookery.kernel.secret import Secret

COUNTS = frozenset(map(str, range(1, 1025)))
"""Allowed values of an option that is a number of shards or copies."""

_ADDRESS = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<user>[^:@/?]*):(?P<password>[^@/?]*)@)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/@?#\[\]]+)"
    r"(?::(?P<port>\d{1,5}))?(?:/(?P<name>[a-zA-Z0-9][a-zA-Z0-9_.-]{0,199})?)?(?:\?(?P<options>[^#]*))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreAddress:
    """The parts of an address. Its *name* is empty if the address has none."""

    base_url: str
    user: str | None
    password: Secret | None
    name: str
    options: Mapping[str, str]


def parse_store_address(
    address: str, *, schemes: Collection[str], default_port: int, options: Mapping[str, Collection[str]]
) -> StoreAddress | None:
    """
    Return the parts of *address*; None if it is invalid. An error must not contain it, because it may contain a password.

    Args:
        schemes: Those that are allowed. One that ends with "s" means TLS.
        options: The allowed values of each option.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or match["scheme"] not in schemes:
        return None
    values, port = dict(parse_qsl(match["options"] or "", keep_blank_values=True)), int(match["port"] or default_port)
    if not 0 < port < 2**16 or any(value not in options.get(name, ()) for name, value in values.items()):
        return None
    return StoreAddress(
        base_url=f"http{'s' if match['scheme'].endswith('s') else ''}://{match['host']}:{port}",
        user=None if match["user"] is None else unquote(match["user"]),
        password=None if match["password"] is None else Secret(unquote(match["password"])),
        name=match["name"] or "",
        options=values,
    )
