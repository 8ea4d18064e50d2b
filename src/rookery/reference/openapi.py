"""
The whole API as one OpenAPI 3.0.3 document, made of the routes that are mounted (spec 4.5, D-83).

Nothing here is written down twice: what a route takes and answers, whom it lets in and how it refuses comes from the row that serves it,
and from what decorators said of its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

from pydantic import BaseModel

from rookery.kernel.http.describing import Notes, notes_of
from rookery.kernel.http.routes import MIB, Endpoint, Route
from rookery.reference.answers import ERROR, JSON, Answers, header_components
from rookery.reference.components import Components, Mode
from rookery.reference.downgrade import Schema
from rookery.reference.examples import Examples, show
from rookery.reference.naming import operation_id, other_prefix, parameters_of, shown_path
from rookery.reference.parameters import header_components as request_headers
from rookery.reference.parameters import headers, path_parameter, query_parameter
from rookery.reference.tags import groups, tags

VERSION = "1.0.0"
"""Of the API: the spec's own (spec 9)."""

_SCHEMES: Mapping[str, Schema] = {
    "bearerAuth": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`sk_live_…`, `sk_test_…`) or an agent key (`ak_…`).",
    },
    "apiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same keys in a header of their own."},
    "basicAuth": {"type": "http", "scheme": "basic", "description": "The key as the user name, and no password."},
}
_PAYLOAD: Schema = {
    "title": "WebhookPayload",
    "type": "object",
    "description": "What an endpoint is sent.",
    "required": ["id", "type", "created_at", "workspace_id", "data"],
    "properties": {
        "id": {"type": "string", "description": "Of the event: the same in each attempt and each resend."},
        "type": {"type": "string"},
        "created_at": {"type": "string", "format": "date-time"},
        "workspace_id": {"type": "integer"},
        "data": {"type": "object", "additionalProperties": True},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """An event that webhooks tell of, as `x-webhooks` shows it; *data*: what is in it, in words."""

    name: str
    says: str
    data: str


def document(
    endpoints: Sequence[Endpoint],
    *,
    address: Callable[[str], str],
    announced: Sequence[Announced] = (),
    examples: Examples = MappingProxyType({}),
) -> Schema:
    """
    Return the document of *endpoints*; those that are hidden are not in it.

    Args:
        address: Given a path, the scheme and host under which it is shown (D-01).

    Raises:
        ValueError: Two operations would have one name: a mistake in the tables.
    """
    shown = [(endpoint, notes) for endpoint in endpoints if not (notes := notes_of(endpoint.route.handler)).hidden]
    components = Components(_models(shown))
    answers = Answers(components)
    paths = {endpoint.path for endpoint, _ in shown}
    home = address("/api/v1")
    described: dict[str, Schema] = {}
    named = dict[str, str]()
    for endpoint, notes in shown:
        operation = _Operation(endpoint, notes, components, is_alias=other_prefix(endpoint.path) in paths).described(answers)
        where = f"{endpoint.route.method} {endpoint.path}"
        before = named.setdefault(cast("str", operation["operationId"]), where)
        if before != where:
            msg = f"{before} and {where} would both be {operation['operationId']}"
            raise ValueError(msg)
        item = described.setdefault(shown_path(endpoint.path), {})
        if (host := address(endpoint.path)) != home:
            item["servers"] = [{"url": host}]
        show(operation, endpoint.route.method, shown_path(endpoint.path), examples)
        item[endpoint.route.method.lower()] = operation
    used = [name for endpoint, notes in shown for name in _tags(endpoint.route, notes)]
    whole: Schema = {
        "openapi": "3.0.3",
        "info": {
            "title": "Rookery",
            "version": VERSION,
            "description": "The shared home of AI agents: tool servers behind one HTTP API, shared memory, and agent work.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "servers": [{"url": home}],
        "security": [{name: []} for name in _SCHEMES],
        "tags": tags(used),
        "x-tagGroups": groups(used),
        "paths": described,
        "components": {
            "securitySchemes": {name: dict(scheme) for name, scheme in _SCHEMES.items()},
            "parameters": request_headers(),
            "headers": header_components(),
            "responses": answers.responses,
            "schemas": {"Error": ERROR, **answers.formats, "WebhookPayload": _PAYLOAD, **components.schemas},
        },
    }
    if announced:
        whole["x-webhooks"] = {each.name: _told(each) for each in announced}
    return _without_unused(whole)


def _models(shown: Sequence[tuple[Endpoint, Notes]]) -> list[tuple[type[BaseModel], Mode]]:
    wanted = list[tuple[type[BaseModel], Mode]]()
    for endpoint, notes in shown:
        taken = (endpoint.body, endpoint.query)
        answered = (endpoint.route.answers, *(each.model for each in notes.answers.values()))
        wanted.extend((model, "validation") for model in taken if model is not None)
        wanted.extend((model, "serialization") for model in answered if model is not None)
    return wanted


class _Operation:
    """One operation of the document."""

    def __init__(self, endpoint: Endpoint, notes: Notes, components: Components, *, is_alias: bool) -> None:
        self._endpoint = endpoint
        self._notes = notes
        self._components = components
        self._is_alias = is_alias

    def described(self, answers: Answers) -> Schema:
        """Return it whole."""
        route, path = self._endpoint.route, self._endpoint.path
        operation: Schema = {
            "operationId": operation_id(route.method, path, is_alias=self._is_alias),
            "summary": route.summary,
            "description": self._description(),
            "tags": _tags(route, self._notes),
        }
        if parameters := self._parameters():
            operation["parameters"] = parameters
        if (body := self._body()) is not None:
            operation["requestBody"] = body
        operation["responses"] = answers.of(self._endpoint, self._notes)
        operation["security"] = self._security()
        if route.needs is not None:
            operation["x-required-scope"] = route.needs
        return operation

    def _description(self) -> str:
        route = self._endpoint.route
        said = [route.description]
        if route.public and route.greets:
            said.append("Needs no key; with one it shows what that may see.")
        elif route.public:
            said.append("Needs no key.")
        elif route.needs is None:
            said.append("Needs a key, whatever its scopes.")
        else:
            said.append(f"Needs the scope `{route.needs}`.")
        if not route.spends:
            said.append("Does not count against the key's limit.")
        if self._endpoint.body is not None:
            said.append(f"The body has at most {_size(route.max_body)}.")
        if self._is_alias:
            said.append(f"The same as under `{other_prefix(self._endpoint.path)}`.")
        return "\n\n".join(part for part in (said[0], " ".join(said[1:])) if part)

    def _parameters(self) -> list[Schema]:
        route, notes = self._endpoint.route, self._notes
        found = [path_parameter(name) for name in parameters_of(self._endpoint.path)]
        if (model := self._endpoint.query) is not None:
            fields, required = self._components.fields(model, "validation")
            found += [query_parameter(name, schema, is_required=name in required) for name, schema in fields.items()]
        reads = [
            *(() if route.public and not route.greets else ("X-Workspace-ID",)),
            *(("Idempotency-Key",) if route.once else ()),
            *notes.reads,
        ]
        return found + headers(list(dict.fromkeys(reads)))

    def _body(self) -> Schema | None:
        if (model := self._endpoint.body) is not None:
            schema = self._components.reference(model, "validation")
            return {"required": not self._endpoint.route.may_be_empty, "content": {JSON: {"schema": schema}}}
        if self._notes.takes:
            return {"required": True, "content": {kind: {"schema": {"type": "object"}} for kind in self._notes.takes}}
        return None

    def _security(self) -> list[Schema]:
        route, wanted = self._endpoint.route, self._notes.security
        if wanted is not None:
            return [{name: []} for name in wanted]
        if route.public and not route.greets:
            return []
        return [*([{}] if route.public else []), *({name: []} for name in _SCHEMES)]


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count // 1024} KiB"


def _tags(route: Route, notes: Notes) -> list[str]:
    return list(notes.tags or route.tags)


def _told(event: Announced) -> Schema:
    return {
        "post": {
            "operationId": f"told_{event.name.replace('.', '_')}",
            "summary": event.says,
            "description": f"A signed request of ours to the address of an endpoint that wants this event. `data`: {event.data}.",
            "requestBody": {"required": True, "content": {JSON: {"schema": {"$ref": "#/components/schemas/WebhookPayload"}}}},
            "responses": {"2XX": {"description": "Received."}},
        }
    }


def _without_unused(whole: Schema) -> Schema:
    """Leave out components that nothing in *whole* leads to: a query's model is shown as parameters, and the like."""
    components = cast("dict[str, dict[str, object]]", whole["components"])
    outside = {key: value for key, value in whole.items() if key != "components"}
    reached, waiting = set[str](), [outside]
    while waiting:
        for reference in _references(waiting.pop()):
            if reference not in reached:
                reached.add(reference)
                _, _, kind, name = reference.split("/")
                waiting.append(cast("Schema", components[kind][name]))
    kept = {
        kind: each if kind == "securitySchemes" else {name: one for name, one in each.items() if f"#/components/{kind}/{name}" in reached}
        for kind, each in components.items()
    }
    return {**whole, "components": kept}


_SHOWN = frozenset({"example", "examples"})
"""What stands under these is data: a `$ref` in it leads nowhere in our document."""


def _references(value: object) -> list[str]:
    found = list[str]()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            inside = cast("dict[str, object]", each)
            reference = inside.get("$ref")
            if isinstance(reference, str):
                found.append(reference)
            waiting += (value for name, value in inside.items() if name not in _SHOWN)
        elif isinstance(each, list):
            waiting += cast("list[object]", each)
    return found
