"""
Parsing of the request headers that the guard needs: the key, the forwarded address, the workspace. No I/O.

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
from rookery.kernel.safe_texts import redact

MAX_TOKEN_LENGTH = 72
"""Longest token in bytes. bcrypt raises an error for longer secrets, and all our keys are shorter."""

SECRET_LENGTH = 32
LOOKUP_LENGTH = 8

_API_KEY = re.compile(rb"sk_(?:live|test)_[A-Za-z0-9]{32}")
_AGENT_KEY = re.compile(rb"ak_[A-Za-z0-9]{32}")
_MAX_HEADER_LENGTH = 512

_MISSING_KEY_MESSAGE = "A key is required: send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."
_UNSUPPORTED_SCHEME_MESSAGE = "The Authorization header is neither `Bearer KEY` nor Basic with the key as user name and an empty password."
_EMPTY_KEY_MESSAGE = (
    "The header for the key is empty. If the client takes the key from a variable, such as ROOKERY_KEY, "
    "that variable is not set where the client was started."
)
_UNKNOWN_KEY_MESSAGE = "This key is unknown."
_VARIABLE = re.compile(
    r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,63})(?::-?[^}]*)?\}"  # a shell, Claude Code, Gemini CLI; env: VS Code, Cursor
    r"|\$(?:env:)?([A-Za-z_][A-Za-z0-9_]{0,63})"  # a shell; env: PowerShell
    r"|\{env:([A-Za-z_][A-Za-z0-9_]{0,63})\}"  # opencode
    r"|%([A-Za-z_][A-Za-z0-9_]{0,63})%"  # cmd of Windows
    r"|\{\{ ?(?:env\.)?([A-Za-z_][A-Za-z0-9_]{0,63}) ?\}\}"  # templates
)
"""A reference to a variable, as clients send it if the variable is not set, or if they do not replace variables."""
_UNSET_VALUES = frozenset({"undefined", "null", "None", "nil"})
"""The words that languages write for a variable without a value."""
_SEVERAL_KEYS_MESSAGE = "This request carries two different keys; send one."


@dataclass(slots=True)
class RequestCredentials:
    """
    The credentials of a request.

    Attributes:
        token: The key, in any format; empty: the request has no key.
        forwarded: The values of X-Forwarded-For, in order.
        workspace: The value of X-Workspace-ID.
        has_empty_header: A header for the key has no value.
    """

    token: bytes = b""
    has_empty_header: bool = False
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
            credentials.has_empty_header |= not value.strip()
            _add_token(credentials, value.strip() or credentials.token)
        elif name == b"x-forwarded-for":
            credentials.forwarded.append(value)
        elif name == b"x-workspace-id":
            credentials.workspace = value
    return credentials


def is_api_key(token: bytes) -> bool:
    """Return whether *token* has the format of an API key. Other tokens reach neither the database nor bcrypt."""
    return len(token) <= MAX_TOKEN_LENGTH and _API_KEY.fullmatch(token) is not None


def is_agent_key(token: bytes) -> bool:
    """Return whether *token* has the format of an agent key."""
    return len(token) <= MAX_TOKEN_LENGTH and _AGENT_KEY.fullmatch(token) is not None


def get_lookup(token: bytes) -> str:
    """Return the indexed part of an API key. The other 143 bits stay secret."""
    start = len(token) - SECRET_LENGTH
    return token[start : start + LOOKUP_LENGTH].decode("ascii")


def missing_key_error(credentials: RequestCredentials) -> Unauthorised:
    """Return the error for a request without a key."""
    return Unauthorised(_EMPTY_KEY_MESSAGE if credentials.has_empty_header else _MISSING_KEY_MESSAGE)


def unknown_key_error(token: bytes = b"") -> Unauthorised:
    """Return the error for a key that does not exist, or for a *token* that is no key, such as the name of a variable."""
    text = token.decode("latin-1")
    match = _VARIABLE.fullmatch(text)
    if match is not None:
        name = redact(next(group for group in match.groups() if group))  # a key may stand where a name belongs
        return Unauthorised(
            f"The client sent the name of a variable instead of a key: {name} is not set where the client was started, "
            "or the client does not replace variables in its settings."
        )
    if text in _UNSET_VALUES:
        return Unauthorised(
            f"The client sent {text!r} instead of a key: the variable for the key has no value where the client was started."
        )
    return Unauthorised(_UNKNOWN_KEY_MESSAGE)


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
    if not token and scheme in {b"bearer", b""} and not rest.strip():
        raise Unauthorised(_EMPTY_KEY_MESSAGE)
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
