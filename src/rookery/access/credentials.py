"""
What of a request's headers concerns the guard: the key presented, the forwarded address, the workspace (D-15, D-22). Pure.

A key comes as `Authorization: Bearer`, as `X-API-Key`, or as the user name of `Authorization: Basic` with an empty
password. The query string is never looked at.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.access.errors import Unauthorised

LONGEST = 72
"""bcrypt refuses longer secrets with an exception; no key of ours is longer, so nothing longer is looked at."""

RANDOM_LENGTH = 32
LOOKUP_LENGTH = 8

_API_KEY = re.compile(rb"sk_(?:live|test)_[A-Za-z0-9]{32}")
_AGENT_KEY = re.compile(rb"ak_[A-Za-z0-9]{32}")
_LONGEST_HEADER = 512

_NO_KEY = "A key is required: send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
_NO_HEADER_OF_OURS = "The Authorization header is neither `Bearer KEY` nor Basic with the key as user name and an empty password."
_SEVERAL = "This request carries two different keys; send one."


@dataclass(slots=True)
class Presented:
    """
    What a request carries.

    Attributes:
        token: The key, of any form; empty: none.
        forwarded: The values of X-Forwarded-For, in order.
        workspace: The value of X-Workspace-ID.
    """

    token: bytes = b""
    forwarded: list[bytes] = field(default_factory=list[bytes])
    workspace: bytes | None = None


def presented(headers: Iterable[tuple[bytes, bytes]]) -> Presented:
    """
    Read *headers* (ASGI: names in lower case).

    Raises:
        Unauthorised: Two different keys, or an Authorization header that carries none.
    """
    found = Presented()
    for name, value in headers:
        if name == b"authorization":
            _take(found, _authorization(value))
        elif name == b"x-api-key":
            _take(found, value.strip() or found.token)
        elif name == b"x-forwarded-for":
            found.forwarded.append(value)
        elif name == b"x-workspace-id":
            found.workspace = value
    return found


def is_api_key(token: bytes) -> bool:
    """Tell whether *token* has the form of an API key (spec 5.2): what has not reaches neither database nor bcrypt."""
    return len(token) <= LONGEST and _API_KEY.fullmatch(token) is not None


def is_agent_key(token: bytes) -> bool:
    """Tell whether *token* has the form of an agent key (spec 5.3)."""
    return len(token) <= LONGEST and _AGENT_KEY.fullmatch(token) is not None


def lookup_of(token: bytes) -> str:
    """Return the part of an API key by which its row is found; the rest, 143 bits, is known to its holder alone."""
    start = len(token) - RANDOM_LENGTH
    return token[start : start + LOOKUP_LENGTH].decode("ascii")


def no_key() -> Unauthorised:
    """Return the refusal of a request without a key."""
    return Unauthorised(_NO_KEY)


def _take(found: Presented, token: bytes) -> None:
    if found.token and token != found.token:
        raise Unauthorised(_SEVERAL)
    found.token = token


def _authorization(value: bytes) -> bytes:
    if len(value) > _LONGEST_HEADER:
        raise Unauthorised(_NO_HEADER_OF_OURS)
    scheme, _, rest = value.partition(b" ")
    scheme = scheme.lower()
    token = rest.strip() if scheme == b"bearer" else _user_name(rest) if scheme == b"basic" else b""
    if not token:
        raise Unauthorised(_NO_HEADER_OF_OURS)
    return token


def _user_name(encoded: bytes) -> bytes:
    """Return the user name of Basic credentials (RFC 7617) whose password is empty, else nothing."""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
    user, colon, password = decoded.partition(b":")
    return user if colon and not password else b""
