"""What an operation answers: its own answer, and every refusal that it can meet, by status (D-10)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import cast

from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, RateLimited, ScopeMissing, Unauthorised, WorkspaceMismatch
from rookery.kernel.errors import EngineUnavailable, NotFound, RookeryError, StorageFull, ValidationFailed
from rookery.kernel.http.connection import HeadTooLarge
from rookery.kernel.http.connection_limit import ServerFull
from rookery.kernel.http.idempotency import ResponseNotStored, SecretAlreadyShown
from rookery.kernel.http.openapi import RouteDocs
from rookery.kernel.http.request_body import InvalidJson, PayloadTooLarge, RequestTimeout, UnsupportedMediaType
from rookery.kernel.http.responses import BadRequest, CrossSiteCredentials, HostNotAllowed
from rookery.kernel.http.routes import InternalError, Route, RouteEndpoint
from rookery.kernel.idempotency_store import IdempotencyMismatch, RequestInProgress
from rookery.kernel.preconditions import NotVersioned
from rookery.reference.components import Components, first_paragraph
from rookery.reference.downgrade import Schema

JSON_MEDIA_TYPE = "application/json"

ERROR_SCHEMA: Schema = {
    "title": "Error",
    "type": "object",
    "description": "What every refusal answers: a code to act on, a sentence for people, and what belongs to the code beside them.",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "description": "The code. `x-error-codes` of each response lists the codes that it may have."},
        "message": {"type": "string", "description": "What was wrong, with which value, and what to do; it may change."},
        "errors": {
            "type": "object",
            "description": "Of `validation_error`: what is wrong with each field.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        "retry_after": {"type": "integer", "description": "Seconds, as in Retry-After."},
        "required_scope": {"type": "string", "description": "Of `scope_missing`."},
        "required_permission": {"type": "string", "description": "Of `permission_denied`: the permission that an agent key lacks."},
        "not_in_list": {
            "type": "object",
            "description": "Of `permission_denied`: the list of the key that leaves out what the request names.",
            "properties": {
                "list": {"type": "string", "enum": ["servers", "tools", "orgs", "projects"]},
                "value": {"type": "string", "nullable": True},
            },
        },
        "request_id": {"type": "string", "description": "Of `internal_error`: under which the log has more."},
    },
    "additionalProperties": True,
}

_RATE_LIMIT_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

RESPONSE_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-ID": ("The request, as the log knows it.", {"type": "string"}),
    "X-RateLimit-Limit": ("How many calls the key has in a window; 2147483647: as many as it likes.", {"type": "integer"}),
    "X-RateLimit-Remaining": ("How many of them are left.", {"type": "integer"}),
    "X-RateLimit-Reset": (
        "When the window ends: for API keys the Unix time, for agent keys the seconds until then.",
        {"type": "integer"},
    ),
    "Retry-After": ("Seconds after which it is worth another try.", {"type": "integer"}),
    "WWW-Authenticate": ("How a key can be sent.", {"type": "string"}),
    "ETag": ("The version that was answered; to be sent back in If-Match or If-None-Match.", {"type": "string"}),
    "Idempotent-Replay": ("`true`: this was answered before, to the same Idempotency-Key.", {"type": "string", "enum": ["true"]}),
    "X-Reason": ("Why there is nothing.", {"type": "string"}),
    "X-Plan": ("The slug of the plan that X-Reason is about.", {"type": "string"}),
    "Deprecation": ("The server is deprecated, since `@` and a Unix time (RFC 9745).", {"type": "string"}),
    "Sunset": ("When the deprecated server may be gone, six months after its deprecation at the earliest (RFC 8594).", {"type": "string"}),
    "X-Rookery-Cache": ("Whether a kept result was answered.", {"type": "string"}),
    "Preference-Applied": ("The preference of `Prefer` that was followed.", {"type": "string"}),
    "Age": ("How old a kept result is, in seconds.", {"type": "integer"}),
    "Location": ("Where to go on.", {"type": "string"}),
    "Content-Disposition": ("A name to save it under.", {"type": "string"}),
    "Mcp-Session-Id": ("The session that was opened; to be sent back.", {"type": "string"}),
}

_ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}


class ResponseDocs:
    """Describes answers; the refusals that several operations have in common are described once, in `shared_responses`."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self.shared_responses: dict[str, Schema] = {}
        self.error_formats: dict[str, Schema] = {}

    def build_responses(self, endpoint: RouteEndpoint, notes: RouteDocs) -> Schema:
        """Return the answers of *endpoint* by status."""
        route = endpoint.route
        refusals = defaultdict[int, list[type[RookeryError]]](list)
        for error in list_errors(endpoint, notes):
            refusals[error.status].append(error)
        ways = self._success_responses(route, notes)
        return {
            _status_key(status, route): self._merge_response(route, ways[status], refusals.get(status, ()))
            if status in ways
            else self._shared_error_response(status, refusals[status], route)
            for status in sorted({*ways, *refusals}, key=lambda status: (_status_key(status, route) == "2XX", status))
        }

    def _success_responses(self, route: Route, notes: RouteDocs) -> Mapping[int, Schema]:
        """Return what is answered with each status that is not, or not only, a refusal."""
        sends = [*notes.response_headers, *(("Idempotent-Replay",) if route.idempotent else ())]
        has_body = route.status != HTTPStatus.NO_CONTENT
        schema = None if route.response_model is None else self._components.reference(route.response_model, "serialization")
        kinds = notes.media_types if route.response_model is None else (JSON_MEDIA_TYPE, *notes.media_types)
        ways: dict[int, Schema] = {
            route.status: {
                "description": _success_description(route),
                "headers": _headers([*sends, *(_RATE_LIMIT_HEADERS if _takes_key(route) else ())]),
                **({"content": _content(kinds or (JSON_MEDIA_TYPE,), schema)} if has_body else {}),
            }
        }
        for status, more in notes.responses.items():
            inner = None if more.model is None else self._components.reference(more.model, "serialization")
            media = more.media_types or ((JSON_MEDIA_TYPE,) if inner is not None else ())
            ways[status] = {
                "description": more.description,
                "headers": _headers([*sends, *(_RATE_LIMIT_HEADERS if _takes_key(route) else ())]),
                **({"content": _content(media, inner)} if media else {}),
            }
        return ways

    def _merge_response(self, route: Route, way: Schema, errors: Sequence[type[RookeryError]]) -> Schema:
        if not errors:
            return way
        also = self._describe_errors(errors[0].status, errors, route)
        content = {**cast("dict[str, Schema]", way.get("content", {}))}
        refused = cast("dict[str, Schema]", also["content"])[JSON_MEDIA_TYPE]["schema"]
        own = content.get(JSON_MEDIA_TYPE)
        content[JSON_MEDIA_TYPE] = {"schema": refused if own is None else {"anyOf": [own["schema"], refused]}}
        return {
            **way,
            "description": f"{way['description']} Or:\n\n{also['description']}",
            "content": content,
            "x-error-codes": also["x-error-codes"],
        }

    def _shared_error_response(self, status: int, errors: Sequence[type[RookeryError]], route: Route) -> Schema:
        codes = list(dict.fromkeys(error.code for error in errors))
        chosen = () if route.error_format is None else (route.error_format.name,)
        name = "-".join([str(status), *codes, *(() if _takes_key(route) else ("public",)), *chosen])
        if name not in self.shared_responses:
            self.shared_responses[name] = self._describe_errors(status, errors, route)
        return {"$ref": f"#/components/responses/{name}"}

    def _describe_errors(self, status: int, errors: Iterable[type[RookeryError]], route: Route) -> Schema:
        said = dict[str, str]()
        for error in errors:
            text = _error_description(error)
            said[error.code] = f"{said[error.code]} {text}" if error.code in said and text not in said[error.code] else text
        sends = [
            *(("WWW-Authenticate",) if status == HTTPStatus.UNAUTHORIZED else ()),
            *(
                ("Retry-After",)
                if status in _RETRYABLE_STATUSES or (status == HTTPStatus.CONFLICT and RequestInProgress.code in said)
                else ()
            ),
            *(_RATE_LIMIT_HEADERS if _takes_key(route) else ()),
        ]
        name, chosen = "Error", route.error_format
        if chosen is not None:
            name = chosen.name
            self.error_formats[name] = dict(chosen.schema)
        return {
            "description": "\n".join(f"- `{code}`: {text}" for code, text in said.items()),
            "headers": _headers(sends),
            "content": {JSON_MEDIA_TYPE: {"schema": {"$ref": f"#/components/schemas/{name}"}}},
            "x-error-codes": list(said),
        }


def _status_key(status: int, route: Route) -> str:
    """
    Return the key of an answer. A success that is less usual than the route's own, and has a lower number, is a range.

    JavaScript orders keys that are numbers, so a viewer would show 200 before 201. A range comes after all of them.
    """
    return "2XX" if HTTPStatus.OK <= status < route.status else str(status)


_RETRYABLE_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def list_errors(endpoint: RouteEndpoint, notes: RouteDocs) -> list[type[RookeryError]]:
    """Return the errors that *endpoint* may answer with: those that follow from its row, then those that were declared."""
    route = endpoint.route
    found: list[type[RookeryError]] = [HostNotAllowed, BadRequest, CrossSiteCredentials]
    if not route.public or route.optional_auth:
        found += [Unauthorised, KeyRevoked, KeyExpired, AddressNotAllowed, WorkspaceMismatch, RateLimited]
        found += [] if route.required_scope is None else [ScopeMissing]
    if "{" in endpoint.path:
        found.append(NotFound)
    if endpoint.body is not None or notes.request_media_types or endpoint.refuses_body:
        found += [InvalidJson, RequestTimeout, PayloadTooLarge, UnsupportedMediaType]
    found.append(ValidationFailed)
    if endpoint.refuses_if_match:
        found.append(NotVersioned)
    if route.idempotent:
        found += [RequestInProgress, ResponseNotStored, IdempotencyMismatch, *([SecretAlreadyShown] if route.secret_fields else [])]
    if route.method != "GET" and not route.public:
        found.append(StorageFull)
    found += [HeadTooLarge, InternalError, EngineUnavailable, ServerFull]
    wanted = [*(_map_route_error(route, error) for error in found), *route.errors, *notes.errors]
    return list(dict.fromkeys(wanted))


def _map_route_error(route: Route, error: type[RookeryError]) -> type[RookeryError]:
    """Return what the route makes of *error*: a tool call's bad body is 400, where other routes say 422 (D-34)."""
    if route.map_error is None or error not in {ValidationFailed, InvalidJson}:
        return error
    sample = ValidationFailed({}) if error is ValidationFailed else InvalidJson("")
    return type(route.map_error(sample, {}, defaultdict(str)))


def header_components() -> dict[str, Schema]:
    """Return every header of an answer."""
    return {name: {"description": says, "schema": dict(schema)} for name, (says, schema) in RESPONSE_HEADERS.items()}


def _headers(names: Sequence[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in dict.fromkeys((*names, "X-Request-ID")) if RESPONSE_HEADERS[name]}


def _content(kinds: Sequence[str], schema: Schema | None) -> Schema:
    return {kind: {"schema": _media_schema(kind, schema)} for kind in kinds}


def _media_schema(kind: str, schema: Schema | None) -> Schema:
    if kind == JSON_MEDIA_TYPE or kind.endswith("+json"):
        return dict(_ANY_OBJECT) if schema is None else schema
    return {"type": "string"}


def _success_description(route: Route) -> str:
    told = "" if route.response_model is None else first_paragraph(route.response_model.__doc__ or "")
    if route.status == HTTPStatus.OK:
        return told or "Done."
    return f"{HTTPStatus(route.status).phrase}. {told}".strip()


def _error_description(error: type[RookeryError]) -> str:
    return first_paragraph(error.__doc__ or error.code)


def _takes_key(route: Route) -> bool:
    return not route.public or route.optional_auth
