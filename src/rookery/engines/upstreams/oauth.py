"""
Logins at tool servers: OAuth 2.1 authorisation code flow with PKCE, from a server's 401 to tokens.

The tool server publishes its authorisation server (RFC 9728), which publishes its metadata (RFC 8414). The SDK parses and checks both. The
flow itself is not the SDK's, which blocks all other requests of a session while a person reads a consent page, and cannot begin in one
process and end in another.
"""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import orjson
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, PKCEParameters
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    create_client_registration_request,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_registration_response,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, OAuthToken
from pydantic import AnyUrl, ValidationError

from rookery.engines.upstreams.http import build_transport
from rookery.engines.upstreams.http_errors import describe_connection_failure
from rookery.engines.upstreams.oauth_discovery import (
    MAX_QUOTED_CHARS,
    SUCCESS_STATUSES,
    describe_invalid,
    discover_authority,
    discover_resource,
    is_same_issuer,
    read_object,
)
from rookery.kernel.egress import EgressGuard
from rookery.tools.errors import ConnectFailed, LoginExpired, LoginFailed, add_resource_advice, describe_oauth_error
from rookery.tools.models import ANNOUNCED_RESOURCE, AuthorizationRequest, HttpTarget, Login, OAuthConfig, OAuthRegistration, Server

_REQUEST_TIMEOUT_S = 10.0
"""Timeout of one request to an authorisation server."""

_MAX_RESPONSE_BYTES = 1024 * 1024
_MAX_TOKEN_LIFETIME_S = 10 * 365 * 86400
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_GRANTS = ["authorization_code", "refresh_token"]
_FINAL_ERRORS = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""Errors of a token endpoint for which a retry is useless (RFC 6749, section 5.2)."""

_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_CLIENT_NAME = "Rookery"


class OAuthAuthorities:
    """A client for authorisation servers; implements `AuthorizationServers`."""

    def __init__(self, guard: EgressGuard | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._guard = guard
        self._clock = clock

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        """Discover the authorisation server and return the consent URL; see `AuthorizationServers`."""
        address, auth = _login_settings(server)
        async with self._open_client(server) as client:
            challenge = await client.fetch_challenge(address)
            uses_announced = auth.resource == ANNOUNCED_RESOURCE
            announced = await discover_resource(client.get, challenge, address.url, uses_identifier=uses_announced)
            authority = await discover_authority(client.get, announced, address.url)
            required_scope = extract_scope_from_www_auth(challenge)
            scope = auth.scope or get_client_metadata_scopes(required_scope, announced.metadata, authority, _GRANTS)
            party = await _resolve_client(client, authority, server, redirect_uri=redirect_uri, document=document, scope=scope)
        party = replace(party, resource=auth.choose_resource(announced.identifier))
        pkce, state = PKCEParameters.generate(), secrets.token_urlsafe(32)
        fields = {
            "response_type": "code",
            "client_id": party.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": pkce.code_challenge,
            "code_challenge_method": "S256",
        }
        if party.resource is not None:
            fields["resource"] = party.resource
        if scope:
            fields["scope"] = scope
            if "offline_access" in scope.split():
                fields["prompt"] = "consent"  # OpenID Connect returns a refresh token only with this prompt
        endpoint = str(authority.authorization_endpoint)
        return AuthorizationRequest(
            party=party,
            url=f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(fields)}",
            state=state,
            verifier=pkce.code_verifier,
            redirect_uri=redirect_uri,
            scope=scope,
            tells_issuer=bool(authority.authorization_response_iss_parameter_supported),
        )

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        """Exchange the code for tokens; see `AuthorizationServers`."""
        if issuer is not None and not is_same_issuer(issuer, start.party.issuer):
            raise LoginFailed("The response names another authorisation server than the one that was used; no login was created.")
        if issuer is None and start.tells_issuer:
            raise LoginFailed("The response does not name its authorisation server, which this server always does; no login was created.")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": start.redirect_uri,
            "code_verifier": start.verifier,
        }
        token = await self._fetch_token(server, start.party, fields)
        return self._build_login(start.party, token, scope=start.scope, refresh_token=None)

    async def renew(self, server: Server, login: Login) -> Login:
        """Renew a login with its refresh token; see `AuthorizationServers`."""
        if login.refresh_token is None:
            raise LoginExpired("The login cannot be renewed: it has no refresh token.")
        _, auth = _login_settings(server)
        party = replace(login.party, resource=auth.choose_resource(login.party.resource))
        token = await self._fetch_token(server, party, {"grant_type": "refresh_token", "refresh_token": login.refresh_token})
        return self._build_login(login.party, token, scope=login.scope, refresh_token=login.refresh_token)

    def _build_login(self, party: OAuthRegistration, token: OAuthToken, *, scope: str | None, refresh_token: str | None) -> Login:
        if _HEADER_SAFE.fullmatch(token.access_token) is None:
            # Rejected here, since the error of a failed request would contain the token.
            raise LoginFailed(f"{urlsplit(party.token_url).hostname} returned a token that cannot be sent in a header.")
        return Login(
            party=party,
            access_token=token.access_token,
            refresh_token=token.refresh_token or refresh_token,
            scope=token.scope or scope,
            expires_at=None if token.expires_in is None else self._clock() + min(token.expires_in, _MAX_TOKEN_LIFETIME_S),
        )

    async def _fetch_token(self, server: Server, party: OAuthRegistration, fields: Mapping[str, str]) -> OAuthToken:
        form, headers = dict(fields), dict[str, str]()
        if party.resource is not None:
            form["resource"] = party.resource
        secret = party.client_secret or ""
        if party.client_auth == "client_secret_basic":
            pair = f"{quote(party.client_id, safe='')}:{quote(secret, safe='')}"  # RFC 6749, 2.3.1
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            form["client_id"] = party.client_id
            if party.client_auth == "client_secret_post":
                form["client_secret"] = secret
        async with self._open_client(server) as client:
            response = await client.post(party.token_url, form, headers)
        document = read_object(response)
        if document is None or ("error" in document and "access_token" not in document):  # GitHub returns errors with status 200
            _raise_refused(response, "returned no token", party=party)
        return _parse_token(document, response)

    @asynccontextmanager
    async def _open_client(self, server: Server) -> AsyncGenerator[_BoundedClient]:
        try:
            transport = build_transport(server, self._guard)
        except ConnectFailed as error:
            raise LoginFailed(str(error)) from error
        address, _ = _login_settings(server)
        async with httpx2.AsyncClient(transport=transport, timeout=_REQUEST_TIMEOUT_S, headers={"accept-encoding": "identity"}) as client:
            try:
                yield _BoundedClient(client, must_be_https=urlsplit(address.url).scheme == "https")
            except httpx2.InvalidURL as error:
                raise LoginFailed(f"The login redirects to an invalid URL: {str(error)[:MAX_QUOTED_CHARS]}") from error


class _BoundedClient:
    """A client with limits: no redirects, 1 MiB, 10 seconds. If the tool server has https, other URLs need it too."""

    def __init__(self, client: httpx2.AsyncClient, *, must_be_https: bool) -> None:
        self._client = client
        self._must_be_https = must_be_https

    async def fetch_challenge(self, address: HttpTarget) -> httpx2.Response:
        """Return the server's response to a request without a login, without its body."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if address.kind == "sse":
            request = self._client.build_request("GET", address.url, headers={"accept": "text/event-stream"})
        else:
            request = self._client.build_request("POST", address.url, headers=headers, content=_PING)
        return await self._send(request, with_body=False)

    async def get(self, url: str) -> httpx2.Response:
        """Fetch a document."""
        return await self._send(self._client.build_request("GET", url, headers={"accept": "application/json"}))

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> httpx2.Response:
        return await self._send(self._client.build_request("POST", url, data=dict(form), headers={"accept": "application/json", **headers}))

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send a prepared request."""
        return await self._send(request)

    async def _send(self, request: httpx2.Request, *, with_body: bool = True) -> httpx2.Response:
        if self._must_be_https and request.url.scheme != "https":
            raise LoginFailed(
                f"The tool server uses https, so its authorisation server must too, but {request.url.host} uses http. No login was created."
            )
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                response = await self._client.send(request, stream=True, follow_redirects=False)
                try:
                    body = await _read_bounded(response) if with_body else b""
                finally:
                    await response.aclose()
        except TimeoutError:
            raise LoginFailed(f"{request.url.host} did not answer within {_REQUEST_TIMEOUT_S:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise LoginFailed(describe_connection_failure(request.url, error)) from error
        headers = [(name, value) for name, value in response.headers.raw if name.lower() in {b"content-type", b"www-authenticate"}]
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)


async def _read_bounded(response: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) > _MAX_RESPONSE_BYTES:
            raise LoginFailed(f"{response.request.url.host} returned more than 1 MiB.")
    return bytes(body)


async def _resolve_client(
    bounded_client: _BoundedClient, authority: OAuthMetadata, server: Server, *, redirect_uri: str, document: str | None, scope: str | None
) -> OAuthRegistration:
    """Return the client to log in with: that of the entry, the one that *document* describes, or a newly registered one."""
    address, auth = _login_settings(server)
    issuer = str(authority.issuer)
    registration = partial(OAuthRegistration, server_url=address.url, issuer=issuer, token_url=str(authority.token_endpoint))
    auth_methods = authority.token_endpoint_auth_methods_supported or []
    if auth.client_id is not None:
        takes_basic = not auth_methods or "client_secret_basic" in auth_methods  # RFC 8414: the default without a list
        auth_method = "none" if auth.client_secret is None else "client_secret_basic" if takes_basic else "client_secret_post"
        return registration(client_id=auth.client_id, client_secret=auth.client_secret, client_auth=auth_method)
    if document is not None and authority.client_id_metadata_document_supported:
        return registration(client_id=document)
    if authority.registration_endpoint is None:
        raise LoginFailed(
            f"{issuer} does not register clients automatically. Register one there, with the redirect URL {redirect_uri}, and add its "
            'client_id, and its client_secret if it has one, to the entry: "auth": {"type": "oauth", "client_id": …}.'
        )
    is_native = urlsplit(redirect_uri).hostname in {"127.0.0.1", "::1", "localhost"}
    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name=_CLIENT_NAME,
        scope=scope,
        token_endpoint_auth_method="none" if not auth_methods or "none" in auth_methods else None,
        application_type="native" if is_native else "web",
    )
    request = create_client_registration_request(authority, metadata, issuer)
    response = await bounded_client.send(
        httpx2.Request("POST", request.url, headers={"content-type": "application/json"}, content=request.content)
    )
    if response.status_code not in SUCCESS_STATUSES:
        _raise_refused(response, "did not register Rookery as a client")
    try:
        client = await handle_registration_response(response)
        check_registration_usable(client)
    except (OAuthRegistrationError, OAuthFlowError) as error:
        raise LoginFailed(f"{issuer} registered a client that cannot be used: {str(error)[:MAX_QUOTED_CHARS]}") from error
    auth_method = client.token_endpoint_auth_method or ("none" if client.client_secret is None else "client_secret_basic")
    return registration(client_id=client.client_id, client_secret=client.client_secret, client_auth=auth_method)


def _login_settings(server: Server) -> tuple[HttpTarget, OAuthConfig]:
    if not isinstance(server.target, HttpTarget) or server.auth is None:
        msg = f"{server.id} has no login in its entry"
        raise TypeError(msg)
    return server.target, server.auth


def _parse_token(document: dict[str, object], response: httpx2.Response) -> OAuthToken:
    """Return the token of a response. Its scopes may be a list, as Twitch returns them, and its lifetime any number or numeric text."""
    scope, lifetime = document.get("scope"), document.get("expires_in")
    if isinstance(scope, list):
        document["scope"] = " ".join(str(part) for part in cast("list[object]", scope))
    if isinstance(lifetime, float | str):
        try:
            document["expires_in"] = int(min(float(lifetime), _MAX_TOKEN_LIFETIME_S))
        except (OverflowError, ValueError):
            del document["expires_in"]
    try:
        return OAuthToken.model_validate(document)
    except ValidationError as error:
        raise LoginFailed(f"{response.request.url.host} returned an invalid token response: {describe_invalid(error)}") from None


def _raise_refused(response: httpx2.Response, problem: str, *, party: OAuthRegistration | None = None) -> NoReturn:
    """Raise the error of an authorisation server, with its own code and description if there are any (RFC 6749, section 5.2)."""
    try:
        document: object = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        document = None
    fields = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    code, description = fields.get("error"), fields.get("error_description")
    default = "its response is no JSON object" if response.status_code in SUCCESS_STATUSES else f"status {response.status_code}"
    reason = describe_oauth_error(code, description, default=default)
    if party is not None:
        reason = add_resource_advice(reason, code, description, resource=party.resource)
    kind = LoginExpired if code in _FINAL_ERRORS else LoginFailed
    raise kind(f"{response.request.url.host} {problem}: {reason}")
