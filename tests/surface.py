"""
Everything that a user of Rookery can name, one thing a line: `python -m tests.surface > surface.txt`. `diff` compares two versions.

It has the routes with the fields of their parameters, bodies and answers, the MCP tools with their fields, the commands with their
options, the settings, events, metrics, scopes and error codes. Descriptions and the names of schemas are left out, because no program
depends on them.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from distribution.client.__main__ import load_document
from rookery.access.scopes import PRESETS, SCOPES
from rookery.domains import load_events
from rookery.kernel.config import Settings
from rookery.wiring import build_platform
from tests.documentation import ROOT, all_commands, table

_Schema = Mapping[str, Any]

_REFERENCE = ROOT / "docs" / "reference"
_TEXTS = frozenset({"description", "example", "examples", "title", "summary"})
_NESTED = frozenset({"$ref", "properties", "items", "additionalProperties", "anyOf", "oneOf", "allOf", "required", "discriminator"})


def iter_lines() -> Iterator[str]:
    """Yield the lines, in no order."""
    document = load_document()
    components = cast("_Schema", document["components"])
    for path, methods in cast("_Schema", document["paths"]).items():
        for method, operation in methods.items():
            if isinstance(operation, dict):
                yield from _iter_operation(f"{method.upper()} {path}", cast("_Schema", operation), components)
    with tempfile.TemporaryDirectory() as folder:
        platform = build_platform(Settings(data_dir=Path(folder)))
        for server in platform.tool_servers:
            for tool in server.tools():
                name = f"tool {server.id}/{tool.name}"
                yield name
                yield from _iter_fields(f"{name} argument", tool.input_schema, {})
                yield from _iter_fields(f"{name} result", tool.output_schema or {}, {})
        for metric in platform.observability.metrics.list_descriptions():
            yield f"metric {metric.name} {metric.kind} {','.join(metric.labels)}"
    for command, options in all_commands():
        yield from (f"command {command} {option}".rstrip() for option in ("", *options))
    yield from (f"setting ROOKERY_{setting.name.upper()} {setting.default!r}" for setting in dataclasses.fields(Settings))
    for event in cast("Sequence[Any]", load_events()):
        yield from (f"event {event.__name__} {field.name}" for field in dataclasses.fields(event))
    yield from (f"scope {scope}" for scope in SCOPES)
    yield from (f"preset {name} {','.join(sorted(scopes))}" for name, scopes in PRESETS.items())
    yield from (f"error {row[0]} {row[1]}" for row in table(_REFERENCE / "errors.md", "Code"))
    yield from (f"webhook event {row[0]}" for row in table(_REFERENCE / "webhook-events.md", "Event of a webhook"))


def _iter_operation(name: str, operation: _Schema, components: _Schema) -> Iterator[str]:
    yield f"{name} {operation.get('operationId', '')}"
    yield from (f"{name} alias {alias}" for alias in operation.get("x-aliases", ()))
    for reference in operation.get("parameters", ()):
        parameter = _follow(reference, components, "parameters")
        required = " required" if parameter.get("required") else ""
        yield from _iter_fields(f"{name} {parameter['in']} {parameter['name']}{required}", parameter.get("schema", {}), components)
    bodies = [("body", operation.get("requestBody", {})), *operation.get("responses", {}).items()]
    for label, reference in bodies:
        body = _follow(reference, components, "responses")
        for media_type, content in body.get("content", {}).items():
            yield from _iter_fields(f"{name} {label} {media_type}", content.get("schema", {}), components)
        yield from (f"{name} {label} header {header}" for header in body.get("headers", {}))


def _follow(item: _Schema, components: _Schema, kind: str) -> _Schema:
    """Return *item*, or what it refers to."""
    return components[kind][str(item["$ref"]).rpartition("/")[2]] if "$ref" in item else item


def _iter_fields(name: str, schema: _Schema, components: _Schema, open_references: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield a line for *schema* and each of its fields, with references replaced by what they name."""
    reference = schema.get("$ref")
    if reference is not None:
        if reference in open_references:
            yield f"{name} (again)"
            return
        target = components["schemas"][str(reference).rpartition("/")[2]]
        schema, open_references = {**target, **{key: schema[key] for key in schema if key != "$ref"}}, open_references | {reference}
    rules = {key: value for key, value in schema.items() if key not in _TEXTS | _NESTED}
    yield f"{name} {json.dumps(rules, sort_keys=True, ensure_ascii=False)}"
    required = frozenset(schema.get("required", ()))
    for field, inner in schema.get("properties", {}).items():
        yield from _iter_fields(f"{name} .{field}{' required' if field in required else ''}", inner, components, open_references)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _iter_fields(f"{name} {key}", schema[key], components, open_references)
    for key in ("anyOf", "oneOf", "allOf"):
        for number, inner in enumerate(schema.get(key, ())):
            yield from _iter_fields(f"{name} {key}{number}", inner, components, open_references)


def main() -> None:
    """Print the lines, sorted."""
    sys.stdout.writelines(f"{line}\n" for line in sorted(set(iter_lines())))


if __name__ == "__main__":
    main()
