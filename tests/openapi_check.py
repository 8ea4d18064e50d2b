"""A middleware that checks each response of the tests against the OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import cast

import jsonschema_rs
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rookery.access.scopes import parse_grants as read_scopes
from rookery.kernel.http.routes import RouteTable
from rookery.reference.downgrade import Schema
from rookery.reference.naming import document_path
from rookery.reference.openapi import build_document

_COMMON_HEADERS = frozenset(
    "content-length content-type cache-control vary x-content-type-options content-security-policy referrer-policy allow "
    "transfer-encoding access-control-allow-origin access-control-expose-headers "
    "content-encoding connection x-accel-buffering".split()
)
"""Headers that no operation speaks of."""

_JSON = "application/json"
_FORBIDDEN = 403


class OpenApiCheck:
    """A middleware around *app* that records responses which its document does not describe."""

    def __init__(self, app: ASGIApp, mounted: Callable[[], RouteTable]) -> None:
        self._app = app
        self._mounted = mounted
        self.violations = set[str]()

    @cached_property
    def _responses(self) -> DocumentedResponses:
        return _documented_responses(_RouteTableKey(self._mounted()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        sent: list[Message] = []

        async def noting(message: Message) -> None:
            sent.append(message)
            await send(message)

        await self._app(scope, receive, noting)
        state = cast("Mapping[str, object]", scope.get("state") or {})
        route = state.get("route")
        if sent and isinstance(route, str):
            headers = {name.decode().lower(): value.decode("latin-1") for name, value in sent[0]["headers"]}
            is_json = headers.get("content-type") == _JSON and "content-encoding" not in headers
            body = b"".join(each.get("body", b"") for each in sent[1:]) if is_json else b""
            operation = f"{scope['method']} {route}"
            self.violations.update(self._responses.iter_violations(operation, sent[0]["status"], headers, state.get("error"), body))

    def assert_no_violations(self) -> None:
        """
        Say what was not documented.

        Raises:
            AssertionError: Something was.
        """
        assert self.violations == set(), f"the document does not say (see kernel/http/describing.py): {sorted(self.violations)}"


@dataclass
class DocumentedResponses:
    """The responses that an OpenAPI document describes."""

    document: Schema
    _validators: dict[bytes, jsonschema_rs.Validator] = field(default_factory=dict[bytes, jsonschema_rs.Validator])

    def iter_violations(self, operation: str, status: int, headers: Mapping[str, str], error: object, body: bytes) -> Iterator[str]:
        """Yield each part of a response that the document does not describe; hidden routes are skipped."""
        method, _, route = operation.partition(" ")
        described = self._operations.get(f"{method} {document_path(route)}")
        if described is None:
            return
        where = f"{operation} {status}"
        answers = cast("dict[str, Schema]", described["responses"])
        answer = self._resolve(answers.get(str(status)) or answers.get(f"{status // 100}XX"))
        if answer is None:
            yield f"{where} {error or ''}"
            return
        content = cast("dict[str, Schema]", answer.get("content", {}))
        kind = headers.get("content-type", "").partition(";")[0]
        if kind and kind not in content:
            yield f"{where} {kind}"
        if status == _FORBIDDEN and body:
            yield from (f"{where} {name} names {value!r}, which cannot be granted" for name, value in _iter_ungrantable_scopes(body))
        if error is not None and f"`{error}`" not in cast("str", answer["description"]):
            yield f"{where} {error}"
        known = {name.lower() for name in cast("Schema", answer["headers"])}
        yield from (f"{where} header {name}" for name in headers.keys() - known - _COMMON_HEADERS)
        if kind == _JSON and _JSON in content and body:
            for wrong in self._validator_for(content).iter_errors(orjson.loads(body)):
                yield f"{where} body {'/'.join(str(part) for part in wrong.instance_path)}: {wrong.message[:200]}"

    @cached_property
    def _operations(self) -> dict[str, Schema]:
        """Return the operations by method and path, aliases included."""
        paths = cast("dict[str, dict[str, Schema]]", self.document["paths"])
        return {
            f"{method.upper()} {each}": operation
            for path, item in paths.items()
            for method, operation in item.items()
            if method != "servers"
            for each in (path, *cast("list[str]", operation.get("x-aliases", [])))
        }

    def _resolve(self, answer: Schema | None) -> Schema | None:
        reference = None if answer is None else answer.get("$ref")
        if not isinstance(reference, str):
            return answer
        return cast("dict[str, dict[str, Schema]]", self.document["components"])["responses"][reference.rpartition("/")[2]]

    def _validator_for(self, content: Mapping[str, Schema]) -> jsonschema_rs.Validator:
        told = orjson.dumps(content[_JSON]["schema"])  # most refusals have the same: to make one takes 10 ms
        if told not in self._validators:
            schema = as_json_schema(cast("Schema", content[_JSON]["schema"]))
            self._validators[told] = jsonschema_rs.Draft4Validator({**schema, "components": {"schemas": self._schemas}})
        return self._validators[told]

    @cached_property
    def _schemas(self) -> Schema:
        schemas = cast("dict[str, dict[str, Schema]]", self.document["components"])["schemas"]
        return {name: as_json_schema(schema) for name, schema in schemas.items()}


def _iter_ungrantable_scopes(body: bytes) -> Iterator[tuple[str, object]]:
    """Yield the required scopes of a refusal that cannot be granted (issue 14)."""
    refused = cast("Mapping[str, object]", orjson.loads(body))
    for name in {"required_scope", "required_permission"} & refused.keys():
        value = refused[name]
        if not isinstance(value, str) or read_scopes([value], allow_platform_scopes=True)[1]:
            yield name, value


def as_json_schema(schema: Schema) -> Schema:
    """Convert an OpenAPI 3.0 schema to JSON Schema draft 4; `nullable` becomes an alternative."""
    told: Schema = {}
    for name, each in schema.items():
        if name == "properties":
            told[name] = {field_name: as_json_schema(one) for field_name, one in cast("dict[str, Schema]", each).items()}
        elif name in {"items", "additionalProperties", "not"} and isinstance(each, dict):
            told[name] = as_json_schema(cast("Schema", each))
        elif name in {"anyOf", "oneOf", "allOf"}:
            told[name] = [as_json_schema(one) for one in cast("list[Schema]", each)]
        elif name != "nullable":
            told[name] = each
    return {"anyOf": [told, {"enum": [None]}]} if schema.get("nullable") is True else told


class _RouteTableKey:
    """A hashable key of a route table; tables with the same rows share one document."""

    def __init__(self, mounted: RouteTable) -> None:
        self.mounted = mounted
        self._rows = tuple((each.route.method, each.path, each.route.public, each.route.required_scope) for each in mounted.endpoints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RouteTableKey) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)


@cache
def _documented_responses(table: _RouteTableKey) -> DocumentedResponses:
    return DocumentedResponses(build_document(table.mounted.endpoints, public_url=lambda _: "http://localhost"))
