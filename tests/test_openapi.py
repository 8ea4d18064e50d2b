"""The OpenAPI document of the server: it is valid OpenAPI 3.0 and documents all routes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.events import EventType
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.downgrade import Schema
from rookery.reference.openapi import build_document
from rookery.reference.operation_names import document_path
from rookery.wiring import build_platform
from tests.openapi_check import DocumentedResponses, as_json_schema

_METHODS = frozenset({"get", "post", "put", "patch", "delete"})
_OBJECTS = {
    "ServerSummary": "id name tagline status tool_count resource_count",
    "ServerList": "servers count",
    "Server": "id name tagline description tools resources",
    "Tool": "name description inputSchema",
    "Resource": "uri name description mimeType",
    "ToolList": "server tools count",
    "ResourceList": "server resources count",
    "ToolCallRequest": "server tool arguments",
    "ToolCallResponse": "success server tool result duration_ms error",
    "ResourceResponse": "uri content",
}
_VERBS = frozenset(
    "add archive browse call cancel check claim clear complete confirm copy create delete duplicate end export extend fail finish get "
    "heartbeat import list open pause preview read recall release remember remove replace resend restore resume retry revoke rotate "
    "schedule score search send set start stream suspend test unschedule update".split()
)
_TOOL_FAILURES = {("call_tool", "500"), ("call_server_tool", "500")}
_RATE_LIMIT_HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """The route table of an application that is not started."""
    return build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("data")))).endpoints


@pytest.fixture(scope="module")
def document(endpoints: list[RouteEndpoint]) -> Schema:
    """The OpenAPI document of the route table."""
    return build_document(endpoints, public_url=lambda _: "http://localhost:8400")


def test_the_document_is_openapi_3_0(document: Schema) -> None:
    """OpenAPI 3.0.3, version 1.0.0, with the keys openapi, info, paths, components; an independent validator agrees."""
    assert (document["openapi"], cast("Schema", document["info"])["version"]) == ("3.0.3", "1.0.0")
    assert document.keys() >= {"openapi", "info", "paths", "components"}
    assert [str(error) for error in OpenAPIV30SpecValidator(document).iter_errors()] == []


def test_every_reference_resolves_and_every_component_is_used(document: Schema) -> None:
    """Every $ref resolves, every component is used, and no type is null."""
    components = cast("dict[str, Schema]", document["components"])
    used = {f"#/components/{kind}/{name}" for kind, group in components.items() if kind != "securitySchemes" for name in group}
    assert {schema["$ref"] for schema in _iter_objects(document) if isinstance(schema.get("$ref"), str)} == used
    assert not [schema for schema in _iter_objects(document) if schema.get("type") == "null"]


def test_the_objects_of_the_tool_server_api_have_the_specifications_names_and_fields(document: Schema) -> None:
    """Each object has its fields, and a server one of the three statuses."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", document["components"])["schemas"])
    for name, fields in _OBJECTS.items():
        assert schemas[name]["properties"].keys() >= set(fields.split()), name
    assert schemas["ServerSummary"]["properties"]["status"]["enum"] == ["available", "beta", "deprecated"]
    assert schemas["ToolList"]["properties"]["tools"]["items"] == {"$ref": "#/components/schemas/Tool"}
    assert schemas["ToolCallRequest"]["required"] == ["server", "tool"]


def test_objects_that_may_be_given_as_text_are_documented(document: Schema) -> None:
    """Generated clients may write a task as its name and a criterion as its text."""
    plan = {"title": "Move", "phases": [{"name": "Pack", "tasks": ["Boxes"], "acceptance_criteria": ["All are shut"]}]}
    body = cast("Schema", cast("dict[str, Schema]", cast("Schema", document["paths"])["/api/agent/plans"])["post"]["requestBody"])
    schema = cast("Schema", cast("dict[str, Schema]", body["content"])["application/json"]["schema"])

    validator = jsonschema_rs.Draft4Validator({**schema, "components": document["components"]})

    assert [error.message for error in validator.iter_errors(plan)] == []
    assert not validator.is_valid({**plan, "phases": [5]})


def test_a_text_in_place_of_an_object_has_the_limits_of_its_field(document: Schema) -> None:
    """The description allows exactly what the server accepts: no empty or longer name, criterion or summary."""
    schemas = cast("dict[str, Schema]", cast("Schema", document["components"])["schemas"])
    fields = {"CriterionBody": "text", "TaskBody": "name", "PhaseBody": "name", "TemplateCriterion": "text", "TemplateTask": "name"}
    checked = 0
    for where, schema in _iter_schemas(document):
        texts = [part for part in cast("list[Schema]", schema.get("anyOf", [])) if part.get("type") == "string"]
        for part in cast("list[Schema]", schema.get("anyOf", [])):
            name = str(part.get("$ref")).rpartition("/")[2]
            if name in fields:
                limits = cast("dict[str, Schema]", schemas[name]["properties"])[fields[name]]
                assert [(text["minLength"], text["maxLength"]) for text in texts] == [(1, limits["maxLength"])], where
                checked += 1
            elif name == "NotesBody":
                summary = cast("dict[str, Schema]", schemas[name]["properties"])["summary"]
                assert [(text["minLength"], text["maxLength"]) for text in texts] == [(1, summary["maxLength"])], where
                checked += 1
    assert checked > 10


def test_the_end_and_the_stream_of_an_mcp_session_require_its_id(document: Schema) -> None:
    """Without Mcp-Session-Id the server refuses them, so the description requires it."""
    header = cast("dict[str, dict[str, Schema]]", document["components"])["parameters"]["Mcp-Session-Id"]
    assert (header["in"], header["required"]) == ("header", True)
    for path, method, operation in _iter_operations(document):
        is_session = path in {"/mcp", "/mcp/{serverId}"} and method in {"get", "delete"}
        reference = {"$ref": "#/components/parameters/Mcp-Session-Id"}
        assert (reference in cast("list[Schema]", operation.get("parameters", []))) == is_session, f"{method} {path}"


def test_descriptions_are_for_readers_of_the_api(document: Schema) -> None:
    """Descriptions cite no decisions and no class attributes, and no size is rounded down to 0."""
    texts = [str(schema["description"]) for schema in _iter_objects(document) if isinstance(schema.get("description"), str)]
    assert [text for text in texts if re.search(r"\bD-\d|\bspec \d|Attributes:|\b0 MiB", text)] == []
    assert "256 KiB" in str(cast("Schema", document["paths"])["/api/agent/templates"])
    request = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", document["components"])["schemas"])["ToolCallRequest"]
    assert str(request["properties"]["request_state"]["description"]).startswith("The `requestState`")


def test_no_schema_has_the_generated_name_of_an_object_field(document: Schema) -> None:
    """openapi-python-client names the object in `plan` of Template TemplatePlan, which must not collide."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", document["components"])["schemas"])
    generated = {
        name + field.title().replace("_", "")
        for name, schema in schemas.items()
        for field, property_ in schema.get("properties", {}).items()
        if property_.get("type") == "object" and "allOf" not in property_  # a reference that may be null has a name
    }
    assert generated & schemas.keys() == set()


def test_the_document_has_exactly_the_operations_of_the_routes(document: Schema, endpoints: list[RouteEndpoint]) -> None:
    """Every route that is not hidden is an operation or an alias of one, and there are no others."""
    served = sorted((endpoint.route.method.lower(), document_path(endpoint.path)) for endpoint in endpoints if not endpoint.route.hidden)
    documented = [
        (method, route_path)
        for path, method, operation in _iter_operations(document)
        for route_path in (path, *cast("list[str]", operation.get("x-aliases", [])))
    ]
    assert sorted(documented) == served


def test_routes_with_two_prefixes_are_documented_once(document: Schema) -> None:
    """The paths begin with /api/agent; each operation names its alias, also in its description."""
    paths = cast("dict[str, dict[str, Schema]]", document["paths"])
    assert [path for path in paths if path.startswith("/v1/") and not path.startswith(("/v1/brain/", "/v1/score/"))] == []
    assert paths["/api/agent/plans"]["get"]["x-aliases"] == ["/v1/plans"]
    assert "Also served at `/v1/plans`." in cast("str", paths["/api/agent/plans"]["get"]["description"])
    assert paths["/api/v1/mcp/tools/call"]["post"]["x-aliases"] == ["/mcp/tools/call"]
    assert "x-aliases" not in paths["/v1/brain/recall"]["post"]


def test_every_operation_has_a_unique_name(document: Schema) -> None:
    """Unique operationIds in snake_case."""
    names = [cast("str", operation["operationId"]) for _, _, operation in _iter_operations(document)]
    assert len(set(names)) == len(names)
    assert [name for name in names if re.fullmatch(r"[a-z]+(_[a-z]+)*", name) is None] == []


def test_the_name_of_an_operation_begins_with_a_verb(document: Schema, endpoints: list[RouteEndpoint]) -> None:
    """Generated clients have functions such as `remember` and `list_plans`; every route declares its name."""
    undeclared = [endpoint.path for endpoint in endpoints if not endpoint.route.operation_id and not endpoint.route.hidden]
    assert undeclared == []
    names = {cast("str", operation["operationId"]): f"{method} {path}" for path, method, operation in _iter_operations(document)}
    assert {name for name in names if name.partition("_")[0] not in _VERBS} == set()
    assert names["remember"] == "post /v1/brain/remember"
    assert names["call_tool"] == "post /api/v1/mcp/tools/call"
    assert names["claim_next_task"] == "post /api/agent/tasks/claim-next"


def test_all_errors_have_one_schema(document: Schema) -> None:
    """One schema keeps generated clients small; error codes are in an extension."""
    checked = 0
    for path, method, operation in _iter_operations(document):
        for status, reference in cast("dict[str, Schema]", operation["responses"]).items():
            response = _resolve(document, reference)
            codes = cast("list[str]", response.get("x-error-codes", []))
            assert [code for code in codes if f"- `{code}`: " not in str(response["description"])] == []
            if codes:
                name = "JsonRpcError" if operation["tags"] == ["MCP"] and method == "post" else _get_error_name(operation, status)
                schema = cast("dict[str, Schema]", response["content"])["application/json"]["schema"]
                alternatives = cast("Schema", schema).get("anyOf", cast("Schema", schema).get("oneOf", [schema]))
                assert {"$ref": f"#/components/schemas/{name}"} in cast("list[object]", alternatives), f"{method} {path} {status}"
                checked += 1
    assert checked > 1000
    refined = [
        schema
        for schema in _iter_objects(document)
        if {"$ref": "#/components/schemas/Error"} in cast("list[object]", schema.get("allOf", []))
    ]
    assert refined == []


def test_a_failed_tool_call_has_the_fields_of_an_error(document: Schema) -> None:
    """One schema for both, because generators of Go have no alternatives of which both may match."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", document["components"])["schemas"])
    failure = schemas["ToolCallFailure"]
    assert failure["properties"].keys() >= {"success", "server", "tool", *cast("list[str]", schemas["Error"]["required"])}
    assert {"error", "message"} <= set(cast("list[str]", failure["required"]))


def test_no_field_of_a_schema_has_a_default(document: Schema) -> None:
    """openapi-typescript requires fields with a default, so it is in the description and in `x-default`."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", document["components"])["schemas"])
    fields = [
        (f"{name}.{field}", property_) for name, schema in schemas.items() for field, property_ in schema.get("properties", {}).items()
    ]
    assert [where for where, property_ in fields if "default" in property_] == []
    with_default = {where: property_ for where, property_ in fields if "x-default" in property_}
    assert all("Default: `" in str(property_["description"]) for property_ in with_default.values())
    assert [
        schema
        for schema in _iter_objects(document)
        if schema.get("default", ...) is None and "in" not in schema and "required" not in schema
    ] == []


def test_the_usual_response_of_an_operation_is_first(document: Schema) -> None:
    """The 201 of remember is before the 200 of a duplicate."""
    paths = cast("dict[str, dict[str, Schema]]", document["paths"])
    assert list(cast("Schema", paths["/v1/brain/remember"]["post"]["responses"]))[:2] == ["201", "200"]


def test_no_response_has_a_range_of_statuses(document: Schema) -> None:
    """The Go of ogen 1.25.0 does not compile for a range with headers."""
    for path, method, operation in _iter_operations(document):
        assert all(status.isdigit() for status in cast("Schema", operation["responses"])), f"{method} {path}"


def test_the_introduction_describes_what_all_operations_share(document: Schema) -> None:
    """A viewer begins with keys, errors, paging, limits and retries; memory is the first group."""
    info = cast("Schema", document["info"])
    assert info["title"] == "Rookery API", (
        "with another title openapi-python-client would name its package rookery_client, as Rookery's own"
    )
    headings = re.findall(r"^## (.+)$", cast("str", info["description"]), re.MULTILINE)
    assert headings == ["Keys", "Errors", "Paging", "Rate limits", "Retries", "Names and times"]
    assert cast("list[Schema]", document["tags"])[0]["name"] == "Memory"
    assert cast("list[Schema]", document["x-tagGroups"])[0]["name"] == "Memory"


def test_every_description_explains_the_operation(document: Schema) -> None:
    """A description is more than the scope and the limits of an operation."""
    empty = [
        operation["operationId"] for _, _, operation in _iter_operations(document) if _is_empty_description(str(operation["description"]))
    ]
    assert empty == []


def test_the_tool_server_api_has_the_tags_of_the_specification(document: Schema) -> None:
    """The first four have the tag Discovery, the last two Execution, and parameters their specified names."""
    paths = cast("dict[str, dict[str, Schema]]", document["paths"])
    base = "/api/v1/mcp"
    tags = {
        f"{method} {path.removeprefix(base)}": paths[path][method]["tags"]
        for method, path in [
            ("get", f"{base}/servers"),
            ("get", f"{base}/servers/{{serverId}}"),
            ("get", f"{base}/servers/{{serverId}}/tools"),
            ("get", f"{base}/servers/{{serverId}}/resources"),
            ("post", f"{base}/tools/call"),
            ("get", f"{base}/resources/{{uri}}"),
        ]
    }
    assert list(tags.values()) == [["Discovery"]] * 4 + [["Execution"]] * 2


def test_every_operation_has_summary_tags_scope_security_and_parameters(document: Schema, endpoints: list[RouteEndpoint]) -> None:
    """Tags and parameters have descriptions, and scope and security match the route."""
    described = {cast("str", tag["name"]) for tag in cast("list[Schema]", document["tags"]) if tag["description"] != tag["name"]}
    by_name = {(document_path(endpoint.path), endpoint.route.method.lower()): endpoint.route for endpoint in endpoints}
    for path, method, operation in _iter_operations(document):
        where, route = f"{method} {path}", by_name[path, method]
        assert operation["summary"], where
        assert set(cast("list[str]", operation["tags"])) <= described, where
        assert operation["tags"], where
        assert operation.get("x-required-scope") == route.required_scope, where
        security = cast("list[Schema]", operation["security"])
        if route.public:
            assert security == [] or {} in security, where
        else:
            assert security == [{"bearerAuth": []}, {"apiKeyAuth": []}], where
        for parameter in (_resolve(document, reference) for reference in cast("list[Schema]", operation.get("parameters", []))):
            name, schema = f"{where}: {parameter['name']}", cast("Schema", parameter["schema"])
            assert parameter.get("description"), name
            assert parameter.get("style") == ("deepObject" if schema.get("type") == "object" else parameter.get("style")), name
            if "example" in parameter:
                assert jsonschema_rs.is_valid(as_json_schema(schema), parameter["example"]), f"{name}: {parameter['example']}"


def test_fields_whose_null_validators_dispute_are_optional_in_answers_and_required_in_no_body(document: Schema) -> None:
    """An example may leave them out when they are null, so that linters accept it. Clients need not send them either."""
    checked = 0
    for where, schema in _iter_schemas(document):
        for name, value in cast("Schema", schema.get("properties", {})).items():
            field = cast("Schema", value) if isinstance(value, dict) else {}
            if field.get("nullable") is True and ("enum" in field or "allOf" in field):
                assert name not in cast("list[str]", schema.get("required", [])), f"{where} {name}"
                checked += 1
    assert checked > 50


def test_null_is_said_by_nullable_alone(document: Schema) -> None:
    """Generators of Go refuse enums with null, and alternatives that only null matches."""
    for where, schema in _iter_schemas(document):
        assert None not in cast("list[object]", schema.get("enum", [])), where
        assert schema.get("type") != "boolean" or "enum" not in schema, where
        assert schema.get("nullable") is not True or "type" in schema, where


def test_objects_in_schemas_that_allow_null_are_named(document: Schema) -> None:
    """openapi-python-client 0.29.1 leaves out the model otherwise, and what imports it fails."""
    schemas = cast("dict[str, Schema]", cast("Schema", document["components"])["schemas"])
    for where, schema in ((where, schema) for where, schema in schemas.items() if schema.get("nullable") is True):
        for name, field in cast("dict[str, Schema]", schema.get("properties", {})).items():
            assert field.get("type") != "object" or "allOf" in field, f"{where} {name}"


def test_alternatives_are_named_or_simple(document: Schema) -> None:
    """openapi-generator 7.25.0 makes Java that does not compile of an alternative with fields of any name."""
    for where, schema in _iter_schemas(document):
        for part in cast("list[Schema]", [*cast("list[object]", schema.get("anyOf", [])), *cast("list[object]", schema.get("oneOf", []))]):
            assert "$ref" in part or part.get("type") != "object", where


def test_no_two_fields_of_an_object_differ_only_in_their_spelling(document: Schema) -> None:
    """Ogen 1.25.0 refuses the document otherwise, and the Go of openapi-generator 7.25.0 does not compile."""
    for where, schema in _iter_schemas(document):
        fields = schema.get("properties")
        if isinstance(fields, dict) and schema.get("type") == "object":
            names = [re.sub(r"[^a-z0-9]", "", name.lower()) for name in cast("Schema", fields)]
            assert len(set(names)) == len(names), where


def test_a_partial_update_documents_no_defaults(document: Schema) -> None:
    """A field that is left out stays as it is, so no default is true."""
    for path, method, operation in _iter_operations(document):
        body = cast("Schema", operation.get("requestBody", {}))
        if method == "patch" and body:
            content = cast("dict[str, dict[str, Schema]]", body["content"])
            fields = cast("dict[str, Schema]", _resolve(document, content["application/json"]["schema"]).get("properties", {}))
            assert [name for name, field in fields.items() if "x-default" in field or "Default:" in str(field.get("description"))] == [], (
                path
            )


def test_every_operation_with_a_key_documents_workspace_and_rate_limit(document: Schema) -> None:
    """The rate limit headers and the X-Workspace-ID header are documented on every workspace-scoped endpoint."""
    for path, method, operation in _iter_operations(document):
        if not operation["security"]:
            continue
        where = f"{method} {path}"
        parameters = [_resolve(document, reference) for reference in cast("list[Schema]", operation["parameters"])]
        assert "X-Workspace-ID" in {parameter["name"] for parameter in parameters if parameter["in"] == "header"}, where
        responses = {
            status: _resolve(document, reference) for status, reference in cast("dict[str, Schema]", operation["responses"]).items()
        }
        assert {"401", "403", "429"} <= responses.keys(), where
        assert "Retry-After" in cast("Schema", responses["429"]["headers"]), where
        for status, response in responses.items():
            assert set(_RATE_LIMIT_HEADERS) <= cast("Schema", response["headers"]).keys(), f"{where} {status}"


def test_every_response_has_a_content_type_and_a_schema(document: Schema) -> None:
    """A response with a body has its content type and schema; errors have the error body with the possible codes."""
    for path, method, operation in _iter_operations(document):
        for status, reference in cast("dict[str, Schema]", operation["responses"]).items():
            where, response = f"{method} {path} {status}", _resolve(document, reference)
            content = cast("dict[str, dict[str, Schema]]", response.get("content", {}))
            assert content or status in {"202", "204", "303", "304"}, where
            if int(status) >= 400 and "application/json" in content and "- `" in str(response["description"]):
                is_protocol = path.startswith("/mcp") and method == "post" and path != "/mcp/tools/call"
                schema_name = "JsonRpcError" if is_protocol else _get_error_name(operation, status)
                assert f"#/components/schemas/{schema_name}" in str(content["application/json"]), where


def test_the_events_of_webhooks_are_in_the_document(endpoints: list[RouteEndpoint]) -> None:
    """OpenAPI 3.0 has no webhooks, so they are in an extension, with the payload as a schema."""
    event_docs = [EventType(name="memory.stored", description="A memory was stored.", data="the memory", scope="brain:read")]

    document = build_document(endpoints, public_url=lambda _: "http://localhost:8400", events=event_docs)

    operation = cast("dict[str, dict[str, Schema]]", document["x-webhooks"])["memory.stored"]["post"]
    assert operation["summary"] == "A memory was stored."
    assert "WebhookPayload" in cast("dict[str, Schema]", document["components"])["schemas"]
    assert [str(error) for error in OpenAPIV30SpecValidator(document).iter_errors()] == []


def test_a_path_with_another_host_has_its_address(tmp_path: Path) -> None:
    """Absolute addresses are those that the operator set for each part of the API."""
    settings = Settings(
        data_dir=tmp_path, api_url="https://api.example.org", mcp_url="https://mcp.example.org", base_url="https://tools.example.org"
    )

    document = build_document(build_route_table(build_platform(settings)).endpoints, public_url=settings.public_url_of)

    paths = cast("dict[str, Schema]", document["paths"])
    assert document["servers"] == [{"url": "https://api.example.org"}]
    assert paths["/api/v1/mcp/servers"]["servers"] == [{"url": "https://tools.example.org"}]
    assert paths["/api/agent/plans"]["servers"] == [{"url": "https://mcp.example.org"}]
    assert "servers" not in paths["/v1/brain/recall"]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((200, dict[str, str](), None, b'{"servers": [], "count": 0}'), ""),
        ((200, dict[str, str](), None, b'{"servers": [], "count": "none"}'), "200 body count: "),
        ((200, dict[str, str](), None, b'{"servers": []}'), '200 body : "count" is a required property'),
        ((200, {"x-unheard-of": "1"}, None, b'{"servers": [], "count": 0}'), "200 header x-unheard-of"),
        ((200, {"content-type": "text/csv"}, None, b""), "200 text/csv"),
        ((418, dict[str, str](), "teapot", b"{}"), "418 teapot"),
        ((401, dict[str, str](), "made_up", b'{"error": "made_up", "message": "No."}'), "401 made_up"),
        ((401, dict[str, str](), "unauthorised", b'{"error": "unauthorised"}'), '401 body : "message" is a required property'),
    ],
)
def test_the_suite_detects_undocumented_responses(
    document: Schema, response: tuple[int, dict[str, str], str | None, bytes], expected: str
) -> None:
    """The middleware that checks all responses of the suite detects undocumented ones (tests/openapi_check.py)."""
    status, headers, error, body = response

    violations = list(
        DocumentedResponses(document).iter_violations(
            "GET /api/v1/mcp/servers", status, {"content-type": "application/json"} | headers, error, body
        )
    )

    assert violations == [] if not expected else any(expected in violation for violation in violations), violations


def _iter_operations(document: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, item in cast("dict[str, dict[str, Schema]]", document["paths"]).items():
        yield from ((path, method, operation) for method, operation in item.items() if method in _METHODS)


def _iter_schemas(document: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield each object outside of examples, with the place where it is."""
    pending: list[tuple[str, object]] = [("", document)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, dict):
            fields = cast("Schema", item)
            yield where, fields
            pending.extend((f"{where}/{name}", value) for name, value in fields.items() if name not in {"example", "examples", "x-default"})
        elif isinstance(item, list):
            pending.extend((f"{where}/{number}", value) for number, value in enumerate(cast("list[object]", item)))


def _get_error_name(operation: Schema, status: str) -> str:
    return "ToolCallFailure" if (operation["operationId"], status) in _TOOL_FAILURES else "Error"


def _is_empty_description(description: str) -> bool:
    return description.startswith(("Requires ", "No key is required", "Does not count", "Also served")) or len(description.split()) < 8


def _resolve(document: Schema, schema: Schema) -> Schema:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    _, _, kind, name = reference.split("/")
    return cast("dict[str, dict[str, Schema]]", document["components"])[kind][name]


def _iter_objects(value: object) -> Iterator[Schema]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield cast("Schema", item)
            pending.extend(cast("Schema", item).values())
        elif isinstance(item, list):
            pending.extend(cast("list[object]", item))
