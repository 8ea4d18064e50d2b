"""
The paths of an OAuth sign-in, which Rookery does not have.

MCP clients try them after a refused key, and some before the first request. The error is all that many of them show, so it says what is
wrong with the key.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import cast

from starlette.types import Scope

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import RouteNotFound
from rookery.kernel.http.routes import RequestGuard

_PATH = re.compile(
    r"(?:/mcp(?:/[^/]+)?)?/(?:register|authorize|token"
    r"|\.well-known/(?:oauth-protected-resource|oauth-authorization-server|openid-configuration)(?:/.*)?)/?"
)
_NO_SIGN_IN = "Rookery has no OAuth sign-in. Clients send a key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`."


class NoOAuth(RouteNotFound):
    """No OAuth sign-in exists. `error_description` is the message, which OAuth clients show (RFC 6749, section 5.2)."""

    def __init__(self, refusal: RookeryError | None) -> None:
        message = _NO_SIGN_IN if refusal is None else f"{_NO_SIGN_IN} The key of this request was refused: {refusal.message}"
        super().__init__(message, error_description=message)


async def find_oauth_error(scope: Scope, path: str, guard: RequestGuard | None) -> NoOAuth | None:
    """Return the error of a request to a path of OAuth, with the reason why its key is refused; None for other paths."""
    if not _PATH.fullmatch(path):
        return None
    return NoOAuth(None if guard is None else await _find_refusal(scope, guard))


async def _find_refusal(scope: Scope, guard: RequestGuard) -> RookeryError | None:
    if not {name for name, _ in scope["headers"]} & {b"authorization", b"x-api-key"}:
        return None
    try:
        await guard.admit(cast("MutableMapping[str, object]", scope), required_scope=None, rate_limited=False)
    except RookeryError as error:
        return error if error.status < HTTPStatus.INTERNAL_SERVER_ERROR else None
    return None
