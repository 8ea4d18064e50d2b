"""
Logins at upstreams without a terminal: `POST /servers/{id}/login` returns a URL; its redirect opens a page of Rookery.

The page asks for confirmation first. The user who opens the URL gives a workspace the right to act in their name, and the link
may come from an attacker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated
from urllib.parse import parse_qsl, urlsplit

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from rookery.access.models import TEST, Actor, Caller
from rookery.kernel.clock import Clock
from rookery.kernel.egress import AddressRefused
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.http import DocumentedResponse, Operation
from rookery.kernel.http.operations import FORM_MEDIA_TYPE
from rookery.kernel.http.request_body import read_body
from rookery.kernel.schema import QueryModel, ResponseModel, Timestamp
from rookery.tools.api.pages import HtmlPages
from rookery.tools.catalogue import Catalogue
from rookery.tools.errors import LoginFailed, LoginNotSupported, ServerNotFound, TestKeyRefused, ToolDisabled
from rookery.tools.models import Server
from rookery.tools.servers.logins import CONSENT_TIMEOUT, Logins

READ_SCOPE, WRITE_SCOPE = "servers:read", "servers:write"
CALLBACK_PATH = "/oauth/callback"
CLIENT_METADATA_PATH = "/oauth/client.json"

_MAX_FORM_BYTES = 16 * 1024
_MAX_FORM_FIELDS = 20
_CALLBACK_FIELDS = {
    "state": "The state of the request, which names the login.",
    "code": "The authorisation code.",
    "iss": "The issuer that answered.",
}

_FAILURES = {status: DocumentedResponse(description="The login failed.", media_types=("text/html",)) for status in (400, 409, 422, 503)}


class LoginResponse(ResponseModel):
    """
    The state of a login.

    Attributes:
        logged_in: There is a login, of this workspace or for all. The server's health shows whether it is still valid.
    """

    server: str
    logged_in: bool


class LoginStartResponse(ResponseModel):
    """The consent URL to open in a browser, and its expiry."""

    server: str
    authorization_url: str
    expires_at: Timestamp


class CallbackQuery(QueryModel):
    """The parameters of an authorisation response (RFC 6749, 4.1.2; RFC 9207). Others are ignored."""

    model_config = ConfigDict(extra="ignore")

    state: Annotated[str, Field(description="The state of the request, which names the login.")] = ""
    code: Annotated[str, Field(description="The authorisation code.")] = ""
    iss: Annotated[str | None, Field(description="The issuer that answers.")] = None
    error: Annotated[str, Field(description="The error code, if no access was granted.")] = ""
    error_description: Annotated[str, Field(description="The reason of the error, in words.")] = ""


_operation = partial(Operation, tags=("Tool servers",))


@dataclass(frozen=True, slots=True)
class LoginApi:
    """
    Starts logins and receives their responses.

    Attributes:
        address: The public scheme and host of Rookery.
    """

    logins: Logins
    catalogue: Catalogue
    clock: Clock
    address: str

    def operations(self) -> list[Operation]:
        """Return the operations under {api_url}'s prefix."""
        login = partial(_operation, path="/servers/{server_id}/login")
        errors = (ToolDisabled, ServerNotFound)
        return [
            login(method="GET", handler=self.get_login, required_scope=READ_SCOPE, response_model=LoginResponse, errors=errors,
                  operation_id="get_server_login", summary="Show whether the workspace is logged in at a tool server"),
            login(method="POST", handler=self.post_login, required_scope=WRITE_SCOPE, response_model=LoginStartResponse,
                  operation_id="start_server_login", summary="Start a login at a tool server",
                  errors=(*errors, AddressRefused, LoginFailed, LoginNotSupported, TestKeyRefused)),
            login(method="DELETE", handler=self.delete_login, required_scope=WRITE_SCOPE, status=204,
                  operation_id="delete_server_login", summary="Log out at a tool server", errors=(*errors, TestKeyRefused)),
        ]  # fmt: skip

    def host_operations(self) -> list[Operation]:
        """Return the operations at the root of {api_url}, for browsers and authorisation servers. They need no key."""
        operation = partial(_operation, required_scope=None, public=True)
        page = partial(operation, path=CALLBACK_PATH, media_types=("text/html",), responses=_FAILURES)
        return [
            page(method="GET", handler=self.get_callback, operation_id="confirm_login", summary="Receive the redirect of an OAuth login"),
            page(method="POST", handler=self.post_callback, operation_id="finish_login", summary="Finish an OAuth login",
                 request_media_types=(FORM_MEDIA_TYPE,), form_fields=_CALLBACK_FIELDS),
            operation(method="GET", path=CLIENT_METADATA_PATH, handler=self.get_document, operation_id="get_oauth_client",
                      summary="Show Rookery's OAuth client metadata"),
        ]  # fmt: skip

    async def get_login(self, caller: Caller, server_id: str) -> LoginResponse:
        """Return whether there is a login at the tool server. Tokens are never returned."""
        server = self.catalogue.get_server(caller, server_id)
        return LoginResponse(server=server.id, logged_in=await self.logins.has_login(server, _get_login_workspace(caller, server)))

    async def post_login(self, caller: Caller, server_id: str) -> LoginStartResponse:
        """Discover the authorisation server of a tool server, and return the address to open in a browser."""
        _require_live_key(caller)
        server = self.catalogue.get_server(caller, server_id)
        document = self.address + CLIENT_METADATA_PATH if urlsplit(self.address).scheme == "https" else None
        pending_login = await self.logins.begin(
            server,
            _get_login_workspace(caller, server),
            Actor.from_caller(caller),
            redirect_uri=self.address + CALLBACK_PATH,
            document=document,
        )
        await self.logins.save_pending(pending_login)
        return LoginStartResponse(server=server.id, authorization_url=pending_login.start.url, expires_at=self.clock() + CONSENT_TIMEOUT)

    async def delete_login(self, caller: Caller, server_id: str) -> None:
        """Delete the workspace's tokens of a tool server. Every process stops using them within a second."""
        _require_live_key(caller)
        server = self.catalogue.get_server(caller, server_id)
        if not await self.logins.log_out(server, _get_login_workspace(caller, server), Actor.from_caller(caller)):
            raise NotFound("login", server_id)

    async def get_callback(self, query: CallbackQuery) -> Response:
        """Return a page that asks the user to confirm the login at a tool server. The login is finished by the form on that page."""
        pending_login = await self.logins.find_pending(query.state, consume=False)
        if pending_login is None:
            return _render_unknown()
        if not query.code:
            await self.logins.find_pending(pending_login.start.state, consume=True)
            reason = pending_login.describe_refusal({"error": query.error, "error_description": query.error_description})
            return _render_page(
                "Not logged in", f"The authorisation server of {pending_login.server_name} rejected the login: {reason}", status=400
            )
        text = (
            f"The key {pending_login.by.name!r} requested this login. With your consent, its workspace on this Rookery uses "
            f"{pending_login.server_name} in your name. If you did not request it, close this page."
        )
        fields = {"state": query.state, "code": query.code} | ({} if query.iss is None else {"iss": query.iss})
        return _render_page(f"Log in at {pending_login.server_name}?", text, fields=fields)

    async def post_callback(self, request: Request) -> Response:
        """Exchange the authorisation code for tokens. A code works once."""
        fields = _parse_form((await read_body(request.receive, limit=_MAX_FORM_BYTES, scope=request.scope)).decode("ascii", "replace"))
        pending_login = await self.logins.find_pending(fields.get("state", ""), consume=True)
        server = None if pending_login is None else self.catalogue.find_by_key(pending_login.server_key)
        if pending_login is None or server is None:
            return _render_unknown()
        try:
            await self.logins.finish(server, pending_login, code=fields.get("code", ""), issuer=fields.get("iss"))
        except RookeryError as error:
            return _render_page("Not logged in", error.message, status=error.status)
        return _render_page("Logged in", f"{pending_login.server_name} can be used now. You may close this page.")

    async def get_document(self) -> Mapping[str, object]:
        """Return the client metadata document that authorisation servers read."""
        return {
            "client_id": self.address + CLIENT_METADATA_PATH,
            "client_name": "Rookery",
            "client_uri": self.address,
            "redirect_uris": [self.address + CALLBACK_PATH],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            "application_type": "web",
        }


def _get_login_workspace(caller: Caller, server: Server) -> int:
    return caller.workspace_id if server.owner is None else server.owner


def _require_live_key(caller: Caller) -> None:
    if caller.environment == TEST:
        raise TestKeyRefused("A test key may not log in at a server, because a login acts in a user's name. Use a live key.")


def _parse_form(encoded: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(encoded, max_num_fields=_MAX_FORM_FIELDS))
    except ValueError:
        return {}


def _render_unknown() -> Response:
    return _render_page("Not logged in", "This login has expired or is unknown. Start it again.", status=400)


def _render_page(title: str, text: str, *, fields: Mapping[str, str] | None = None, status: int = 200) -> Response:
    response = HtmlPages().render("message.html", root="../", title=title, text=text, fields=fields or {})
    response.status_code = status
    policy = response.headers["Content-Security-Policy"]
    response.headers["Content-Security-Policy"] = policy.replace("form-action 'none'", "form-action 'self'")
    response.headers["Cache-Control"] = "no-store"
    return response
