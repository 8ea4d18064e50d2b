"""The documented responses of an operation: its own, and every error that may occur, by status."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import cast

from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, RateLimited, ScopeMissing, Unauthorised, WorkspaceMismatch
from rookery.kernel.errors import EngineUnavailable, NotFound, RookeryError, StorageFull, ValidationFailed
from rookery.kernel.http.connection import HeadTooLarge
from rookery.kernel.http.connection_limit import ServerFull
from rookery.kernel.http.idempotency import ResponseNotStored, SecretAlreadyShown
from rookery.kernel.http.operations import Operation
from rookery.kernel.http.request_body import InvalidJson, PayloadTooLarge, RequestTimeout, UnsupportedMediaType
from rookery.kernel.http.responses import BadRequest, CrossSiteCredentials, ErrorFormat, HostNotAllowed
from rookery.kernel.http.routes import InternalError, RouteEndpoint
from rookery.kernel.idempotency_store import IdempotencyMismatch, RequestInProgress
from rookery.kernel.preconditions import NotVersioned
from rookery.reference.components import Components, first_paragraph
from rookery.reference.downgrade import Schema

JSON_MEDIA_TYPE = "application/json"

ERROR_SCHEMA: Schema = {
    "title": "Error",
    "type": "object",
    "description": "The body of every error: a code for programs, a message for people, and further fields that depend on the code.",
    "required": ["error", "message"],
    "properties": {
        "error": {"type": "string", "description": "The error code. `x-error-codes` of each response lists the possible codes."},
        "message": {"type": "string", "description": "The problem, the value and the remedy in words. The text may change."},
        "errors": {
            "type": "object",
            "description": "With `validation_error`: the problems of each field.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
        "retry_after": {"type": "integer", "description": "Seconds to wait, as in Retry-After."},
        "required_scope": {"type": "string", "description": "With `scope_missing`: the scope that the key lacks."},
        "required_permission": {"type": "string", "description": "With `permission_denied`: the permission that an agent key lacks."},
        "not_in_list": {
            "type": "object",
            "description": "With `permission_denied`: the allow-list of the key that does not contain the value of the request.",
            "properties": {
                "list": {"type": "string", "enum": ["servers", "tools", "orgs", "projects"]},
                "value": {"type": "string", "nullable": True},
            },
        },
        "request_id": {"type": "string", "description": "With `internal_error`: the id to search for in the server's log."},
    },
    "additionalProperties": True,
}

_RATE_LIMIT_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")

RESPONSE_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Request-ID": ("The id of the request, also in the server's log.", {"type": "string"}),
    "X-RateLimit-Limit": ("The number of calls per window; 2147483647 means no limit.", {"type": "integer"}),
    "X-RateLimit-Remaining": ("The number of calls left in the window.", {"type": "integer"}),
    "X-RateLimit-Reset": (
        "The end of the window: as a Unix time for API keys, in seconds from now for agent keys.",
        {"type": "integer"},
    ),
    "Retry-After": ("Seconds to wait before the next attempt.", {"type": "integer"}),
    "WWW-Authenticate": ("The accepted ways to send a key.", {"type": "string"}),
    "ETag": ("The version of the resource, for If-Match and If-None-Match.", {"type": "string"}),
    "Idempotent-Replay": (
        "`true` if this is the stored response to an earlier request with the same Idempotency-Key.",
        {"type": "string", "enum": ["true"]},
    ),
    "X-Reason": ("The reason for an empty response.", {"type": "string"}),
    "X-Plan": ("The slug of the plan that X-Reason refers to.", {"type": "string"}),
    "Deprecation": ("The time since which the server is deprecated: `@` and a Unix time (RFC 9745).", {"type": "string"}),
    "Sunset": (
        "The time from which the deprecated server may be removed, at least six months after its deprecation (RFC 8594).",
        {"type": "string"},
    ),
    "X-Rookery-Cache": ("States whether the result comes from the cache.", {"type": "string"}),
    "Preference-Applied": ("The preference of `Prefer` that was applied.", {"type": "string"}),
    "Age": ("The age of a cached result in seconds.", {"type": "integer"}),
    "Location": ("The URL of the new resource or of the next step.", {"type": "string"}),
    "Content-Disposition": ("A file name for the content.", {"type": "string"}),
    "Mcp-Session-Id": ("The id of the new session, to be sent with later requests.", {"type": "string"}),
}

_ANY_OBJECT: Schema = {"type": "object", "additionalProperties": True}


class ResponseDocs:
    """The documentation of responses. Errors that several operations share are described once, in `shared_responses`."""

    def __init__(self, components: Components) -> None:
        self._components = components
        self.shared_responses: dict[str, Schema] = {}
        self.error_formats: dict[str, Schema] = {}

    def build_responses(self, endpoint: RouteEndpoint) -> Schema:
        """Return the responses of *endpoint* by status."""
        route = endpoint.route
        errors = defaultdict[int, list[type[RookeryError]]](list)
        for error in list_errors(endpoint):
            errors[error.status].append(error)
        successes = self._success_responses(route)
        return {
            str(status): self._merge_response(route, successes[status], errors.get(status, ()))
            if status in successes
            else self._shared_error_response(status, errors[status], route)
            for status in sorted({*successes, *errors}, key=lambda status: (status != route.status, status))
        }

    def _success_responses(self, route: Operation) -> Mapping[int, Schema]:
        """Return the responses by status that are not, or not only, errors."""
        headers = [*route.all_response_headers, *(("Idempotent-Replay",) if route.idempotent else ())]
        has_body = route.status != HTTPStatus.NO_CONTENT
        schema = None if route.response_model is None else self._components.reference(route.response_model, "serialization")
        kinds = route.media_types if route.response_model is None else (JSON_MEDIA_TYPE, *route.media_types)
        responses: dict[int, Schema] = {
            route.status: {
                "description": _success_description(route),
                "headers": _headers([*headers, *(_RATE_LIMIT_HEADERS if _takes_key(route) else ())]),
                **({"content": _content(kinds or (JSON_MEDIA_TYPE,), schema)} if has_body else {}),
            }
        }
        for status, documented_response in route.responses.items():
            body_schema: Schema | None = None
            if documented_response.model is not None:
                body_schema = self._components.reference(documented_response.model, "serialization")
            elif documented_response.error_format is not None:
                body_schema = self._refer_to_format(documented_response.error_format)
            media = documented_response.media_types or ((JSON_MEDIA_TYPE,) if body_schema is not None else ())
            responses[status] = {
                "description": documented_response.description,
                "headers": _headers([*headers, *(_RATE_LIMIT_HEADERS if _takes_key(route) else ())]),
                **({"content": _content(media, body_schema)} if media else {}),
            }
        return responses

    def _merge_response(self, route: Operation, success: Schema, errors: Sequence[type[RookeryError]]) -> Schema:
        if not errors:
            return success
        failure = self._describe_errors(errors[0].status, errors, route)
        content = {**cast("dict[str, Schema]", success.get("content", {}))}
        error_schema = cast("dict[str, Schema]", failure["content"])[JSON_MEDIA_TYPE]["schema"]
        schemas = [media["schema"] for media in (content.get(JSON_MEDIA_TYPE),) if media is not None and media["schema"] != error_schema]
        documented = route.responses.get(errors[0].status)
        model = None if documented is None else documented.model
        # Generators have no alternatives of which both may match, so the model of a failure with the fields of an error covers both.
        if model is None or "error" not in model.model_fields:
            content[JSON_MEDIA_TYPE] = {"schema": {"oneOf": [*schemas, error_schema]} if schemas else error_schema}
        return {
            **success,
            "description": f"{success['description']} Or:\n\n{failure['description']}",
            "content": content,
            "x-error-codes": failure["x-error-codes"],
        }

    def _shared_error_response(self, status: int, errors: Sequence[type[RookeryError]], route: Operation) -> Schema:
        codes = list(dict.fromkeys(error.code for error in errors))
        format_names = () if route.error_format is None else (route.error_format.name,)
        name = "-".join([str(status), *codes, *(() if _takes_key(route) else ("public",)), *format_names])
        if name not in self.shared_responses:
            self.shared_responses[name] = self._describe_errors(status, errors, route)
        return {"$ref": f"#/components/responses/{name}"}

    def _describe_errors(self, status: int, errors: Collection[type[RookeryError]], route: Operation) -> Schema:
        texts = dict[str, str]()
        for error in errors:
            text = _error_description(error)
            texts[error.code] = f"{texts[error.code]} {text}" if error.code in texts and text not in texts[error.code] else text
        headers = [
            *(("WWW-Authenticate",) if status == HTTPStatus.UNAUTHORIZED else ()),
            *(
                ("Retry-After",)
                if status in _RETRYABLE_STATUSES
                or (status == HTTPStatus.CONFLICT and RequestInProgress.code in texts)
                or (status == HTTPStatus.INTERNAL_SERVER_ERROR and any(error.is_upstream for error in errors))
                else ()
            ),
            *(_RATE_LIMIT_HEADERS if _takes_key(route) else ()),
        ]
        schema = {"$ref": "#/components/schemas/Error"} if route.error_format is None else self._refer_to_format(route.error_format)
        return {
            "description": "\n".join(f"- `{code}`: {text}" for code, text in texts.items()),
            "headers": _headers(headers),
            "content": {JSON_MEDIA_TYPE: {"schema": schema}},
            "x-error-codes": list(texts),
        }

    def _refer_to_format(self, error_format: ErrorFormat) -> Schema:
        self.error_formats[error_format.name] = dict(error_format.schema)
        return {"$ref": f"#/components/schemas/{error_format.name}"}


_RETRYABLE_STATUSES = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


def list_errors(endpoint: RouteEndpoint) -> list[type[RookeryError]]:
    """Return the possible errors of *endpoint*: those that follow from its row, then the declared ones."""
    route = endpoint.route
    error_types: list[type[RookeryError]] = [HostNotAllowed, BadRequest, CrossSiteCredentials]
    if not route.public or route.optional_auth:
        error_types += [Unauthorised, KeyRevoked, KeyExpired, AddressNotAllowed, WorkspaceMismatch, RateLimited]
        error_types += [] if route.required_scope is None else [ScopeMissing]
    if "{" in endpoint.path:
        error_types.append(NotFound)
    if endpoint.body is not None or route.request_media_types or endpoint.refuses_body:
        error_types += [InvalidJson, RequestTimeout, PayloadTooLarge, UnsupportedMediaType]
    error_types.append(ValidationFailed)
    if endpoint.refuses_if_match:
        error_types.append(NotVersioned)
    if route.idempotent:
        error_types += [RequestInProgress, ResponseNotStored, IdempotencyMismatch, *([SecretAlreadyShown] if route.secret_fields else [])]
    if route.method != "GET" and not route.public:
        error_types.append(StorageFull)
    error_types += [HeadTooLarge, InternalError, EngineUnavailable, ServerFull]
    errors = [*(_map_route_error(route, error) for error in error_types), *route.all_errors]
    return list(dict.fromkeys(errors))


def _map_route_error(route: Operation, error: type[RookeryError]) -> type[RookeryError]:
    """Return the error that the route sends for *error*. An invalid body of a tool call is 400, in other routes 422."""
    if route.map_error is None or error not in {ValidationFailed, InvalidJson}:
        return error
    sample = ValidationFailed({}) if error is ValidationFailed else InvalidJson("")
    return type(route.map_error(sample, {}, defaultdict(str)))


def header_components() -> dict[str, Schema]:
    """Return every response header by its name."""
    return {name: {"description": description, "schema": dict(schema)} for name, (description, schema) in RESPONSE_HEADERS.items()}


def _headers(names: Sequence[str]) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in dict.fromkeys((*names, "X-Request-ID")) if RESPONSE_HEADERS[name]}


def _content(kinds: Sequence[str], schema: Schema | None) -> Schema:
    return {kind: {"schema": _media_schema(kind, schema)} for kind in kinds}


def _media_schema(kind: str, schema: Schema | None) -> Schema:
    if kind == JSON_MEDIA_TYPE or kind.endswith("+json"):
        return dict(_ANY_OBJECT) if schema is None else schema
    return {"type": "string"}


def _success_description(route: Operation) -> str:
    text = "" if route.response_model is None else first_paragraph(route.response_model.__doc__ or "")
    if route.status == HTTPStatus.OK:
        return text or "Done."
    return f"{HTTPStatus(route.status).phrase}. {text}".strip()


def _error_description(error: type[RookeryError]) -> str:
    return first_paragraph(error.__doc__ or error.code)


def _takes_key(route: Operation) -> bool:
    return not route.public or route.optional_auth
