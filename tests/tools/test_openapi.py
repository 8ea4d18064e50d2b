"""One server's tools as OpenAPI 3.1."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import cast
from urllib.parse import unquote

import jsonschema_rs
import pytest
from openapi_spec_validator import validate

from rookery.access.models import KeyRestrictions
from rookery.kernel.config import Settings
from rookery.tools.discovery.server_openapi import build_openapi
from rookery.tools.models import BuiltinTarget, JsonObject, Server
from tests.conftest import Instance, run_instance
from tests.tools.makers import make_odd_entry

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

BASE = "/api/v1/mcp"
SERVER = Server(id="s", name="S", target=BuiltinTarget())


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with a server of odd tools, a deprecated one, and a disabled one."""
    servers = {
        "odd": make_odd_entry(tagline="Misbehaves"),
        "old": make_odd_entry(status="deprecated"),
        "off": make_odd_entry(enabled=False),
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        yield instance


def operations(document: JsonObject) -> dict[str, JsonObject]:
    """Return the operations by the tool that their path names."""
    paths = cast("dict[str, dict[str, JsonObject]]", document["paths"])
    return {unquote(path.rpartition("/")[2]): item["post"] for path, item in paths.items()}


def accepts(document: JsonObject, tool: str, arguments: object) -> bool:
    """Return whether the document accepts *arguments* for a tool, with its references resolved by the standard."""
    (path,) = [key for key in cast("JsonObject", document["paths"]) if unquote(key.rpartition("/")[2]) == tool]
    pointer = "/".join(part.replace("~", "~0").replace("/", "~1") for part in ("paths", path, "post"))
    reference = {"$ref": f"urn:described#/{pointer}/requestBody/content/application~1json/schema".replace("%", "%25")}
    registry = jsonschema_rs.Registry([("urn:described", document)], draft=jsonschema_rs.Draft202012)
    return jsonschema_rs.Draft202012Validator(reference, registry=registry).is_valid(arguments)


async def test_the_document_is_valid_and_has_every_tool(instance: Instance) -> None:
    """OpenAPI 3.1 by its own validator; an operation for each tool that the key sees, callable at its path."""
    for server in ("odd", "brain", "old"):
        document = (await instance.admin.get(f"{BASE}/servers/{server}/openapi.json")).json()
        tools = (await instance.admin.get(f"{BASE}/servers/{server}/tools")).json()["tools"]

        validate(document)
        assert document["openapi"] == "3.1.0"
        assert set(operations(document)) == {tool["name"] for tool in tools}
        assert document["servers"] == [{"url": f"http://127.0.0.1:8400{BASE}"}]
    assert all(operation.get("deprecated") is True for operation in operations(document).values())


async def test_schemas_are_the_tools_own(instance: Instance) -> None:
    """Schemas are verbatim, except that references into a schema itself get the path of the schema."""
    document = (await instance.admin.get(f"{BASE}/servers/odd/openapi.json")).json()
    tools = (await instance.admin.get(f"{BASE}/servers/odd/tools")).json()["tools"]

    for tool in tools:
        body = cast("dict[str, dict[str, dict[str, JsonObject]]]", operations(document)[tool["name"]]["requestBody"])
        schema = dict(body["content"]["application/json"]["schema"])
        shortened = re.sub(r"#/paths/[^\"]*?/schema/", "#/", json.dumps(schema))
        assert json.loads(shortened) == tool["inputSchema"]
        assert (schema == tool["inputSchema"]) == ("#/" not in json.dumps(tool["inputSchema"]))
    assert accepts(document, "echo", {"text": "hi"})
    assert not accepts(document, "echo", {"text": 1})


async def test_a_path_of_the_document_calls_its_tool(instance: Instance) -> None:
    """A client built from the document works."""
    document = (await instance.admin.get(f"{BASE}/servers/odd/openapi.json")).json()
    (path,) = [key for key in document["paths"] if key.endswith("/echo")]

    response = await instance.admin.post(f"{BASE}{path}", {"text": "hi"})

    assert response.json()["result"]["structuredContent"] == {"text": "hi"}


async def test_the_document_has_only_tools_that_the_key_may_use(instance: Instance) -> None:
    """The document depends on the key."""
    restricted = await instance.api_key("*", restrictions=KeyRestrictions(tools=("odd/echo",)))
    no_memory = await instance.api_key("mcp:read")

    assert set(operations((await restricted.get(f"{BASE}/servers/odd/openapi.json")).json())) == {"echo"}
    assert (await no_memory.get(f"{BASE}/servers/brain/openapi.json")).json()["paths"] == {}
    for server, status, code in [("none", 404, "server_not_found"), ("off", 403, "disabled")]:
        response = await instance.admin.get(f"{BASE}/servers/{server}/openapi.json")
        assert (response.status_code, response.json()["error"]) == (status, code)


def test_names_with_special_characters_are_encoded_and_stay_distinct() -> None:
    """Slashes, braces and two tools whose names differ by signs alone."""
    names = ["a/b", "a b", "{x}", "ä", "n" * 128, "plain"]
    document = build_openapi(SERVER, [{"name": name} for name in names], address="https://e.example/api/v1/mcp", version="1")

    validate(document)
    assert set(operations(document)) == set(names)
    operation_ids = [str(operation["operationId"]) for operation in operations(document).values()]
    assert len(set(operation_ids)) == len(names)
    assert max(map(len, operation_ids)) <= 64


def test_values_that_look_like_references_stay_unchanged() -> None:
    """Values inside a schema and named schemas are not changed."""
    data: JsonObject = {"type": "object", "default": {"$ref": "#/x"}, "properties": {"$ref": {"const": {"$ref": "#/y"}}}}
    named: JsonObject = {"$id": "https://e.example/t", "type": "object", "$defs": {"T": {}}, "properties": {"a": {"$ref": "#/$defs/T"}}}
    tools: list[JsonObject] = [{"name": "data", "inputSchema": data}, {"name": "named", "inputSchema": named}]

    document = operations(build_openapi(SERVER, tools, address="https://e.example", version="1"))

    for tool, schema in (("data", data), ("named", named)):
        body = cast("dict[str, dict[str, dict[str, JsonObject]]]", document[tool]["requestBody"])
        assert body["content"]["application/json"]["schema"] == schema


def test_references_in_a_schema_resolve_to_the_schema_itself() -> None:
    """`#/$defs/…` of one tool never finds another's, nor the document's."""
    tools: list[JsonObject] = [
        {
            "name": f"take {kind}",
            "inputSchema": {
                "type": "object",
                "$defs": {"T": {"type": kind}},
                "properties": {"a": {"$ref": "#/$defs/T"}},
                "required": ["a"],
            },
            "outputSchema": {"type": "object", "$defs": {"T": {"type": "null"}}, "properties": {"a": {"$ref": "#/$defs/T"}}},
        }
        for kind in ("string", "integer")
    ]
    document = build_openapi(SERVER, tools, address="https://e.example", version="1")

    validate(document)
    assert (accepts(document, "take string", {"a": "x"}), accepts(document, "take string", {"a": 1})) == (True, False)
    assert (accepts(document, "take integer", {"a": 1}), accepts(document, "take integer", {"a": "x"})) == (True, False)


@pytest.mark.parametrize("name", ["default", "enum", "$ref"])
def test_references_of_a_property_named_as_a_keyword_are_moved(name: str) -> None:
    """Names of properties are not keywords; the schema's own references still resolve to the schema itself."""
    tools: list[JsonObject] = [
        {"name": "take", "inputSchema": {"type": "object", "$defs": {"T": {"type": "string"}}, "properties": {name: {"$ref": "#/$defs/T"}}}}
    ]
    document = build_openapi(SERVER, tools, address="https://e.example", version="1")

    validate(document)
    assert (accepts(document, "take", {name: "x"}), accepts(document, "take", {name: 1})) == (True, False)


DRAFTS = {"draft4": "http://json-schema.org/draft-04/schema#", "draft7": "http://json-schema.org/draft-07/schema#"}


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=DRAFTS)
def test_a_schema_of_an_old_draft_accepts_the_same_arguments_in_the_document(draft: str) -> None:
    """The document's dialect is 2020-12, in which some keywords of old drafts have another form."""
    limit: JsonObject = {"minimum": 0, "exclusiveMinimum": True} if "draft-04" in draft else {"exclusiveMinimum": 0}
    schema: JsonObject = {
        "$schema": draft,
        "type": "object",
        "definitions": {"pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": {"not": {}}}},
        "properties": {
            "pair": {"$ref": "#/definitions/pair"},
            "first": {"$ref": "#/definitions/pair/items/0"},
            "items": {"type": "array", "items": {"type": "string"}},
            "n": {"type": "number", **limit},
        },
        "dependencies": {"first": ["n"], "items": {"required": ["pair"]}},
    }
    document = build_openapi(SERVER, [{"name": "take", "inputSchema": schema}], address="https://e.example", version="1")

    validate(document)
    valid = jsonschema_rs.validator_for(schema)
    cases: list[JsonObject] = [
        {"pair": [1, "a"], "first": 1, "n": 0.5},
        {"pair": ["a"]},
        {"pair": [1, "a", 2]},
        {"first": "a", "n": 1},
        {"first": 1},
        {"n": 0},
        {"items": ["a"], "pair": []},
        {"items": ["a"]},
        {"items": [1], "pair": []},
    ]
    outcomes = [valid.is_valid(case) for case in cases]
    assert [accepts(document, "take", case) for case in cases] == outcomes
    assert {True, False} == set(outcomes)


def test_a_schema_of_an_old_draft_stays_unchanged_if_it_means_the_same() -> None:
    """Draft-07 differs in few keywords."""
    schema: JsonObject = {"$schema": DRAFTS["draft7"], "type": "object", "properties": {"a": {"items": {"type": "string"}}}}
    document = build_openapi(SERVER, [{"name": "take", "inputSchema": schema}], address="https://e.example", version="1")

    body = cast("dict[str, dict[str, dict[str, JsonObject]]]", operations(document)["take"]["requestBody"])
    assert body["content"]["application/json"]["schema"] == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"$defs": {"T": {"$anchor": "t", "type": "string"}}, "properties": {"a": {"$ref": "#t"}}},
        {"$defs": {"T": {"$dynamicAnchor": "t", "type": "string"}}, "properties": {"a": {"$dynamicRef": "#t"}}},
    ],
)
def test_two_tools_may_have_schemas_with_the_same_anchors(schema: JsonObject) -> None:
    """An anchor that occurs twice in one document would be ambiguous."""
    tools: list[JsonObject] = [{"name": name, "inputSchema": {"type": "object", **schema}} for name in ("one", "two")]
    document = build_openapi(SERVER, tools, address="https://e.example", version="1")

    validate(document)
    for name in ("one", "two"):
        assert (accepts(document, name, {"a": "x"}), accepts(document, name, {"a": 1})) == (True, False)


@pytest.mark.parametrize("reference", ["#/$defs/T", "#t", "https://e.example/t#/$defs/T", "https://e.example/t#t"])
def test_two_tools_may_have_schemas_with_the_same_id(reference: str) -> None:
    """An id that occurs twice in one document would be ambiguous, so only the first schema keeps it."""
    schema: JsonObject = {
        "$id": "https://e.example/t",
        "type": "object",
        "$defs": {"T": {"$anchor": "t", "type": "string"}},
        "properties": {"a": {"$ref": reference}},
    }
    tools: list[JsonObject] = [{"name": name, "inputSchema": schema} for name in ("one", "two")]
    document = build_openapi(SERVER, tools, address="https://e.example", version="1")

    validate(document)
    body = cast("dict[str, dict[str, dict[str, JsonObject]]]", operations(document)["one"]["requestBody"])
    assert body["content"]["application/json"]["schema"] == schema
    assert (accepts(document, "two", {"a": "x"}), accepts(document, "two", {"a": 1})) == (True, False)
