"""The examples of the documentation: each operation has a recorded one that matches the current responses."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.downgrade import Schema
from rookery.reference.examples import Examples, iter_parts, load_packaged_examples
from rookery.reference.openapi import build_document
from rookery.reference.operation_names import documented_routes
from rookery.wiring import build_platform
from tests.conftest import lend_model
from tests.openapi_check import as_json_schema
from tests.reference.recording.story import UNRECORDED, record_story

_HINT = "run make examples, and review the changes"

_OTHER_FORMATS = {
    "get /.well-known/ai-catalog.json",
    "get /.well-known/mcp-servers.json",
    "get /api/docs/openapi",
    "get /api/v1/mcp/servers/{serverId}/openapi.json",
    "get /mcp/server-card",
    "get /mcp/{serverId}/server-card",
    "get /oauth/client.json",
    "get /v0.1/servers",
    "get /v0.1/servers/{name}/versions",
    "get /v0.1/servers/{name}/versions/{version}",
    "post /mcp",
    "post /mcp/{serverId}",
}
"""Operations whose whole answer has the format of another specification, which is not repeated."""


@pytest.fixture(scope="module")
def examples() -> Examples:
    """The examples of the package."""
    return load_packaged_examples()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """The route table of the documented application."""
    mounted = build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("data"))))
    return [endpoint for endpoint in mounted.endpoints if not endpoint.route.hidden]


@pytest.fixture(scope="module")
def document(endpoints: list[RouteEndpoint], examples: Examples) -> Schema:
    """The document with the examples."""
    return build_document(endpoints, public_url=lambda _: "http://localhost:8400", examples=examples)


def test_every_operation_has_an_example(endpoints: list[RouteEndpoint], examples: Examples) -> None:
    """An example is recorded under the path or an alias; UNRECORDED has the reasons for missing ones."""
    routes = documented_routes(endpoints)

    assert {route.name for route in routes if examples.keys().isdisjoint(route.all_names)} == set(UNRECORDED), _HINT
    assert examples.keys() <= {name for route in routes for name in route.all_names}, "there are examples of unknown operations"


async def test_the_examples_match_the_current_responses(data_dir: Path, model_folder: Path, examples: Examples) -> None:
    """A new recording has the same statuses, fields and types."""
    lend_model(model_folder, data_dir)
    recorded = {name: example for part in (await record_story(data_dir)).values() for name, example in part.items()}

    assert recorded.keys() == examples.keys(), _HINT
    for name, example in examples.items():
        for part in ("path", "query", "body", "status"):
            assert recorded[name].get(part) == example.get(part), f"{name}: {part}; {_HINT}"
        assert list(_list_differences(example.get("answer"), recorded[name].get("answer"))) == [], f"{name}; {_HINT}"
        assert ("answer" in example) == ("answer" in recorded[name]), f"{name}; {_HINT}"


def test_the_document_stays_valid_with_its_examples(document: Schema, endpoints: list[RouteEndpoint], examples: Examples) -> None:
    """An independent validator accepts it, and it contains all recorded examples."""
    assert [str(error) for error in OpenAPIV30SpecValidator(document).iter_errors()] == []
    count = sum("example" in media for _, media in _media(document))
    assert count >= sum("answer" in example for example in examples.values())
    assert len(endpoints) > len(examples)


def test_each_example_is_valid_against_its_schema(document: Schema) -> None:
    """Bodies and responses of examples match the schemas of their operation."""
    schemas = cast("dict[str, dict[str, Schema]]", document["components"])["schemas"]
    components = {"schemas": {name: as_json_schema(schema) for name, schema in schemas.items()}}
    for where, media in _media(document):
        if "example" in media:
            schema = {**as_json_schema(cast("Schema", media["schema"])), "components": components}
            errors = [
                f"{error.instance_path}: {error.message}" for error in jsonschema_rs.Draft4Validator(schema).iter_errors(media["example"])
            ]
            assert errors == [], where


def test_each_field_of_a_recorded_answer_is_documented(document: Schema) -> None:
    """Clients of generators drop undocumented fields. A JSON object of the caller's own may have any fields."""
    schemas = cast("dict[str, dict[str, Schema]]", document["components"])["schemas"]
    free_answers, checked = set[str](), 0
    for where, media in _media(document):
        name, _, part = where.rpartition(" ")
        if part == "body" or not isinstance(media.get("example"), dict):
            continue
        if any("properties" in schema for schema in iter_parts(cast("Schema", media["schema"]), schemas)):
            assert list(_iter_undocumented(media["example"], [cast("Schema", media["schema"])], schemas)) == [], where
            checked += 1
        else:
            free_answers.add(name)
    assert free_answers <= _OTHER_FORMATS, free_answers - _OTHER_FORMATS
    assert checked > 150


def test_examples_contain_no_secrets_and_no_names_of_the_recording_machine(examples: Examples) -> None:
    """Everybody who may read the documentation sees them."""
    text = str(examples)

    assert re.findall(r"\b(?:sk_live_|sk_test_|ak_|whsec_)[A-Za-z0-9+/=]{8,}", text) == []
    assert re.findall(r"/(?:home|root|tmp|work|Users)/|127\.0\.0\.1|localhost", text) == []
    assert socket.gethostname() not in text


def _media(document: Schema) -> Iterator[tuple[str, Schema]]:
    for path, item in cast("dict[str, dict[str, Schema]]", document["paths"]).items():
        for method, operation in item.items():
            if method == "servers":
                continue
            bodies = {"body": cast("Schema", operation.get("requestBody", {})), **cast("dict[str, Schema]", operation["responses"])}
            for name, content in bodies.items():
                yield from ((f"{method} {path} {name}", media) for media in cast("dict[str, Schema]", content.get("content", {})).values())


def _iter_undocumented(value: object, alternatives: list[Schema], schemas: Mapping[str, Schema], where: str = "") -> Iterator[str]:
    """Yield the places of fields that no alternative has, in objects of which fields are documented."""
    parts = [part for schema in alternatives for part in iter_parts(schema, schemas)]
    if isinstance(value, list):
        items = [cast("Schema", part["items"]) for part in parts if "items" in part]
        for number, item in enumerate(cast("list[object]", value)):
            yield from _iter_undocumented(item, items, schemas, f"{where}/{number}")
    elif isinstance(value, dict):
        fields = [cast("dict[str, Schema]", part["properties"]) for part in parts if "properties" in part]
        others = [cast("Schema", part["additionalProperties"]) for part in parts if isinstance(part.get("additionalProperties"), dict)]
        for name, member in cast("Schema", value).items():
            documented = [group[name] for group in fields if name in group] or others
            if fields and not documented:
                yield f"{where}/{name}"
            yield from _iter_undocumented(member, documented, schemas, f"{where}/{name}")


def _list_differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """Yield the paths where two responses differ in fields or types; null and the empty list match every type."""
    kinds = _kind(one), _kind(other)
    if isinstance(one, dict) and isinstance(other, dict):
        first_fields, second_fields = cast("Schema", one), cast("Schema", other)
        yield from (f"{where}/{name}" for name in sorted(first_fields.keys() ^ second_fields.keys()))
        for name in first_fields.keys() & second_fields.keys():
            yield from _list_differences(first_fields[name], second_fields[name], f"{where}/{name}")
    elif isinstance(one, list) and isinstance(other, list):
        for first, second in zip(cast("list[object]", one)[:1], cast("list[object]", other)[:1], strict=False):
            yield from _list_differences(first, second, f"{where}/0")
    elif one is not None and other is not None and kinds[0] != kinds[1]:
        yield f"{where}: {kinds}"


def _kind(value: object) -> str:
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
