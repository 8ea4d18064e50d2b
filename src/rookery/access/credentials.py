"""
Parsing of the request headers that the guard needs: the key, the forwarded address, the workspace (D-15, D-22). No I/O.

A key is sent as `Authorization: Bearer`, as `X-API-Key`, or as the user name of `Authorization: Basic` with an empty
password. The query string is never read.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rookery.access.errors import Unauthorised

MAX_TOKEN_LENGTH = 72
"""Longest token in bytes. bcrypt raises an error for longer secrets, and all our keys are shorter."""

SECRET_LENGTH = 32
LOOKUP_LENGTH = 8

_API_KEY = re.compile(rb"sk_(?:live|test)_[A-Za-z0-9]{32}")
_AGENT_KEY = re.compile(rb"ak_[A-Za-z0-9]{32}")
_MAX_HEADER_LENGTH = 512

_MISSING_KEY_MESSAGE = "A key is required: send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
_UNSUPPORTED_SCHEME_MESSAGE = "The Authorization header is neither `Bearer KEY` nor Basic with the key as user name and an empty password."
_SEVERAL_KEYS_MESSAGE = "This request carries two different keys; send one."


@dataclass(slots=True)
class RequestCredentials:
    """
    The credentials of a request.

    Attributes:
        token: The key, in any format; empty: the request has no key.
        forwarded: The values of X-Forwarded-For, in order.
        workspace: The value of X-Workspace-ID.
    """

    token: bytes = b""
    forwarded: list[bytes] = field(default_factory=list[bytes])
    workspace: bytes | None = None


def parse_credentials(headers: Iterable[tuple[bytes, bytes]]) -> RequestCredentials:
    """
    Parse *headers* (ASGI: names in lower case).

    Raises:
        Unauthorised: Two different keys, or an Authorization header without a key.
    """
    credentials = RequestCredentials()
    for name, value in headers:
        if name == b"authorization":
            _add_token(credentials, _parse_authorization(value))
        elif name == b"x-api-key":
            _add_token(credentials, value.strip() or credentials.token)
        elif name == b"x-forwarded-for":
            credentials.forwarded.append(value)
        elif name == b"x-workspace-id":
            credentials.workspace = value
    return credentials


def is_api_key(token: bytes) -> bool:
    """Return whether *token* has the format of an API key (spec 5.2). Other tokens reach neither the database nor bcrypt."""
    return len(token) <= MAX_TOKEN_LENGTH and _API_KEY.fullmatch(token) is not None


def is_agent_key(token: bytes) -> bool:
    """Return whether *token* has the format of an agent key (spec 5.3)."""
    return len(token) <= MAX_TOKEN_LENGTH and _AGENT_KEY.fullmatch(token) is not None


def get_lookup(token: bytes) -> str:
    """Return the indexed part of an API key. The other 143 bits stay secret."""
    start = len(token) - SECRET_LENGTH
    return token[start : start + LOOKUP_LENGTH].decode("ascii")


def missing_key_error() -> Unauthorised:
    """Return the error for a request without a key."""
    return Unauthorised(_MISSING_KEY_MESSAGE)


def _add_token(credentials: RequestCredentials, token: bytes) -> None:
    if credentials.token and token != credentials.token:
        raise Unauthorised(_SEVERAL_KEYS_MESSAGE)
    credentials.token = token


def _parse_authorization(value: bytes) -> bytes:
    if len(value) > _MAX_HEADER_LENGTH:
        raise Unauthorised(_UNSUPPORTED_SCHEME_MESSAGE)
    scheme, _, rest = value.partition(b" ")
    scheme = scheme.lower()
    token = rest.strip() if scheme == b"bearer" else _parse_basic_user(rest) if scheme == b"basic" else b""
    if not token:
        raise Unauthorised(_UNSUPPORTED_SCHEME_MESSAGE)
    return token


def _parse_basic_user(encoded: bytes) -> bytes:
    """Return the user name of Basic credentials (RFC 7617) if the password is empty, else an empty string."""
    try:
        decoded = base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""
    user, colon, password = decoded.partition(b":")
    return user if colon and not password else b""
