"""MCP tools of operations: one declaration gives a route and its tools (redesign 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, cast

import jsonschema_rs
import pytest
from pydantic import Field
from starlette.requests import Request

from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.http import ItemPage, Operation, ToolDeclaration
from rookery.kernel.http.operation_tools import OperationServer, ServerDeclaration
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page, PageQuery, RequestModel, ResponseModel


@dataclass(frozen=True)
class Bird:
    """A noun of the test domain. It has a field that no response shows."""

    id: str
    name: str
    size_cm: int | None
    notes: Mapping[str, object]
    secret: str = "hidden"


class BirdBody(RequestModel):
    """The body to store a bird."""

    name: Annotated[str, Field(min_length=1, max_length=20, description="The name in the reference of the API.")]
    size_cm: Annotated[int, Field(ge=1, le=300)] | None = None
    notes: dict[str, object] | None = None


class BirdsQuery(PageQuery):
    """Filters of the list."""

    q: str | None = None


class BirdResponse(ResponseModel):
    """A bird."""

    id: str
    name: str
    size_cm: int | None
    notes: Mapping[str, object]


def _default_query(caller: object) -> Mapping[str, object]:
    return {"q": f"of {caller}"}


class BirdOperations:
    """Operations whose handlers record what they received."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def operations(self) -> list[Operation]:
        """Return the operations."""
        rename = ToolDeclaration(
            name="rename",
            description="Rename a bird.",
            effect="updates",
            arguments={"bird": "Its id.", "name": "The new name.", "size_cm": "", "notes": "null removes them."},
            renames={"bird": "bird_id"},
            nullable=("notes",),
        )
        listing = ToolDeclaration(
            name="birds",
            description="List birds.",
            effect="reads",
            arguments={"query": "", "page": "", "per_page": ""},
            renames={"query": "q"},
            defaults=_default_query,
            fixed={"per_page": 2},
            items="birds",
        )
        return [
            Operation(handler=self.put_bird, required_scope="birds:write", response_model=BirdResponse, tools=(rename,)),
            Operation(handler=self.get_birds, required_scope="birds:read", response_model=Page[BirdResponse], tools=(listing,)),
        ]

    async def put_bird(self, caller: object, bird_id: str, body: BirdBody, expected: ExpectedETags) -> Bird:
        """Store a bird."""
        self.received.append((caller, bird_id, expected))
        return Bird(id=bird_id, name=body.name, size_cm=body.size_cm, notes=body.notes or {})

    async def get_birds(self, query: BirdsQuery) -> ItemPage[Bird]:
        """List birds."""
        self.received.append((query.q, query.per_page))
        return ItemPage([Bird("b1", "heron", None, {})], 7)


def make_server(operations: Sequence[Operation]) -> OperationServer:
    """Return a server of *operations* whose texts are the names of the tools."""
    return OperationServer(
        operations,
        ServerDeclaration(id="birds", name="Birds", tagline="", description=""),
        compact=lambda _, output: output,
        render_text=lambda tool, _: tool,
    )


async def test_a_tool_runs_the_handler_and_returns_the_fields_of_the_response_model() -> None:
    """The caller, the path parameter and the body reach the handler; a tool sends no ETags."""
    birds = BirdOperations()
    server = make_server(birds.operations())

    output = await server.call("rename", {"bird": "b1", "name": "heron", "notes": '{"seen": 3}'}, "kim")

    assert output == {"id": "b1", "name": "heron", "size_cm": None, "notes": {"seen": 3}}
    assert birds.received == [("kim", "b1", None)]


async def test_a_page_has_its_items_its_number_and_the_total() -> None:
    """Defaults apply to omitted arguments, and fixed parameters always."""
    birds = BirdOperations()
    server = make_server(birds.operations())

    first = await server.call("birds", {}, "kim")
    await server.call("birds", {"query": "owl"}, "kim")

    assert first == {"birds": [{"id": "b1", "name": "heron", "size_cm": None, "notes": {}}], "page": 1, "total": 7}
    assert birds.received == [("of kim", 2), ("owl", 2)]


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "words"),
    [
        ("rename", {"bird": "b1", "name": "h" * 21}, "name", "20"),
        ("rename", {"bird": "b1", "nam": "heron"}, "nam", "did you mean 'name'"),
        ("rename", {"name": "heron"}, "bird", "required"),
        ("rename", {"bird": "b1\x00", "name": "heron"}, "bird", "NUL"),
        ("rename", {"bird": "b1", "name": "heron", "notes": "[1]"}, "notes", "JSON object"),
        ("birds", {"query": 3}, "query", "string"),
        ("birds", {"page": 0}, "page", "1"),
    ],
)
async def test_an_invalid_argument_gives_the_error_of_the_route_under_its_own_name(
    tool: str, arguments: Mapping[str, object], field: str, words: str
) -> None:
    """The limits are those of the models, so a tool and its route cannot differ (redesign 1)."""
    with pytest.raises(ValidationFailed) as raised:
        await make_server(BirdOperations().operations()).call(tool, arguments, "kim")

    errors = cast("Mapping[str, Sequence[str]]", raised.value.detail["errors"])
    assert words in errors[field][0]


def test_the_schemas_come_from_the_models() -> None:
    """Descriptions are those of the tool; lengths stay with the model; null is published only where it has a meaning."""
    rename, birds = make_server(BirdOperations().operations()).tools()

    assert rename.input_schema == {
        "type": "object",
        "properties": {
            "bird": {"type": "string", "description": "Its id."},
            "name": {"type": "string", "description": "The new name."},
            "size_cm": {"type": "integer", "minimum": 1, "maximum": 300},
            "notes": {"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}], "description": "null removes them."},
        },
        "required": ["bird", "name"],
    }
    assert (rename.required_scope, rename.annotations["idempotentHint"]) == ("birds:write", True)
    assert (birds.required_scope, birds.annotations["readOnlyHint"]) == ("birds:read", True)


async def test_an_output_schema_holds_for_outputs_and_for_errors() -> None:
    """Clients validate the structured content of failed calls too (TypeScript SDK 1.x)."""
    server = make_server(BirdOperations().operations())
    rename, birds = server.tools()

    outputs = [
        (rename, await server.call("rename", {"bird": "b1", "name": "heron", "size_cm": 90}, "kim")),
        (birds, await server.call("birds", {}, "kim")),
    ]

    for tool, output in outputs:
        assert jsonschema_rs.is_valid(dict(tool.output_schema), output)
        assert jsonschema_rs.is_valid(dict(tool.output_schema), NotFound("bird", "b9").body())
    assert not jsonschema_rs.is_valid(dict(rename.output_schema), {"name": 7})


async def test_a_tool_that_does_not_exist_is_not_found() -> None:
    """The error names the tool."""
    with pytest.raises(NotFound):
        await make_server(BirdOperations().operations()).call("sing", {}, "kim")


def test_a_declaration_that_cannot_work_is_rejected_when_the_server_is_built() -> None:
    """A tool exists once, has a scope, and its handler can run without an HTTP request."""

    async def handle(request: Request) -> None:
        del request

    tool = ToolDeclaration(name="sing", description="Sing.", effect="reads")
    for operations in (
        [*BirdOperations().operations(), *BirdOperations().operations()],
        [Operation(handler=BirdOperations().get_birds, required_scope=None, tools=(tool,))],
        [Operation(handler=handle, required_scope="birds:read", tools=(tool,))],
    ):
        with pytest.raises(ValueError, match="tool"):
            make_server(operations)
    unknown = ToolDeclaration(name="sing", description="Sing.", effect="reads", arguments={"song": ""})
    operation = Operation(handler=BirdOperations().get_birds, required_scope="birds:read", tools=(unknown,))
    with pytest.raises(KeyError):
        make_server([operation])
