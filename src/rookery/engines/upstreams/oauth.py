"""
Logging in at upstreams: OAuth 2.1's authorisation code with PKCE, from a server's refusal to tokens (D-31).

Where the authorisation server is, the upstream tells (RFC 9728), and what it can, it tells itself (RFC 8414); the SDK reads and
checks both. The flow is ours: the SDK's holds all other requests of a session up while somebody reads a consent page, and cannot be
begun in one process and finished in another.
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
from typing import NoReturn, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx2
import orjson
from mcp.client.auth import OAuthFlowError, OAuthRegistrationError, PKCEParameters
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_registration_response,
    issuers_match,
)
from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyUrl, BaseModel, ValidationError

from rookery.engines.upstreams.http import build_transport
from rookery.kernel.egress import EgressGuard
from rookery.tools.errors import ConnectFailed, LoginExpired, LoginFailed
from rookery.tools.models import AuthorizationRequest, HttpTarget, Login, OAuthConfig, OAuthRegistration, Server

_REQUEST_TIMEOUT_S = 10.0
"""One request to an authorisation server."""

_MAX_RESPONSE_BYTES = 1024 * 1024
_MAX_QUOTED_CHARS = 200
_MAX_TOKEN_LIFETIME_S = 10 * 365 * 86400
_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_SUCCESS_STATUSES = range(200, 300)
_SERVER_ERROR = 500
_GRANTS = ["authorization_code", "refresh_token"]
_FINAL_ERRORS = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""What a token endpoint says when asking it again is of no use (RFC 6749, 5.2)."""

_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
_CLIENT_NAME = "Rookery"

M = TypeVar("M", bound=BaseModel)


class OAuthAuthorities:
    """Speaks with authorisation servers; see `Authorities`."""

    def __init__(self, guard: EgressGuard | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._guard = guard
        self._clock = clock

    async def begin(self, server: Server, *, redirect_uri: str, document: str | None) -> AuthorizationRequest:
        """Find out where consent is given; see `Authorities`."""
        address, auth = _login_settings(server)
        async with self._open_client(server) as asks:
            refusal = await asks.fetch_challenge(address)
            resource = await _discover_resource(asks, refusal, address.url)
            authority = await _discover_authority(asks, resource, address.url)
            scope = auth.scope or get_client_metadata_scopes(extract_scope_from_www_auth(refusal), resource, authority, _GRANTS)
            party = await _resolve_client(asks, authority, server, redirect_uri=redirect_uri, document=document, scope=scope)
        if resource is not None:
            party = replace(party, resource=str(resource.resource))
        proof, state = PKCEParameters.generate(), secrets.token_urlsafe(32)
        fields = {
            "response_type": "code",
            "client_id": party.client_id,
            "redirect_uri": redirect_uri,
            "state": state,
            "code_challenge": proof.code_challenge,
            "code_challenge_method": "S256",
        }
        if party.resource is not None:
            fields["resource"] = party.resource
        if scope:
            fields["scope"] = scope
            if "offline_access" in scope.split():
                fields["prompt"] = "consent"  # OpenID Connect gives a refresh token for nothing less
        place = str(authority.authorization_endpoint)
        return AuthorizationRequest(
            party=party,
            url=f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(fields)}",
            state=state,
            verifier=proof.code_verifier,
            redirect_uri=redirect_uri,
            scope=scope,
            tells_issuer=bool(authority.authorization_response_iss_parameter_supported),
        )

    async def finish(self, server: Server, start: AuthorizationRequest, *, code: str, issuer: str | None) -> Login:
        """Exchange the code; see `Authorities`."""
        if issuer is not None and issuer != start.party.issuer:
            raise LoginFailed("The answer comes from another authorisation server than the one that was asked; the login was not made.")
        if issuer is None and start.tells_issuer:
            raise LoginFailed("The answer does not say which authorisation server it is from, as this one does; the login was not made.")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": start.redirect_uri,
            "code_verifier": start.verifier,
        }
        token = await self._fetch_token(server, start.party, fields)
        return self._build_login(start.party, token, scope=start.scope, refresh_token=None)

    async def renew(self, server: Server, login: Login) -> Login:
        """Renew by the refresh token; see `Authorities`."""
        if login.refresh_token is None:
            raise LoginExpired("The login cannot be renewed.")
        token = await self._fetch_token(server, login.party, {"grant_type": "refresh_token", "refresh_token": login.refresh_token})
        return self._build_login(login.party, token, scope=login.scope, refresh_token=login.refresh_token)

    def _build_login(self, party: OAuthRegistration, token: OAuthToken, *, scope: str | None, refresh_token: str | None) -> Login:
        if _HEADER_SAFE.fullmatch(token.access_token) is None:
            # Refused here, since whoever fails to send it would quote it.
            raise LoginFailed(f"{urlsplit(party.token_url).hostname} gave a token that cannot be sent in a header.")
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
        async with self._open_client(server) as asks:
            answer = await asks.post(party.token_url, form, headers)
        if answer.status_code not in _SUCCESS_STATUSES:
            _raise_refused(answer, "gave no token")
        return _parse_response(OAuthToken, answer, "of tokens")

    @asynccontextmanager
    async def _open_client(self, server: Server) -> AsyncGenerator[_BoundedClient]:
        try:
            transport = build_transport(server, self._guard)
        except ConnectFailed as failed:
            raise LoginFailed(str(failed)) from failed
        address, _ = _login_settings(server)
        async with httpx2.AsyncClient(transport=transport, timeout=_REQUEST_TIMEOUT_S, headers={"accept-encoding": "identity"}) as client:
            try:
                yield _BoundedClient(client, must_be_https=urlsplit(address.url).scheme == "https")
            except httpx2.InvalidURL as error:
                raise LoginFailed(f"The login redirects to an invalid URL: {str(error)[:_MAX_QUOTED_CHARS]}") from error


class _BoundedClient:
    """Bounded requests: no redirects, a megabyte, ten seconds. What is behind https names nothing that is not."""

    def __init__(self, client: httpx2.AsyncClient, *, must_be_https: bool) -> None:
        self._client = client
        self._must_be_https = must_be_https

    async def fetch_challenge(self, address: HttpTarget) -> httpx2.Response:
        """Return how the server answers to whoever did not log in, without its body."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if address.kind == "sse":
            request = self._client.build_request("GET", address.url, headers={"accept": "text/event-stream"})
        else:
            request = self._client.build_request("POST", address.url, headers=headers, content=_PING)
        return await self._send(request, with_body=False)

    async def get(self, url: str) -> httpx2.Response:
        """Ask for a document."""
        return await self._send(self._client.build_request("GET", url, headers={"accept": "application/json"}))

    async def post(self, url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> httpx2.Response:
        """Send a form."""
        return await self._send(self._client.build_request("POST", url, data=dict(form), headers={"accept": "application/json", **headers}))

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """Send what somebody else made."""
        return await self._send(request)

    async def _send(self, request: httpx2.Request, *, with_body: bool = True) -> httpx2.Response:
        if self._must_be_https and request.url.scheme != "https":
            raise LoginFailed(f"{request.url.host} is named as the authorisation server without https; we do not log in there.")
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                answer = await self._client.send(request, stream=True, follow_redirects=False)
                try:
                    body = await _read_bounded(answer) if with_body else b""
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise LoginFailed(f"{request.url.host} did not answer within {_REQUEST_TIMEOUT_S:g} s.") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise LoginFailed(f"No connection to {request.url.host}: {str(error) or type(error).__name__}") from error
        kept = [(name, value) for name, value in answer.headers.raw if name.lower() in {b"content-type", b"www-authenticate"}]
        return httpx2.Response(answer.status_code, headers=kept, content=body, request=request)


async def _read_bounded(answer: httpx2.Response) -> bytes:
    found = bytearray()
    async for part in answer.aiter_raw():
        found += part
        if len(found) > _MAX_RESPONSE_BYTES:
            raise LoginFailed(f"{answer.request.url.host} answered with more than 1 MiB.")
    return bytes(found)


async def _discover_resource(client: _BoundedClient, challenge: httpx2.Response, url: str) -> ProtectedResourceMetadata | None:
    """Return what the server says of who authorises for it; None: nothing, as before 2025-06."""
    told = extract_resource_metadata_from_www_auth(challenge) if challenge.status_code in {401, 403} else None
    for place in build_protected_resource_metadata_discovery_urls(told, url):
        answer = await client.get(place)
        if answer.status_code >= _SERVER_ERROR:
            raise LoginFailed(f"{answer.request.url.host} answered {answer.status_code} when asked who authorises for it.")
        if answer.status_code not in _SUCCESS_STATUSES:
            continue
        try:
            found = ProtectedResourceMetadata.model_validate_json(answer.content)
        except ValidationError:
            continue
        if not check_resource_allowed(requested_resource=resource_url_from_server_url(url), configured_resource=str(found.resource)):
            raise LoginFailed(
                f"The server says that it is {str(found.resource)[:_MAX_QUOTED_CHARS]!r}; a token for that would not be for it."
            )
        return found
    return None


async def _discover_authority(client: _BoundedClient, resource: ProtectedResourceMetadata | None, url: str) -> OAuthMetadata:
    """Return what the authorisation server says of itself."""
    parts = urlsplit(url)
    origin = f"{parts.scheme}://{parts.netloc}"
    named = None if resource is None else str(resource.authorization_servers[0])
    expected = named or origin
    for place in build_oauth_authorization_server_metadata_discovery_urls(named, url):
        answer = await client.get(place)
        if answer.status_code >= _SERVER_ERROR:
            raise LoginFailed(f"{answer.request.url.host} answered {answer.status_code} when asked how to log in.")
        if answer.status_code not in _SUCCESS_STATUSES:
            continue
        try:
            found = OAuthMetadata.model_validate_json(answer.content)
        except ValidationError:
            continue
        if not issuers_match(str(found.issuer), expected):
            raise LoginFailed(f"The authorisation server calls itself {str(found.issuer)[:_MAX_QUOTED_CHARS]!r} and not {expected!r}.")
        methods = found.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise LoginFailed("The authorisation server does not know PKCE with S256; we do not log in without.")
        return found
    if named is not None:
        raise LoginFailed(f"The authorisation server {named!r} says nothing of how to log in (RFC 8414).")
    # As MCP had it in 2025-03: three fixed paths at the server itself.
    return OAuthMetadata.model_validate(
        {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
        }
    )


async def _resolve_client(
    bounded_client: _BoundedClient, authority: OAuthMetadata, server: Server, *, redirect_uri: str, document: str | None, scope: str | None
) -> OAuthRegistration:
    """Return as whom we log in: the client of the entry, the one that *document* describes, or one that we register now."""
    address, auth = _login_settings(server)
    issuer = str(authority.issuer)
    made = partial(OAuthRegistration, server_url=address.url, issuer=issuer, token_url=str(authority.token_endpoint))
    known = authority.token_endpoint_auth_methods_supported or []
    if auth.client_id is not None:
        takes_basic = not known or "client_secret_basic" in known  # RFC 8414: what is taken when nothing is said
        how = "none" if auth.client_secret is None else "client_secret_basic" if takes_basic else "client_secret_post"
        return made(client_id=auth.client_id, client_secret=auth.client_secret, client_auth=how)
    if document is not None and authority.client_id_metadata_document_supported:
        return made(client_id=document)
    if authority.registration_endpoint is None:
        raise LoginFailed(
            f"{issuer} registers no clients by itself. Register one there, with the redirect address {redirect_uri}, and give its "
            'client_id, and its client_secret if it has one, in the entry: "auth": {"type": "oauth", "client_id": …}.'
        )
    is_native = urlsplit(redirect_uri).hostname in {"127.0.0.1", "::1", "localhost"}
    wish = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect_uri)],
        client_name=_CLIENT_NAME,
        scope=scope,
        token_endpoint_auth_method="none" if not known or "none" in known else None,
        application_type="native" if is_native else "web",
    )
    request = create_client_registration_request(authority, wish, issuer)
    answer = await bounded_client.send(
        httpx2.Request("POST", request.url, headers={"content-type": "application/json"}, content=request.content)
    )
    if answer.status_code not in _SUCCESS_STATUSES:
        _raise_refused(answer, "did not register us as a client")
    try:
        client = await handle_registration_response(answer)
        check_registration_usable(client)
    except (OAuthRegistrationError, OAuthFlowError) as error:
        raise LoginFailed(f"{issuer} registered a client that cannot be used: {str(error)[:_MAX_QUOTED_CHARS]}") from error
    how = client.token_endpoint_auth_method or ("none" if client.client_secret is None else "client_secret_basic")
    return made(client_id=client.client_id, client_secret=client.client_secret, client_auth=how)


def _login_settings(server: Server) -> tuple[HttpTarget, OAuthConfig]:
    if not isinstance(server.target, HttpTarget) or server.auth is None:
        msg = f"{server.id} asks for no login"
        raise TypeError(msg)
    return server.target, server.auth


def _parse_response(model: type[M], answer: httpx2.Response, what: str) -> M:
    try:
        return model.model_validate_json(answer.content)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        where = "/".join(str(part) for part in problem["loc"])
        raise LoginFailed(f"{answer.request.url.host} gave an answer {what} that cannot be read: {where}: {problem['msg']}") from None


def _raise_refused(answer: httpx2.Response, what: str) -> NoReturn:
    """Say why an authorisation server refused, in its own words as far as it has any (RFC 6749, 5.2)."""
    try:
        document: object = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        document = None
    fields = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    word, text = fields.get("error"), fields.get("error_description")
    told = ": ".join(each[:_MAX_QUOTED_CHARS] for each in (word, text) if isinstance(each, str)) or f"status {answer.status_code}"
    kind = LoginExpired if word in _FINAL_ERRORS else LoginFailed
    raise kind(f"{answer.request.url.host} {what}: {told}")
