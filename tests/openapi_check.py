"""A middleware that checks each response of the tests against the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import cast

import jsonschema_rs
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.access.scopes import parse_grants as read_scopes
from rookery.kernel.http.routes import RouteTable
from rookery.reference.downgrade import Schema
from rookery.reference.openapi import build_document
from rookery.reference.operation_names import document_path

_COMMON_HEADERS = frozenset(
    "content-length content-type cache-control vary x-content-type-options content-security-policy referrer-policy allow "
    "transfer-encoding access-control-allow-origin access-control-expose-headers "
    "content-encoding connection x-accel-buffering".split()
)
"""Headers that operations do not document."""

_JSON = "application/json"
_FORBIDDEN = 403


class OpenApiCheck:
    """A middleware around *app* that records responses which its document does not describe."""

    def __init__(self, app: ASGIApp, route_table: RouteTable) -> None:
        self._app = app
        self._route_table = route_table
        self.violations = set[str]()

    @cached_property
    def _responses(self) -> DocumentedResponses:
        return _documented_responses(_RouteTableKey(self._route_table))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        messages: list[Message] = []

        async def record(message: Message) -> None:
            messages.append(message)
            await send(message)

        await self._app(scope, receive, record)
        state = cast("Mapping[str, object]", scope.get("state") or {})
        route = state.get("route")
        if messages and isinstance(route, str):
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in messages[0]["headers"]}
            is_json = headers.get("content-type") == _JSON and "content-encoding" not in headers
            body = b"".join(message.get("body", b"") for message in messages[1:]) if is_json else b""
            operation = f"{scope['method']} {route}"
            self.violations.update(self._responses.iter_violations(operation, messages[0]["status"], headers, state.get("error"), body))

    def assert_no_violations(self) -> None:
        """
        Fail on undocumented responses.

        Raises:
            AssertionError: A response was not documented.
        """
        assert self.violations == set(), f"missing in the OpenAPI document (see `Operation`): {sorted(self.violations)}"


@dataclass
class DocumentedResponses:
    """The responses that an OpenAPI document describes."""

    document: Schema
    _validators: dict[bytes, jsonschema_rs.Validator] = field(default_factory=dict[bytes, jsonschema_rs.Validator])

    def iter_violations(self, operation: str, status: int, headers: Mapping[str, str], error: object, body: bytes) -> Iterator[str]:
        """Yield each part of a response that the document does not describe; hidden routes are skipped."""
        method, _, route = operation.partition(" ")
        operation_schema = self._operations.get(f"{method} {document_path(route)}")
        if operation_schema is None:
            return
        where = f"{operation} {status}"
        responses = cast("dict[str, Schema]", operation_schema["responses"])
        response = self._resolve(responses.get(str(status)) or responses.get(f"{status // 100}XX"))
        if response is None:
            yield f"{where} {error or ''}"
            return
        content = cast("dict[str, Schema]", response.get("content", {}))
        kind = headers.get("content-type", "").partition(";")[0]
        if kind and kind not in content and (body or kind != _JSON):  # an empty response has no content
            yield f"{where} {kind}"
        if status == _FORBIDDEN and body:
            yield from (f"{where} {name} names {value!r}, which cannot be granted" for name, value in _iter_ungrantable_scopes(body))
        if error is not None and f"`{error}`" not in cast("str", response["description"]):
            yield f"{where} {error}"
        documented = {name.lower() for name in cast("Schema", response["headers"])}
        yield from (f"{where} header {name}" for name in headers.keys() - documented - _COMMON_HEADERS)
        if kind == _JSON and _JSON in content and body:
            for error_ in self._validator_for(content).iter_errors(orjson.loads(body)):
                yield f"{where} body {'/'.join(str(part) for part in error_.instance_path)}: {error_.message[:200]}"

    @cached_property
    def _operations(self) -> dict[str, Schema]:
        """Return the operations by method and path, aliases included."""
        paths = cast("dict[str, dict[str, Schema]]", self.document["paths"])
        return {
            f"{method.upper()} {route_path}": operation
            for path, item in paths.items()
            for method, operation in item.items()
            if method != "servers"
            for route_path in (path, *cast("list[str]", operation.get("x-aliases", [])))
        }

    def _resolve(self, response: Schema | None) -> Schema | None:
        reference = None if response is None else response.get("$ref")
        if not isinstance(reference, str):
            return response
        return cast("dict[str, dict[str, Schema]]", self.document["components"])["responses"][reference.rpartition("/")[2]]

    def _validator_for(self, content: Mapping[str, Schema]) -> jsonschema_rs.Validator:
        schema_json = orjson.dumps(content[_JSON]["schema"])  # most errors share a schema; building a validator takes 10 ms
        if schema_json not in self._validators:
            schema = as_json_schema(cast("Schema", content[_JSON]["schema"]))
            self._validators[schema_json] = jsonschema_rs.Draft4Validator({**schema, "components": {"schemas": self._schemas}})
        return self._validators[schema_json]

    @cached_property
    def _schemas(self) -> Schema:
        schemas = cast("dict[str, dict[str, Schema]]", self.document["components"])["schemas"]
        return {name: as_json_schema(schema) for name, schema in schemas.items()}


def _iter_ungrantable_scopes(body: bytes) -> Iterator[tuple[str, object]]:
    """Yield the required scopes of a refusal that cannot be granted."""
    error = cast("Mapping[str, object]", orjson.loads(body))
    for name in {"required_scope", "required_permission"} & error.keys():
        value = error[name]
        if not isinstance(value, str) or read_scopes([value], allow_platform_scopes=True)[1]:
            yield name, value


def as_json_schema(schema: Schema) -> Schema:
    """Convert an OpenAPI 3.0 schema to JSON Schema draft 4; `nullable` becomes an alternative."""
    converted: Schema = {}
    for name, value in schema.items():
        if name == "properties":
            converted[name] = {field_name: as_json_schema(nested) for field_name, nested in cast("dict[str, Schema]", value).items()}
        elif name in {"items", "additionalProperties", "not"} and isinstance(value, dict):
            converted[name] = as_json_schema(cast("Schema", value))
        elif name in {"anyOf", "oneOf", "allOf"}:
            converted[name] = [as_json_schema(nested) for nested in cast("list[Schema]", value)]
        elif name != "nullable":
            converted[name] = value
    return {"anyOf": [converted, {"enum": [None]}]} if schema.get("nullable") is True else converted


class _RouteTableKey:
    """A hashable key of a route table; tables with the same rows share one document."""

    def __init__(self, route_table: RouteTable) -> None:
        self.route_table = route_table
        self._rows = tuple(
            (endpoint.route.method, endpoint.path, endpoint.route.public, endpoint.route.required_scope)
            for endpoint in route_table.endpoints
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RouteTableKey) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)


@cache
def _documented_responses(table: _RouteTableKey) -> DocumentedResponses:
    return DocumentedResponses(build_document(table.route_table.endpoints, public_url=lambda _: "http://localhost"))
