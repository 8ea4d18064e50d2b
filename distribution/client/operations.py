"""The operations of the OpenAPI document that the client has, with their arguments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from distribution.client.types import Schema, get_reference, to_argument

GROUPS: Mapping[str, str] = {
    "Memory": "memory",
    "Discovery": "tools",
    "Execution": "tools",
    "Tool servers": "servers",
    "Analytics": "analytics",
    "Plans": "plans",
    "Templates": "templates",
    "Sessions": "sessions",
    "Content": "content",
    "Scoring": "scoring",
    "Usage": "usage",
    "Notifications": "notifications",
    "Keys": "keys",
    "Workspaces": "workspaces",
    "Audit": "audit",
    "Webhooks": "webhooks",
    "Operation": "operation",
}
"""The attribute of the client for the operations with each tag."""

SKIPPED_TAGS = frozenset({"MCP", "Documentation"})
"""MCP is spoken by MCP clients; the documentation is for browsers."""

_SKIPPED_HEADERS = frozenset({"X-Workspace-ID", "Idempotency-Key", "Prefer", "Last-Event-ID"})
_STREAM_PARAGRAPHS = ("With `Accept: text/event-stream`", "`stream` returns")
_HTTP_SENTENCES = r"(?:The body has at most [^.]*\.|Also served at .*|`Prefer: [^.]*\.|No key is required\.$)"
_EVENT_STREAM, _JSON, _CSV = "text/event-stream", "application/json", "text/csv"

Reader = Literal["json", "text", "nothing", "stream"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """An argument of a method: its *name* in Python, and in the request as *sent_as*. Without a name there, it is the whole body."""

    name: str
    sent_as: str
    place: Literal["path", "query", "header", "body"]
    schema: Schema
    is_required: bool
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """
    A method of the client.

    Attributes:
        result: The schema of the JSON response; None for other readers.
        item: For a list, the schema of an item.
        description: What the operation does, in paragraphs.
        content_types: The content types of a body that is not JSON; the first is the default.
        is_repeatable: A POST without Idempotency-Key that may be sent again, because it only reads.
        may_be_empty: The response may be a 204 instead, for which the method returns None.
    """

    group: str
    name: str
    operation: str
    summary: str
    description: str
    http_method: str
    path: str
    arguments: Sequence[Argument]
    has_body: bool
    reader: Reader
    accept: str
    result: Schema | None
    item: Schema | None
    content_types: Sequence[str]
    accepts_key: bool
    is_repeatable: bool
    may_be_empty: bool


def list_methods(document: Schema) -> list[Method]:
    """Return the methods of all operations, in the order of the document."""
    paths = cast("Mapping[str, Mapping[str, Schema]]", document["paths"])
    components = cast("Mapping[str, Schema]", cast("Schema", document["components"])["schemas"])
    parameters = cast("Mapping[str, Schema]", cast("Schema", document["components"])["parameters"])
    return [
        method
        for path, item in paths.items()
        for http_method, operation in item.items()
        if not SKIPPED_TAGS.intersection(cast("Sequence[str]", operation["tags"]))
        for method in _Operation(path, http_method.upper(), operation, components, parameters).list_methods()
    ]


@dataclass(frozen=True, slots=True)
class _Operation:
    path: str
    http_method: str
    operation: Schema
    components: Mapping[str, Schema]
    parameters: Mapping[str, Schema]

    def list_methods(self) -> Iterator[Method]:
        """Yield a method for the JSON or text response, and further ones for CSV and for the stream. A page for browsers has none."""
        contents = self._successful_contents()
        name = str(self.operation["operationId"])
        plain = [kind for kind in contents if kind != _EVENT_STREAM]
        if _JSON in contents or any(kind.endswith("+json") for kind in plain):
            accept = _JSON if _JSON in contents else plain[0]
            yield self._build(name, reader="json", accept=accept, result=contents[accept])
            if _CSV in contents:
                yield self._build(f"{name}_csv", reader="text", accept=_CSV)
        elif not contents:
            yield self._build(name, reader="nothing", accept=_JSON)
        elif plain and plain[0] != "text/html" and not plain[0].startswith("image/"):
            yield self._build(name, reader="text", accept=plain[0])
        if _EVENT_STREAM in contents:
            yield self._build(name if len(contents) == 1 else f"{name}_stream", reader="stream", accept=_EVENT_STREAM)

    def _build(self, name: str, *, reader: Reader, accept: str, result: Schema | None = None) -> Method:
        tag = cast("Sequence[str]", self.operation["tags"])[0]
        body = self._body_contents()
        content_types = [kind for kind in body if kind != _JSON]
        parameters = [self._resolve(parameter) for parameter in cast("Sequence[Schema]", self.operation.get("parameters", ()))]
        arguments = list(self._list_parameters(parameters))
        taken = {argument.name for argument in arguments}
        arguments += self._list_fields(body.get(_JSON), taken)
        return Method(
            group=GROUPS[tag],
            name=name,
            operation=str(self.operation["operationId"]),
            summary=str(self.operation["summary"]),
            description=self._describe(reader),
            http_method=self.http_method,
            path=re.sub(r"{(\w+)}", lambda match: f"{{{to_argument(match[1])}}}", self.path),
            arguments=arguments,
            has_body=_JSON in body,
            reader=reader,
            accept=accept,
            result=result,
            item=None if result is None else self._find_item(result),
            content_types=content_types,
            accepts_key=any(parameter["name"] == "Idempotency-Key" for parameter in parameters),
            is_repeatable=self.operation.get("x-repeatable") is True,
            may_be_empty=reader == "json" and "204" in cast("Mapping[str, object]", self.operation["responses"]),
        )

    def _successful_contents(self) -> dict[str, Schema]:
        """Return the schema of each content type of the successful responses."""
        responses = cast("Mapping[str, Schema]", self.operation["responses"])
        contents = dict[str, Schema]()
        for status, response in responses.items():
            if status.startswith("2"):
                for kind, content in cast("Mapping[str, Schema]", response.get("content", {})).items():
                    contents.setdefault(kind, cast("Schema", content.get("schema", {})))
        return contents

    def _body_contents(self) -> Mapping[str, Schema]:
        body = cast("Schema", self.operation.get("requestBody", {}))
        contents = cast("Mapping[str, Schema]", body.get("content", {}))
        return {kind: cast("Schema", content.get("schema", {})) for kind, content in contents.items()}

    def _resolve(self, parameter: Schema) -> Schema:
        reference = parameter.get("$ref")
        return self.parameters[reference.rpartition("/")[2]] if isinstance(reference, str) else parameter

    def _list_parameters(self, parameters: Sequence[Schema]) -> Iterator[Argument]:
        for parameter in parameters:
            name, place = str(parameter["name"]), cast("Literal['path', 'query', 'header']", parameter["in"])
            if place != "header" or name not in _SKIPPED_HEADERS:
                schema = cast("Schema", parameter["schema"])
                yield Argument(
                    name=to_argument(name),
                    sent_as=name,
                    place=place,
                    schema=schema,
                    is_required=parameter.get("required") is True,
                    description=str(parameter.get("description", "")),
                )

    def _list_fields(self, body: Schema | None, taken: Collection[str]) -> Iterator[Argument]:
        """Yield the fields of the body. One with the name of a parameter in *taken* becomes `body_…`."""
        if body is None:
            return
        component = self.components.get(get_reference(body) or "", body)
        if "properties" not in component:
            description = str(component.get("description", ""))
            yield Argument(name="body", sent_as="", place="body", schema={"type": "object"}, is_required=True, description=description)
            return
        required = cast("Sequence[str]", component.get("required", ()))
        for name, schema in cast("Mapping[str, Schema]", component["properties"]).items():
            argument = to_argument(name)
            argument = f"body_{argument}" if argument in taken else argument
            yield Argument(
                name=argument,
                sent_as=name,
                place="body",
                schema=schema,
                is_required=name in required,
                description=self._describe_field(schema),
            )

    def _describe_field(self, schema: Schema) -> str:
        """Return the description of a field, or that of the object that it is or contains."""
        items = cast("Schema", schema.get("items", {}))
        for part in (schema, self.components.get(get_reference(schema) or "", {}), self.components.get(get_reference(items) or "", {})):
            if text := part.get("description"):
                return str(text)
        return ""

    def _describe(self, reader: Reader) -> str:
        """Return the description of the operation for the users of one method: without what concerns another reader or HTTP alone."""
        paragraphs = str(self.operation.get("description", "")).split("\n\n")
        kept = [text for text in paragraphs if reader == "stream" or not text.startswith(_STREAM_PARAGRAPHS)]
        return "\n\n".join(re.sub(_HTTP_SENTENCES, "", text).strip() for text in kept)

    def _find_item(self, result: Schema) -> Schema | None:
        """Return the schema of an item, if *result* is a page."""
        properties = cast("Mapping[str, Schema]", self.components.get(get_reference(result) or "", {}).get("properties", {}))
        return cast("Schema", properties["data"]["items"]) if {"data", "links", "meta"} <= properties.keys() else None
