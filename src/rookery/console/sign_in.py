"""Sign in with a key, sign out, and change between keys."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from rookery.access.rate_limits import MINUTE_US, RateLimit
from rookery.access.scopes import grants
from rookery.console.cookies import SessionCookies, SignedInKey
from rookery.console.ports import ConsolePorts
from rookery.console.rendering import ConsoleTemplates
from rookery.console.visit import parse_form, record_action
from rookery.kernel.clock import to_micros
from rookery.kernel.http.request_body import read_body
from rookery.kernel.sentences import format_count
from rookery_client import ApiError, AsyncRookery
from rookery_client.generated import models

SIGN_IN_SCOPE = "console:read"
_MAX_FORM_BYTES = 16 * 1024
_MAX_KEY_CHARS = 200
_MAX_INDEX_CHARS = 4
_NEXT_PAGE = re.compile(r"[a-z][a-z0-9/_-]{0,200}", re.IGNORECASE)
_FAILURES = RateLimit(10, MINUTE_US, has_absolute_reset=False)
"""Failed sign-ins of one address. Further attempts wait, also those with a correct key."""

OpenClient = Callable[[Scope, str], AsyncRookery]
"""Returns a client with a key for the browser of an ASGI scope."""


class SignIn:
    """The pages with which a browser signs in and out."""

    def __init__(self, ports: ConsolePorts, cookies: SessionCookies, templates: ConsoleTemplates, open_client: OpenClient) -> None:
        self._ports = ports
        self._cookies = cookies
        self._templates = templates
        self._open_client = open_client
        self._attempts: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def show(self, *, next_page: str = "", error: str = "", status: int = 200) -> Response:
        content: dict[str, object] = {"next_page": next_page, "error": error, "organization": self._ports.organization}
        return self._templates.render("sign_in.html", content, status=status)

    async def get(self, request: Request) -> Response:
        """Show the form."""
        error = "The key of this session is no longer accepted. Sign in with another one." if "refused" in request.query_params else ""
        return self.show(next_page=_get_next_page(request.query_params.get("next", "")), error=error)

    async def post(self, request: Request) -> Response:
        """Sign in with the key of the form, and go to the page that was asked for."""
        form = await _read_form(request)
        key, next_page = form.get("key", "").strip()[:_MAX_KEY_CHARS], _get_next_page(form.get("next", ""))
        address = self._ports.find_address(request.scope)
        name = f"console sign-in {address}"
        # One attempt of an address at a time: attempts with a correct key that run at the same time do not use up the limit.
        async with self._attempts.setdefault(address, asyncio.Lock()):
            status = await self._ports.limiter.consume(name, _FAILURES, to_micros(self._ports.clock()))
            if status.is_over:
                message = f"Too many failed attempts came from {address}. Try again in {format_count(status.reset_in_s, 'second')}."
                return self.show(next_page=next_page, error=message, status=429)
            has_failed = False
            try:
                own_key = await self._check(request, key)
            except ApiError as error:
                has_failed = error.status < HTTPStatus.INTERNAL_SERVER_ERROR  # otherwise the server failed, and not the key
                if has_failed:
                    await record_action(self._ports, request, "console.sign_in_failed", {"reason": error.code}, None)
                return self.show(next_page=next_page, error=error.message, status=error.status)
            finally:
                if not has_failed:
                    await self._ports.limiter.refund(name, status)
        await record_action(self._ports, request, "console.signed_in", {}, own_key)
        entry = SignedInKey(key, str(getattr(own_key, "name", "")), own_key.workspace_name)
        response = _redirect(next_page)
        await self._cookies.write(request, response, self._cookies.add_key(await self._cookies.read(request), entry))
        return response

    async def sign_out(self, request: Request) -> Response:
        """End the sign-in of the active key, also in copies of the cookie. If the session has another key, the pages use it."""
        session = await self._cookies.read(request)
        remaining = None if session is None else await self._cookies.sign_out(session)
        response = _redirect("" if remaining else "sign-in")
        if remaining is None:
            self._cookies.delete(request, response)
        else:
            await self._cookies.write(request, response, remaining)
        return response

    async def switch(self, request: Request) -> Response:
        """Use another key of the session."""
        session = await self._cookies.read(request)
        response = _redirect("" if session else "sign-in")
        index = (await _read_form(request)).get("key", "")
        if session is not None and index.isdecimal() and len(index) < _MAX_INDEX_CHARS:
            await self._cookies.write(request, response, session.select(int(index)))
        return response

    async def _check(self, request: Request, key: str) -> models.Who:
        """
        Return the key's own description.

        Raises:
            ApiError: The key is refused, or may not sign in.
        """
        if not key or not key.isascii() or not key.isprintable():
            raise ApiError("Enter an API key (sk_live_…) or an agent key (ak_…).", status=422, code="validation_error", detail={})
        async with self._open_client(request.scope, key) as client:
            own_key = await client.keys.get_current_key()
        if not grants(read_scopes(own_key), SIGN_IN_SCOPE):
            message = f"This key has no scope {SIGN_IN_SCOPE}. Sign in with another key, or add the scope to this one."
            raise ApiError(message, status=403, code="scope_missing", detail={"required_scope": SIGN_IN_SCOPE})
        return own_key


def read_scopes(own_key: models.Who) -> frozenset[str]:
    """Return the scopes of an API key, or the permissions of an agent key."""
    return frozenset(own_key.scopes or own_key.permissions or [])


def sign_in_location(base: str, page: str, *, refused: bool = False) -> str:
    """Return the relative URL of the sign-in page that leads back to *page*. *refused*: it says that the key is no longer accepted."""
    fields = {"next": page if _NEXT_PAGE.fullmatch(page) else "", "refused": "yes" if refused else ""}
    query = urlencode({name: value for name, value in fields.items() if value})
    return f"{base}sign-in" + (f"?{query}" if query else "")


def _get_next_page(text: str) -> str:
    """Return *text* if it is a path below `/console/`, so that no link leads to another site after sign-in."""
    return text if _NEXT_PAGE.fullmatch(text) and "//" not in text else ""


def _redirect(page: str) -> Response:
    return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": page or "./"})


async def _read_form(request: Request) -> dict[str, str]:
    raw = await read_body(request.receive, limit=_MAX_FORM_BYTES, scope=request.scope)
    return dict(parse_form(raw, max_fields=10))
