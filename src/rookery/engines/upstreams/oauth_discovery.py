"""
Discovery of the authorisation server of a tool server (RFC 9728, RFC 8414, OpenID Connect Discovery 1.0).

URLs are compared as their normal forms: with the default port or without, in any case of scheme and host, without user information.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Generic, TypeVar, cast
from urllib.parse import unquote, urlsplit

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_resource_metadata_from_www_auth,
    issuers_match,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from pydantic import AnyHttpUrl, BaseModel, ValidationError
from pydantic_core import from_json

from rookery.tools.errors import LoginFailed

MAX_QUOTED_CHARS = 200
SUCCESS_STATUSES = range(200, 300)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")

Fetch = Callable[[str], Awaitable[httpx2.Response]]
MetadataT = TypeVar("MetadataT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedResource:
    """
    The description that a tool server publishes of itself.

    Attributes:
        metadata: Its resource metadata. None: it publishes none, as before protocol 2025-06, or they are invalid.
        identifier: Its `resource`, character by character. Some authorisation servers compare the text. None: it is not used.
        fault: What is wrong with invalid metadata.
    """

    metadata: ProtectedResourceMetadata | None = None
    identifier: str | None = None
    fault: str | None = None


async def discover_resource(fetch: Fetch, challenge: httpx2.Response, url: str, *, uses_identifier: bool) -> AnnouncedResource:
    """
    Return what the server at *url* publishes about itself.

    Args:
        challenge: The server's response to a request without a login.
        uses_identifier: Require that the announced resource covers *url*. Otherwise it may be missing, or be that of another URL.
    """
    metadata_url = extract_resource_metadata_from_www_auth(challenge) if challenge.status_code in {401, 403} else None
    candidates = build_protected_resource_metadata_discovery_urls(metadata_url, url)
    own_fields: dict[str, object] = {} if uses_identifier else {"resource": url}
    search = await _find_document(fetch, candidates, _RESOURCE_METADATA, own_fields)
    if search.metadata is None:
        if search.failure is not None:
            raise LoginFailed(search.failure)
        return AnnouncedResource(fault=search.fault)
    if not uses_identifier:
        return AnnouncedResource(metadata=search.metadata)
    if not _covers(search.metadata.resource, url):
        raise LoginFailed(
            f"The server's metadata is for {str(search.metadata.resource)[:MAX_QUOTED_CHARS]!r}; a token for that would not be valid here. "
            'If it announces a wrong address, set "resource" in `auth` of the entry.'
        )
    return AnnouncedResource(metadata=search.metadata, identifier=str(search.document["resource"]))


async def discover_authority(fetch: Fetch, resource: AnnouncedResource, url: str) -> OAuthMetadata:
    """Return the metadata of the authorisation server that *resource* names, or else of the server at *url* itself."""
    issuer = None if resource.metadata is None else str(resource.metadata.authorization_servers[0])
    origin = _get_origin(url)
    expected = issuer or origin
    search = await _find_document(fetch, _build_metadata_urls(issuer, url), _LOGIN_METADATA)
    metadata = search.metadata
    if metadata is not None:
        if not issuers_match(str(metadata.issuer), expected):
            raise LoginFailed(f"The authorisation server's issuer is {str(metadata.issuer)[:MAX_QUOTED_CHARS]!r}, expected {expected!r}.")
        methods = metadata.code_challenge_methods_supported
        if methods is not None and "S256" not in methods:
            raise LoginFailed("The authorisation server does not support PKCE with S256, which is required.")
        return metadata
    if issuer is not None:
        raise LoginFailed(search.fault or search.failure or f"The authorisation server {issuer!r} has no login metadata (RFC 8414).")
    if search.failure is not None or resource.fault is not None:
        raise LoginFailed(search.failure or str(resource.fault))
    # As in protocol 2025-03: three fixed paths at the server itself.
    return OAuthMetadata.model_validate(
        {
            "issuer": origin,
            "authorization_endpoint": f"{origin}/authorize",
            "token_endpoint": f"{origin}/token",
            "registration_endpoint": f"{origin}/register",
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DocumentKind(Generic[MetadataT]):
    """
    A kind of metadata.

    Attributes:
        model: Its fields.
        name: Its name in errors.
        standard: The standard that defines it.
        marker: A field that no other document has: an invalid document with it was meant to be of this kind.
    """

    model: type[MetadataT]
    name: str
    standard: str
    marker: str


_RESOURCE_METADATA = _DocumentKind(
    model=ProtectedResourceMetadata, name="resource metadata", standard="RFC 9728", marker="authorization_servers"
)
_LOGIN_METADATA = _DocumentKind(model=OAuthMetadata, name="login metadata", standard="RFC 8414", marker="issuer")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search(Generic[MetadataT]):
    """
    The outcome of a search at several addresses.

    Attributes:
        metadata: The first valid document; None if there is no such document.
        document: The same as it was sent.
        fault: What is wrong with the first invalid document.
        failure: The first answer with a status of 500 or more, which says nothing about the documents.
    """

    metadata: MetadataT | None = None
    document: Mapping[str, object] = field(default_factory=dict[str, object])
    fault: str | None = None
    failure: str | None = None


async def _find_document(
    fetch: Fetch, candidates: Iterable[str], kind: _DocumentKind[MetadataT], own_fields: Mapping[str, object] | None = None
) -> _Search[MetadataT]:
    """Return the first valid document at *candidates*. *own_fields* replace those of each document."""
    failure = fault = None
    for candidate in candidates:
        response = await fetch(candidate)
        document = read_object(response)
        if document is None:
            failure = failure or _describe_failure(response, f"{kind.name} ({kind.standard})")
            continue
        try:
            return _Search(metadata=kind.model.model_validate({**document, **(own_fields or {})}), document=document)
        except ValidationError as error:
            if kind.marker in document:
                fault = fault or f"{response.request.url.host} returned invalid {kind.name}: {describe_invalid(error)}"
    return _Search(fault=fault, failure=failure)


def is_same_issuer(one: str, other: str) -> bool:
    """Return whether two issuer identifiers name the same authorisation server."""
    try:
        return one == other or issuers_match(str(AnyHttpUrl(one)), str(AnyHttpUrl(other)))
    except ValidationError:
        return False


def read_object(response: httpx2.Response) -> dict[str, object] | None:
    """Return the members of a successful JSON response that have a value; None if it is no JSON object. "" and null are no values."""
    if response.status_code not in SUCCESS_STATUSES:
        return None
    try:
        document: object = from_json(response.content)  # unlike orjson, it takes integers of any size
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return {name: value for name, value in cast("dict[str, object]", document).items() if value is not None and value != ""}


def describe_invalid(error: ValidationError) -> str:
    """Return the first invalid field and what is wrong with it, without its value."""
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'/'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


def _describe_failure(response: httpx2.Response, document_name: str) -> str | None:
    if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return None
    return f"{response.request.url.host} returned status {response.status_code} for its {document_name}."


def _build_metadata_urls(issuer: str | None, url: str) -> list[str]:
    """Return the well-known addresses of an issuer: with its path after the well-known part, then before it."""
    addresses = build_oauth_authorization_server_metadata_discovery_urls(issuer, url)
    if issuer is not None and urlsplit(issuer).path.strip("/"):
        addresses.append(f"{issuer.rstrip('/')}/.well-known/oauth-authorization-server")
    return addresses


def _covers(announced: AnyHttpUrl, url: str) -> bool:
    """Return whether a token for the announced resource is meant for *url*: the same origin, and the same path or one below it."""
    address = _parse_url(url)
    if (announced.scheme, announced.host, announced.port) != (address.scheme, address.host, address.port):
        return False
    return _normalize_path(address.path).startswith(_normalize_path(announced.path))


def _normalize_path(path: str | None) -> str:
    """Return a path in the normal form of RFC 3986, section 6.2.2, with a slash at its end."""
    normalized = _ESCAPE.sub(_normalize_escape, path or "")
    return normalized if normalized.endswith("/") else f"{normalized}/"


def _normalize_escape(match: re.Match[str]) -> str:
    character = unquote(match[0], encoding="latin-1")
    return character if _UNRESERVED.fullmatch(character) else match[0].upper()


def _get_origin(url: str) -> str:
    address = _parse_url(url)
    is_default = address.port == _DEFAULT_PORTS[address.scheme]
    return f"{address.scheme}://{address.host}" + ("" if is_default else f":{address.port}")


def _parse_url(url: str) -> AnyHttpUrl:
    try:
        return AnyHttpUrl(url)
    except ValidationError as error:
        raise LoginFailed(f"The URL of the entry is invalid: {error.errors(include_url=False)[0]['msg']}.") from None
