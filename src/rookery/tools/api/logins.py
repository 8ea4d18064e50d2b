"""
Logging in at upstreams without a terminal (D-31): `POST /servers/{id}/login` gives an address, and its answer comes to a page of ours.

The page asks once more before it does anything: whoever opens the address gives a workspace the right to act in their name, and a
link to it may have come from anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from fastapi import Query as FromQuery
from pydantic import ConfigDict
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.guard import caller_of
from rookery.access.models import TEST, Actor, Caller
from rookery.kernel.clock import Clock
from rookery.kernel.egress import AddressRefused
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.http import Described, Route, describe, reply
from rookery.kernel.http.bodies import read_body
from rookery.kernel.wire import Answer, Moment, Query
from rookery.tools.api.pages import Pages
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import Disabled, LoginFailed, NoLogin, ServerNotFound, TestKeyRefused
from rookery.tools.models import Server
from rookery.tools.servers.logins import CONSENT, Logins

READ, WRITE = "servers:read", "servers:write"
CALLBACK = "/oauth/callback"
DOCUMENT = "/oauth/client.json"

_MAX_FORM = 16 * 1024
_MAX_FIELDS = 20
_MAX_WORDS = 300

_of_server = describe(errors=(Disabled, ServerNotFound))
_page_that_says_why = describe(
    media=("text/html",),
    answers={status: Described(says="The login came to nothing.", media=("text/html",)) for status in (400, 409, 422, 503)},
)


class LoginAnswer(Answer):
    """
    How it stands with a login.

    Attributes:
        logged_in: Somebody has logged in, for this workspace or for all; whether it still counts shows the server's health.
    """

    server: str
    logged_in: bool


class LoginBegun(Answer):
    """Where consent is given, in a browser; until when it may be."""

    server: str
    authorization_url: str
    expires_at: Moment


class CallbackQuery(Query):
    """What an authorisation server answers (RFC 6749, 4.1.2; RFC 9207); some add words of their own."""

    model_config = ConfigDict(extra="ignore")

    state: str = ""
    code: str = ""
    iss: str | None = None
    error: str = ""
    error_description: str = ""


@dataclass(frozen=True, slots=True)
class LoginRoutes:
    """
    Begins logins, and takes their answers.

    Attributes:
        address: Scheme and host under which others reach us (D-01).
    """

    logins: Logins
    catalogue: Catalogue
    clock: Clock
    address: str

    def routes(self) -> list[Route]:
        """Return those under {api_url}'s prefix."""
        one, tags = "/servers/{server_id}/login", ("Tool servers",)
        return [
            Route(method="GET", path=one, handler=self.get_login, needs=READ, answers=LoginAnswer,
                  operation_id="get_server_login", summary="Show whether the workspace is logged in at a tool server", tags=tags),
            Route(method="POST", path=one, handler=self.post_login, needs=WRITE, answers=LoginBegun,
                  operation_id="start_server_login", summary="Start a login at a tool server", tags=tags),
            Route(method="DELETE", path=one, handler=self.delete_login, needs=WRITE, status=204,
                  operation_id="delete_server_login", summary="Log out at a tool server", tags=tags),
        ]  # fmt: skip

    def host_routes(self) -> list[Route]:
        """Return those at the root of {api_url}, which a browser opens and an authorisation server reads: they need no key."""
        tags = ("Tool servers",)
        return [
            Route(method="GET", path=CALLBACK, handler=self.get_callback, needs=None, public=True,
                  operation_id="confirm_login", summary="Receive the redirect of an OAuth login", tags=tags),
            Route(method="POST", path=CALLBACK, handler=self.post_callback, needs=None, public=True,
                  operation_id="finish_login", summary="Finish an OAuth login", tags=tags),
            Route(method="GET", path=DOCUMENT, handler=self.get_document, needs=None, public=True,
                  operation_id="get_oauth_client", summary="Show Rookery's OAuth client metadata", tags=tags),
        ]  # fmt: skip

    @_of_server
    async def get_login(self, request: Request, server_id: str) -> Response:
        """Return whether there is a login at the tool server. Tokens are never returned."""
        caller = caller_of(request)
        server = self.catalogue.server(caller, server_id)
        return reply(LoginAnswer(server=server.id, logged_in=await self.logins.has(server, _whose(caller, server))))

    @_of_server
    @describe(errors=(AddressRefused, LoginFailed, NoLogin, TestKeyRefused))
    async def post_login(self, request: Request, server_id: str) -> Response:
        """Discover the authorisation server of a tool server, and return the address to open in a browser."""
        caller = _must_be_live(caller_of(request))
        server = self.catalogue.server(caller, server_id)
        document = self.address + DOCUMENT if urlsplit(self.address).scheme == "https" else None
        begun = await self.logins.begin(
            server, _whose(caller, server), Actor.of(caller), redirect_uri=self.address + CALLBACK, document=document
        )
        await self.logins.keep_begun(begun)
        until: datetime = self.clock() + CONSENT
        return reply(LoginBegun(server=server.id, authorization_url=begun.start.url, expires_at=until))

    @_of_server
    @describe(errors=(TestKeyRefused,))
    async def delete_login(self, request: Request, server_id: str) -> Response:
        """Delete the workspace's tokens of a tool server. Every process stops using them within a second."""
        caller = _must_be_live(caller_of(request))
        server = self.catalogue.server(caller, server_id)
        if not await self.logins.forget(server, _whose(caller, server), Actor.of(caller)):
            raise NotFound("login", server_id)
        return Response(status_code=204)

    @_page_that_says_why
    async def get_callback(self, query: Annotated[CallbackQuery, FromQuery()]) -> Response:
        """Return a page that asks the user to confirm the login at a tool server. The login is finished by the form on that page."""
        begun = await self.logins.begun(query.state, take=False)
        if begun is None:
            return _unknown()
        if not query.code:
            await self.logins.begun(begun.start.state, take=True)
            told = query.error_description or query.error or "it does not say why"
            return _page("Not logged in", f"The authorisation server of {begun.server_name} refused: {told[:_MAX_WORDS]}", status=400)
        text = (
            f"The key {begun.by.name!r} asked for it: with your consent, its workspace on this Rookery will use {begun.server_name} "
            "in your name. If you did not ask for that, close this page."
        )
        kept = {"state": query.state, "code": query.code} | ({} if query.iss is None else {"iss": query.iss})
        return _page(f"Log in at {begun.server_name}?", text, fields=kept)

    @_page_that_says_why
    @describe(takes=("application/x-www-form-urlencoded",))
    async def post_callback(self, request: Request) -> Response:
        """Exchange the authorisation code for tokens. A code works once."""
        fields = _fields((await read_body(request.receive, limit=_MAX_FORM)).decode("ascii", "replace"))
        begun = await self.logins.begun(fields.get("state", ""), take=True)
        server = None if begun is None else self.catalogue.known(begun.server_key)
        if begun is None or server is None:
            return _unknown()
        try:
            await self.logins.finish(server, begun, code=fields.get("code", ""), issuer=fields.get("iss"))
        except RookeryError as error:
            return _page("Not logged in", error.message, status=error.status)
        return _page("Logged in", f"{begun.server_name} can be used now. You may close this page.")

    async def get_document(self) -> Response:
        """Return the client metadata document that authorisation servers read."""
        return reply(
            {
                "client_id": self.address + DOCUMENT,
                "client_name": "Rookery",
                "client_uri": self.address,
                "redirect_uris": [self.address + CALLBACK],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
                "application_type": "web",
            }
        )


def _whose(caller: Caller, server: Server) -> int:
    return caller.workspace_id if server.owner is None else server.owner


def _must_be_live(caller: Caller) -> Caller:
    if caller.environment == TEST:
        raise TestKeyRefused("A test key logs in nowhere: a login acts in somebody's name.")
    return caller


def _fields(encoded: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(encoded, max_num_fields=_MAX_FIELDS))
    except ValueError:
        return {}


def _unknown() -> Response:
    return _page("Not logged in", "This login is over, or was never begun. Begin it again.", status=400)


def _page(title: str, text: str, *, fields: Mapping[str, str] | None = None, status: int = 200) -> Response:
    response = Pages().show("login.html", root="../", title=title, text=text, fields=fields or {})
    response.status_code = status
    policy = response.headers["Content-Security-Policy"]
    response.headers["Content-Security-Policy"] = policy.replace("form-action 'none'", "form-action 'self'")
    response.headers["Cache-Control"] = "no-store"
    return response
