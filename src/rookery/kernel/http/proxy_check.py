"""
The check of a proxy: what arrives of an address that a client made up. `rookery doctor` sends it through the public address.

The answer has addresses of the operator's network, so it is given only to a request that has a value encrypted with the secret key.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import cast

from starlette.types import Scope

from rookery.kernel.egress.transport import get_tls_context
from rookery.kernel.errors import RookeryError
from rookery.kernel.sealing import KeySource, SealContext
from rookery.kernel.sealing.keys import parse_key_id

CLAIMED_ADDRESS = "203.0.113.77"
"""An address that no client has (RFC 5737)."""

_PROOF_HEADER, _ARRIVAL_HEADER = "x-rookery-proxy-check", "x-rookery-arrival"
_CONTEXT = SealContext("proxy check", 0, "")
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """
    A request as it arrived at the server.

    Attributes:
        peer: The address of the connection.
        forwarded: The value of X-Forwarded-For, empty if it is missing.
    """

    peer: str
    forwarded: str


def describe_arrival(scope: Scope, keys: KeySource) -> Mapping[str, str]:
    """Return the header that describes how this request arrived; none if it does not come from this installation."""
    headers = cast("list[tuple[bytes, bytes]]", scope["headers"])
    proof = next((value for name, value in headers if name == _PROOF_HEADER.encode("ascii")), None)
    if proof is None or not _is_valid(proof, keys):
        return {}
    client = cast("tuple[str, int] | None", scope.get("client"))
    forwarded = b", ".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
    arrival = {"peer": client[0] if client else "", "forwarded": forwarded[:1000]}
    return {_ARRIVAL_HEADER: json.dumps(arrival)}


def fetch_arrival(base_url: str, keys: KeySource) -> Arrival | None:
    """
    Return how a request with a made-up address arrives through *base_url*; None if another program or installation answers.

    Raises:
        OSError: Nothing answers there.
    """
    key = next(iter(keys.load_keys().values()), None)
    if key is None:
        return None
    proof = base64.b64encode(key.seal(b"", _CONTEXT)).decode("ascii")
    request = urllib.request.Request(  # noqa: S310 - the public address in the settings
        f"{base_url.rstrip('/')}/healthz", headers={_PROOF_HEADER: proof, "X-Forwarded-For": CLAIMED_ADDRESS}
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=get_tls_context()))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as response:
            described = cast("str | None", response.headers.get(_ARRIVAL_HEADER))
    except (urllib.error.HTTPError, HTTPException, ValueError):
        return None
    if described is None:
        return None
    fields = cast("dict[str, str]", json.loads(described))
    return Arrival(peer=fields["peer"], forwarded=fields["forwarded"])


def _is_valid(proof: bytes, keys: KeySource) -> bool:
    try:
        sealed = base64.b64decode(proof, validate=True)
        key = keys.load_keys().get(parse_key_id(sealed) or "")
        return key is not None and key.open(sealed, _CONTEXT) == b""
    except (ValueError, RookeryError):
        return False
