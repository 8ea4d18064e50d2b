"""The document that the server makes of itself: whether it is OpenAPI 3.0, and says all that the routes do (spec 4.5, D-83)."""

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
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.downgrade import Schema
from rookery.reference.naming import document_path
from rookery.reference.openapi import EventDocs, build_document
from rookery.wiring import build_platform
from tests.openapi_check import DocumentedResponses

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
    "add archive browse call cancel check claim complete confirm copy create delete end extend fail finish get heartbeat list open preview "
    "read recall release remember remove replace resend restore resume revoke rotate search send set start stream suspend test "
    "update".split()
)
_RATE = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """The route table of an application that is not started."""
    return build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("data")))).endpoints


@pytest.fixture(scope="module")
def whole(endpoints: list[RouteEndpoint]) -> Schema:
    """The document of it."""
    return build_document(endpoints, public_url=lambda _: "http://localhost:8400")


def test_the_document_is_openapi_3_0(whole: Schema) -> None:
    """Spec 4.5, D-83: OpenAPI 3.0.3, version 1.0.0, with the keys openapi, info, paths, components; an independent validator agrees."""
    assert (whole["openapi"], cast("Schema", whole["info"])["version"]) == ("3.0.3", "1.0.0")
    assert whole.keys() >= {"openapi", "info", "paths", "components"}
    assert [str(error) for error in OpenAPIV30SpecValidator(whole).iter_errors()] == []


def test_every_reference_leads_to_something_and_nothing_lies_about(whole: Schema) -> None:
    """D-83: every $ref resolves, every component is used, and no type is null."""
    components = cast("dict[str, Schema]", whole["components"])
    there = {f"#/components/{kind}/{name}" for kind, each in components.items() if kind != "securitySchemes" for name in each}
    assert {each["$ref"] for each in _objects(whole) if isinstance(each.get("$ref"), str)} == there
    assert not [each for each in _objects(whole) if each.get("type") == "null"]


def test_the_objects_of_the_tool_server_api_have_the_specifications_names_and_fields(whole: Schema) -> None:
    """Spec 2.1: each object with its fields, and the three words for how a server stands."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", whole["components"])["schemas"])
    for name, fields in _OBJECTS.items():
        assert schemas[name]["properties"].keys() >= set(fields.split()), name
    assert schemas["ServerSummary"]["properties"]["status"]["enum"] == ["available", "beta", "deprecated"]
    assert schemas["ToolList"]["properties"]["tools"]["items"] == {"$ref": "#/components/schemas/Tool"}
    assert schemas["ToolCallRequest"]["required"] == ["server", "tool"]


def test_what_may_be_given_as_a_text_alone_is_described_so(whole: Schema) -> None:
    """D-60, D-63: a task is its name, a criterion its text; clients that are made of the document may write so too."""
    plan = {"title": "Move", "phases": [{"name": "Pack", "tasks": ["Boxes"], "acceptance_criteria": ["All are shut"]}]}
    body = cast("Schema", cast("dict[str, Schema]", cast("Schema", whole["paths"])["/api/agent/plans"])["post"]["requestBody"])
    schema = cast("Schema", cast("dict[str, Schema]", body["content"])["application/json"]["schema"])

    checked = jsonschema_rs.Draft4Validator({**schema, "components": whole["components"]})

    assert [error.message for error in checked.iter_errors(plan)] == []
    assert not checked.is_valid({**plan, "phases": [5]})


def test_what_is_said_is_for_who_reads_the_document(whole: Schema) -> None:
    """House 5.7: no word of how we write down decisions and classes, and no size that a small limit is rounded down to."""
    texts = [str(each["description"]) for each in _objects(whole) if isinstance(each.get("description"), str)]
    assert [text for text in texts if re.search(r"\bD-\d|\bspec \d|Attributes:|\b0 MiB", text)] == []
    assert "256 KiB" in str(cast("Schema", whole["paths"])["/api/agent/templates"])
    request = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", whole["components"])["schemas"])["ToolCallRequest"]
    assert str(request["properties"]["request_state"]["description"]).startswith("The `requestState`")


def test_no_schema_has_the_name_that_generators_give_to_a_free_field(whole: Schema) -> None:
    """Issue 7: a client can be generated; openapi-python-client calls the object in `plan` of Template TemplatePlan."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", whole["components"])["schemas"])
    made = {
        name + field.title().replace("_", "")
        for name, schema in schemas.items()
        for field, each in schema.get("properties", {}).items()
        if each.get("type") == "object"
    }
    assert made & schemas.keys() == set()


def test_the_document_has_the_operations_that_are_served(whole: Schema, endpoints: list[RouteEndpoint]) -> None:
    """D-83: equal to the mounted routes; a route that is not hidden is an operation or its named alias, and nothing else is there."""
    served = sorted((each.route.method.lower(), document_path(each.path)) for each in endpoints if not each.docs.hidden)
    told = [
        (method, each)
        for path, method, operation in _operations(whole)
        for each in (path, *cast("list[str]", operation.get("x-aliases", [])))
    ]
    assert sorted(told) == served


def test_what_is_served_under_two_prefixes_is_documented_once(whole: Schema) -> None:
    """Issue 14: one family of paths (spec 4.2: /api/agent); the other is named by each operation, in words too. D-60, D-83."""
    paths = cast("dict[str, dict[str, Schema]]", whole["paths"])
    assert [path for path in paths if path.startswith("/v1/") and not path.startswith("/v1/brain/")] == []
    assert paths["/api/agent/plans"]["get"]["x-aliases"] == ["/v1/plans"]
    assert "Also served at `/v1/plans`." in cast("str", paths["/api/agent/plans"]["get"]["description"])
    assert paths["/api/v1/mcp/tools/call"]["post"]["x-aliases"] == ["/mcp/tools/call"]
    assert "x-aliases" not in paths["/v1/brain/recall"]["post"]


def test_every_operation_has_a_name_of_its_own(whole: Schema) -> None:
    """D-83: unique operationIds in snake_case."""
    names = [cast("str", operation["operationId"]) for _, _, operation in _operations(whole)]
    assert len(set(names)) == len(names)
    assert [name for name in names if re.fullmatch(r"[a-z]+(_[a-z]+)*", name) is None] == []


def test_operations_are_named_after_what_they_do(whole: Schema, endpoints: list[RouteEndpoint]) -> None:
    """Issue 14: a generated client has `remember` and `list_plans`; each row declares its name, which begins with a verb. D-83."""
    undeclared = [each.path for each in endpoints if not each.route.operation_id and not each.docs.hidden]
    assert undeclared == []
    names = {cast("str", operation["operationId"]): f"{method} {path}" for path, method, operation in _operations(whole)}
    assert {name for name in names if name.partition("_")[0] not in _VERBS} == set()
    assert names["remember"] == "post /v1/brain/remember"
    assert names["call_tool"] == "post /api/v1/mcp/tools/call"
    assert names["claim_next_task"] == "post /api/agent/tasks/claim-next"


def test_all_refusals_have_one_schema(whole: Schema) -> None:
    """Issue 14: openapi-python-client made 5,096 modules of bodies spelt out per status; codes are an extension. D-10."""
    seen = 0
    for path, method, operation in _operations(whole):
        for status, answer in cast("dict[str, Schema]", operation["responses"]).items():
            told = _resolved(whole, answer)
            codes = cast("list[str]", told.get("x-error-codes", []))
            assert [code for code in codes if f"- `{code}`: " not in str(told["description"])] == []
            if codes:
                name = "JsonRpcError" if operation["tags"] == ["MCP"] and method == "post" else "Error"
                schema = cast("dict[str, Schema]", told["content"])["application/json"]["schema"]
                ways = cast("Schema", schema).get("anyOf", [schema])
                assert {"$ref": f"#/components/schemas/{name}"} in cast("list[object]", ways), f"{method} {path} {status}"
                seen += 1
    assert seen > 1000
    refined = [each for each in _objects(whole) if {"$ref": "#/components/schemas/Error"} in cast("list[object]", each.get("allOf", []))]
    assert refined == []


def test_no_field_of_a_schema_has_a_default(whole: Schema) -> None:
    """Issue 14: openapi-typescript requires fields that have one, `default: null` too; it is said in words and as `x-default`. D-83."""
    schemas = cast("dict[str, dict[str, dict[str, Schema]]]", cast("Schema", whole["components"])["schemas"])
    fields = [(f"{name}.{field}", each) for name, schema in schemas.items() for field, each in schema.get("properties", {}).items()]
    assert [where for where, each in fields if "default" in each] == []
    with_default = {where: each for where, each in fields if "x-default" in each}
    assert all("Default: `" in str(each["description"]) for each in with_default.values())
    assert [each for each in _objects(whole) if each.get("default", ...) is None and "in" not in each and "required" not in each] == []


def test_the_usual_answer_of_an_operation_is_shown_first(whole: Schema) -> None:
    """Issue 14: remember answers 201; its 200, of a duplicate, comes after it also where JavaScript sorts numbers. Spec 4.3."""
    paths = cast("dict[str, dict[str, Schema]]", whole["paths"])
    answers = list(cast("Schema", paths["/v1/brain/remember"]["post"]["responses"]))
    assert (answers[0], answers[-1]) == ("201", "2XX")


def test_the_introduction_tells_what_all_operations_have_in_common(whole: Schema) -> None:
    """Issue 14: the first page of a viewer speaks of keys, errors, paging, limits and retries; the memory is the first heading. D-83."""
    info = cast("Schema", whole["info"])
    assert info["title"] == "Rookery API", "openapi-python-client would name its package rookery_client, as ours is"
    headings = re.findall(r"^## (.+)$", cast("str", info["description"]), re.MULTILINE)
    assert headings == ["Keys", "Errors", "Paging", "Rate limits", "Retries", "Names and times"]
    assert cast("list[Schema]", whole["tags"])[0]["name"] == "Memory"
    assert cast("list[Schema]", whole["x-tagGroups"])[0]["name"] == "Memory"


def test_every_description_begins_with_what_the_operation_does(whole: Schema) -> None:
    """Issue 14: "Requires the scope X. The body has at most 1 MiB." was all that most operations said. D-83."""
    empty = [operation["operationId"] for _, _, operation in _operations(whole) if _says_nothing(str(operation["description"]))]
    assert empty == []


def test_the_tool_server_api_is_tagged_as_the_specification_has_it(whole: Schema) -> None:
    """Spec 4.1: Discovery is the tag of the first four, Execution of the last two, and parameters have the spec's names."""
    paths = cast("dict[str, dict[str, Schema]]", whole["paths"])
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


def test_every_operation_says_what_it_does_and_to_whom(whole: Schema, endpoints: list[RouteEndpoint]) -> None:
    """Issue 7: each has a summary, a described tag, its scope, its security, and parameters that are explained."""
    described = {cast("str", tag["name"]) for tag in cast("list[Schema]", whole["tags"]) if tag["description"] != tag["name"]}
    by_name = {(document_path(each.path), each.route.method.lower()): each.route for each in endpoints}
    for path, method, operation in _operations(whole):
        where, route = f"{method} {path}", by_name[path, method]
        assert operation["summary"], where
        assert set(cast("list[str]", operation["tags"])) <= described, where
        assert operation["tags"], where
        assert operation.get("x-required-scope") == route.required_scope, where
        security = cast("list[Schema]", operation["security"])
        if route.public:
            assert security == [] or {} in security, where
        else:
            assert [*security[0], *security[1], *security[2]] == ["bearerAuth", "apiKeyAuth", "basicAuth"], where
        for parameter in (_resolved(whole, each) for each in cast("list[Schema]", operation.get("parameters", []))):
            assert parameter["in"] == "query" or parameter.get("description"), f"{where}: {parameter['name']}"


def test_every_operation_that_asks_for_a_key_tells_of_workspace_and_rate_limit(whole: Schema) -> None:
    """Spec 4.5: the rate limit headers and the X-Workspace-ID header are documented on every workspace-scoped endpoint."""
    for path, method, operation in _operations(whole):
        if not operation["security"]:
            continue
        where = f"{method} {path}"
        parameters = [_resolved(whole, each) for each in cast("list[Schema]", operation["parameters"])]
        assert "X-Workspace-ID" in {each["name"] for each in parameters if each["in"] == "header"}, where
        answers = {status: _resolved(whole, each) for status, each in cast("dict[str, Schema]", operation["responses"]).items()}
        assert {"401", "403", "429"} <= answers.keys(), where
        assert "Retry-After" in cast("Schema", answers["429"]["headers"]), where
        for status, answer in answers.items():
            assert set(_RATE) <= cast("Schema", answer["headers"]).keys(), f"{where} {status}"


def test_every_answer_says_of_what_form_it_is(whole: Schema) -> None:
    """Issue 7: each answer with a body names its content type and its form; refusals are D-10's body, with the codes that there can be."""
    for path, method, operation in _operations(whole):
        for status, answer in cast("dict[str, Schema]", operation["responses"]).items():
            where, told = f"{method} {path} {status}", _resolved(whole, answer)
            content = cast("dict[str, dict[str, Schema]]", told.get("content", {}))
            assert content or status in {"202", "204", "304"}, where
            if status != "2XX" and int(status) >= 400 and "application/json" in content and "- `" in str(told["description"]):
                form = "JsonRpcError" if path.startswith("/mcp") and method == "post" and path != "/mcp/tools/call" else "Error"
                assert f"#/components/schemas/{form}" in str(content["application/json"]), where


def test_the_events_that_webhooks_tell_of_are_in_the_document(endpoints: list[RouteEndpoint]) -> None:
    """D-80, D-83: 3.0 has no word for requests that a server makes, so they are an extension, with the payload as a schema."""
    announced = [EventDocs(name="memory.stored", summary="A memory was stored.", data_description="the memory")]

    whole = build_document(endpoints, public_url=lambda _: "http://localhost:8400", events=announced)

    told = cast("dict[str, dict[str, Schema]]", whole["x-webhooks"])["memory.stored"]["post"]
    assert told["summary"] == "A memory was stored."
    assert "WebhookPayload" in cast("dict[str, Schema]", whole["components"])["schemas"]
    assert [str(error) for error in OpenAPIV30SpecValidator(whole).iter_errors()] == []


def test_whoever_serves_under_several_hosts_is_shown_where_each_path_is(tmp_path: Path) -> None:
    """D-01: an absolute address that is shown is the one that the operator set for that part."""
    chosen = Settings(
        data_dir=tmp_path, api_url="https://api.example.org", mcp_url="https://mcp.example.org", base_url="https://tools.example.org"
    )

    whole = build_document(build_route_table(build_platform(chosen)).endpoints, public_url=chosen.public_url_of)

    paths = cast("dict[str, Schema]", whole["paths"])
    assert whole["servers"] == [{"url": "https://api.example.org"}]
    assert paths["/api/v1/mcp/servers"]["servers"] == [{"url": "https://tools.example.org"}]
    assert paths["/api/agent/plans"]["servers"] == [{"url": "https://mcp.example.org"}]
    assert "servers" not in paths["/v1/brain/recall"]


@pytest.mark.parametrize(
    ("answer", "untold"),
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
def test_the_suite_sees_an_answer_that_the_document_does_not_have(
    whole: Schema, answer: tuple[int, dict[str, str], str | None, bytes], untold: str
) -> None:
    """Issue 7, no undocumented status, no schema violation: what looks at each answer of the suite can see one (tests/openapi_check.py)."""
    status, headers, error, body = answer

    found = list(
        DocumentedResponses(whole).iter_violations(
            "GET /api/v1/mcp/servers", status, {"content-type": "application/json"} | headers, error, body
        )
    )

    assert found == [] if not untold else any(untold in each for each in found), found


def _operations(whole: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, item in cast("dict[str, dict[str, Schema]]", whole["paths"]).items():
        yield from ((path, method, operation) for method, operation in item.items() if method in _METHODS)


def _says_nothing(description: str) -> bool:
    return description.startswith(("Requires ", "No key is required", "Does not count", "Also served")) or len(description.split()) < 8


def _resolved(whole: Schema, told: Schema) -> Schema:
    reference = told.get("$ref")
    if not isinstance(reference, str):
        return told
    _, _, kind, name = reference.split("/")
    return cast("dict[str, dict[str, Schema]]", whole["components"])[kind][name]


def _objects(value: object) -> Iterator[Schema]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield cast("Schema", each)
            waiting.extend(cast("Schema", each).values())
        elif isinstance(each, list):
            waiting.extend(cast("list[object]", each))
