"""
The whole API as one OpenAPI 3.0.3 document, made of the routes that are mounted (spec 4.5, D-83).

Nothing here is written down twice: what a route takes and answers, whom it lets in and how it refuses comes from the row that serves it,
and from what decorators said of its handler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import cast

from pydantic import BaseModel

from rookery.kernel.http.describing import Notes
from rookery.kernel.http.routes import MIB, Endpoint, Route
from rookery.reference.aliases import DocumentedRoute, documented_routes
from rookery.reference.answers import ERROR, JSON, Answers, header_components
from rookery.reference.components import Components, Mode, words_of
from rookery.reference.downgrade import Schema
from rookery.reference.examples import Examples, show
from rookery.reference.naming import parameters_of, shown_path
from rookery.reference.parameters import header_components as request_headers
from rookery.reference.parameters import headers, path_parameter, query_parameter
from rookery.reference.tags import groups, tags

TITLE = "Rookery API"
"""Generators name a client after it: openapi-python-client makes the package `rookery_api_client`, beside our `rookery_client`."""

VERSION = "1.0.0"
"""The version of the API (spec 9)."""

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
        ValueError: Two different operations have the same name.
    """
    shown = documented_routes(endpoints)
    components = Components(_models(shown))
    answers = Answers(components)
    home = address("/api/v1")
    described: dict[str, Schema] = {}
    for each in shown:
        endpoint = each.endpoint
        operation = _Operation(each, components, address).described(answers)
        item = described.setdefault(shown_path(endpoint.path), {})
        if (host := address(endpoint.path)) != home:
            item["servers"] = [{"url": host}]
        show(operation, each.all_names, examples)
        item[endpoint.route.method.lower()] = operation
    used = [name for each in shown for name in _tags(each.endpoint.route, each.notes)]
    whole: Schema = {
        "openapi": "3.0.3",
        "info": {
            "title": TITLE,
            "version": VERSION,
            "description": introduction(),
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


def introduction() -> str:
    """Return the text that the document begins with, in Markdown."""
    return (resources.files("rookery.reference") / "introduction.md").read_text(encoding="utf-8").strip()


def _models(shown: Sequence[DocumentedRoute]) -> list[tuple[type[BaseModel], Mode]]:
    wanted = list[tuple[type[BaseModel], Mode]]()
    for each in shown:
        taken = (each.endpoint.body, each.endpoint.query)
        answered = (each.endpoint.route.answers, *(one.model for one in each.notes.answers.values()))
        wanted.extend((model, "validation") for model in taken if model is not None)
        wanted.extend((model, "serialization") for model in answered if model is not None)
    return wanted


class _Operation:
    """One operation of the document."""

    def __init__(self, documented: DocumentedRoute, components: Components, address: Callable[[str], str]) -> None:
        self._documented = documented
        self._endpoint = documented.endpoint
        self._notes = documented.notes
        self._components = components
        self._address = address

    def described(self, answers: Answers) -> Schema:
        """Return it whole."""
        route = self._endpoint.route
        operation: Schema = {
            "operationId": self._documented.operation_id,
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
        if self._documented.aliases:
            operation["x-aliases"] = [shown_path(path) for path in self._documented.aliases]
        return operation

    def _description(self) -> str:
        route = self._endpoint.route
        said = list[str]()
        if route.public and route.greets:
            said.append("No key is required. With a key, the answer includes what the key may see.")
        elif route.public:
            said.append("No key is required.")
        elif route.needs is None:
            said.append("Requires a key with any scope.")
        else:
            said.append(f"Requires the scope `{route.needs}`.")
        if not route.spends:
            said.append("Does not count against the key's rate limit.")
        if self._endpoint.body is not None:
            said.append(f"The body has at most {_size(route.max_body)}.")
        if self._documented.aliases:
            said.append(f"Also served at {' and '.join(self._alias(path) for path in self._documented.aliases)}.")
        return "\n\n".join(part for part in (words_of(route.handler.__doc__), route.description, " ".join(said)) if part)

    def _alias(self, path: str) -> str:
        """Return how an alias is written: with its host only if that is another one than the operation's."""
        host = self._address(path)
        return f"`{'' if host == self._address(self._endpoint.path) else host}{shown_path(path)}`"

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
            return {"required": not self._endpoint.may_be_empty, "content": {JSON: {"schema": schema}}}
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
            "operationId": f"receive_{event.name.replace('.', '_')}",
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
