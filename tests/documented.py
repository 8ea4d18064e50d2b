"""Whether what the server answers is what its documentation says: looked at for every answer that any test gets of a whole server."""

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

_EVERYWHERE = frozenset(
    "content-length content-type cache-control vary x-content-type-options content-security-policy referrer-policy allow "
    "transfer-encoding access-control-allow-origin access-control-expose-headers "
    "content-encoding connection x-accel-buffering".split()
)
"""Headers that no operation speaks of."""

_JSON = "application/json"
_FORBIDDEN = 403


class Documented:
    """Serves as *app* does, and keeps what its document does not say."""

    def __init__(self, app: ASGIApp, mounted: Callable[[], RouteTable]) -> None:
        self._app = app
        self._mounted = mounted
        self.untold = set[str]()

    @cached_property
    def _told(self) -> Told:
        return _told(_Table(self._mounted()))

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
            self.untold.update(self._told.missing(operation, sent[0]["status"], headers, state.get("error"), body))

    def must_be_told(self) -> None:
        """
        Say what was not documented.

        Raises:
            AssertionError: Something was.
        """
        assert self.untold == set(), f"the document does not say (see kernel/http/describing.py): {sorted(self.untold)}"


@dataclass
class Told:
    """What a document says, as far as answers go."""

    whole: Schema
    _checks: dict[bytes, jsonschema_rs.Validator] = field(default_factory=dict[bytes, jsonschema_rs.Validator])

    def missing(self, operation: str, status: int, headers: Mapping[str, str], error: object, body: bytes) -> Iterator[str]:
        """Yield what it does not say of an answer; nothing of what is hidden."""
        method, _, route = operation.partition(" ")
        described = self._operations.get(f"{method} {document_path(route)}")
        if described is None:
            return
        where = f"{operation} {status}"
        answers = cast("dict[str, Schema]", described["responses"])
        answer = self._resolved(answers.get(str(status)) or answers.get(f"{status // 100}XX"))
        if answer is None:
            yield f"{where} {error or ''}"
            return
        content = cast("dict[str, Schema]", answer.get("content", {}))
        kind = headers.get("content-type", "").partition(";")[0]
        if kind and kind not in content:
            yield f"{where} {kind}"
        if status == _FORBIDDEN and body:
            yield from (f"{where} {name} names {value!r}, which cannot be granted" for name, value in _ungrantable(body))
        if error is not None and f"`{error}`" not in cast("str", answer["description"]):
            yield f"{where} {error}"
        known = {name.lower() for name in cast("Schema", answer["headers"])}
        yield from (f"{where} header {name}" for name in headers.keys() - known - _EVERYWHERE)
        if kind == _JSON and _JSON in content and body:
            for wrong in self._check(content).iter_errors(orjson.loads(body)):
                yield f"{where} body {'/'.join(str(part) for part in wrong.instance_path)}: {wrong.message[:200]}"

    @cached_property
    def _operations(self) -> dict[str, Schema]:
        """Return the operations by method and path, aliases included."""
        paths = cast("dict[str, dict[str, Schema]]", self.whole["paths"])
        return {
            f"{method.upper()} {each}": operation
            for path, item in paths.items()
            for method, operation in item.items()
            if method != "servers"
            for each in (path, *cast("list[str]", operation.get("x-aliases", [])))
        }

    def _resolved(self, answer: Schema | None) -> Schema | None:
        reference = None if answer is None else answer.get("$ref")
        if not isinstance(reference, str):
            return answer
        return cast("dict[str, dict[str, Schema]]", self.whole["components"])["responses"][reference.rpartition("/")[2]]

    def _check(self, content: Mapping[str, Schema]) -> jsonschema_rs.Validator:
        told = orjson.dumps(content[_JSON]["schema"])  # most refusals have the same: to make one takes 10 ms
        if told not in self._checks:
            schema = as_json_schema(cast("Schema", content[_JSON]["schema"]))
            self._checks[told] = jsonschema_rs.Draft4Validator({**schema, "components": {"schemas": self._schemas}})
        return self._checks[told]

    @cached_property
    def _schemas(self) -> Schema:
        schemas = cast("dict[str, dict[str, Schema]]", self.whole["components"])["schemas"]
        return {name: as_json_schema(schema) for name, schema in schemas.items()}


def _ungrantable(body: bytes) -> Iterator[tuple[str, object]]:
    """Yield what a refusal says that the key lacks, and nobody could give it (Issue 14)."""
    refused = cast("Mapping[str, object]", orjson.loads(body))
    for name in {"required_scope", "required_permission"} & refused.keys():
        value = refused[name]
        if not isinstance(value, str) or read_scopes([value], allow_platform_scopes=True)[1]:
            yield name, value


def as_json_schema(schema: Schema) -> Schema:
    """Return a schema of OpenAPI 3.0 as one of JSON Schema, draft 4, of which 3.0 is a dialect: `nullable` is what it has of its own."""
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


class _Table:
    """A table of routes that is equal to another one with the same rows: most servers of the suite have the same document."""

    def __init__(self, mounted: RouteTable) -> None:
        self.mounted = mounted
        self._rows = tuple((each.route.method, each.path, each.route.public, each.route.required_scope) for each in mounted.endpoints)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Table) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)


@cache
def _told(table: _Table) -> Told:
    return Told(build_document(table.mounted.endpoints, public_url=lambda _: "http://localhost"))
