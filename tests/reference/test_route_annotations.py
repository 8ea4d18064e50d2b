"""OpenAPI annotations of routes: hidden, tags, parameters, responses and security (spec 4.5)."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, cast

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.responses import Response

from rookery.kernel.errors import Conflict
from rookery.kernel.http import AdmissionResult, DocumentedResponse, Route, document_route, hide_from_docs, mount_routes, tag
from rookery.kernel.http.routes import RouteTable
from rookery.reference.downgrade import Schema
from rookery.reference.openapi import build_document


class Ship(BaseModel):
    """The response to send."""

    name: str


class Sunk(Conflict):
    """The ship has sunk (D-00)."""

    code = "sunk"


class Nobody:
    """A guard that admits no request; nothing is served here."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        raise AssertionError("nothing is served here")


class Harbour:
    """Routes with decorators on some methods."""

    async def plain(self) -> Response:
        """Say nothing."""
        return Response()

    async def one(self, id: str) -> Response:
        """Show one."""
        return Response(id)

    @hide_from_docs
    async def secret(self) -> Response:
        """Be served and not shown."""
        return Response()

    @tag("Ships")
    @document_route(
        errors=(Sunk,),
        responses={202: DocumentedResponse(description="On its way.", model=Ship), 204: DocumentedResponse(description="Nobody is there.")},
        media_types=("text/csv",),
        request_headers=("If-Match",),
        response_headers=("ETag",),
        security=("bearerAuth",),
    )
    async def told(self) -> Response:
        """Say all there is to say."""
        return Response()


@tag("Harbour")
@hide_from_docs
class Cellar(Harbour):
    """All of its routes are hidden."""


@tag("Harbour")
class Quay(Harbour):
    """All of its routes are tagged."""


def _paths(*routes: Route) -> dict[str, dict[str, Schema]]:
    mounted = RouteTable(FastAPI())
    mount_routes(mounted, "/api/v1", routes, Nobody())
    return cast("dict[str, dict[str, Schema]]", _whole(mounted)["paths"])


def _whole(mounted: RouteTable) -> Schema:
    return build_document(mounted.endpoints, public_url=lambda _: "http://localhost")


def _row(handler: object, path: str, *, tags: Sequence[str] = ("Row",), **fields: object) -> Route:
    given: dict[str, Any] = {"handler": handler, **fields}
    return Route(method="GET", path=path, required_scope="ships:read", summary="Look", tags=tags, response_model=Ship, **given)


def test_an_endpoint_or_a_controller_may_be_hidden() -> None:
    """Spec 4.5: endpoints and controllers may be hidden; what is hidden is mounted all the same."""
    assert list(_paths(_row(Harbour().plain, "/plain"), _row(Harbour().secret, "/secret"))) == ["/api/v1/plain"]
    assert _paths(_row(Cellar().plain, "/plain"), _row(Cellar().told, "/told")) == {}


def test_an_endpoint_or_a_controller_may_be_tagged() -> None:
    """Spec 4.5: endpoints and controllers may be tagged; the endpoint's own word comes first."""
    paths = _paths(_row(Harbour().plain, "/row"), _row(Quay().plain, "/quay"), _row(Quay().told, "/told"))

    assert [paths[f"/api/v1/{name}"]["get"]["tags"] for name in ("row", "quay", "told")] == [["Row"], ["Harbour"], ["Ships"]]


def test_parameters_answers_and_security_may_be_declared_per_endpoint() -> None:
    """Spec 4.5: parameters, responses and security requirements may be declared per endpoint."""
    told = _paths(_row(Harbour().told, "/told"))["/api/v1/told"]["get"]

    answers = cast("dict[str, Schema]", told["responses"])
    assert told["security"] == [{"bearerAuth": []}]
    assert {"$ref": "#/components/parameters/If-Match"} in cast("list[Schema]", told["parameters"])
    assert list(cast("Schema", answers["200"]["content"])) == ["application/json", "text/csv"]
    assert "ETag" in cast("Schema", answers["200"]["headers"])
    assert answers["202"]["description"] == "On its way."
    assert "content" not in answers["204"]
    assert answers["409"] == {"$ref": "#/components/responses/409-sunk"}


def test_a_refusal_is_told_by_its_code_and_what_its_class_says_of_it() -> None:
    """D-10: the code is the contract; where a decision is written down is no news to who reads the document."""
    mounted = RouteTable(FastAPI())
    mount_routes(mounted, "/api/v1", [_row(Harbour().told, "/told"), _row(Harbour().plain, "/row", errors=(Sunk,))], Nobody())

    whole = _whole(mounted)

    responses = cast("dict[str, dict[str, Schema]]", whole["components"])["responses"]
    assert responses["409-sunk"]["description"] == "- `sunk`: The ship has sunk."
    row = cast("dict[str, dict[str, Schema]]", whole["paths"])["/api/v1/row"]["get"]
    assert cast("Schema", row["responses"])["409"] == {"$ref": "#/components/responses/409-sunk"}


def test_an_example_is_shown_where_it_belongs() -> None:
    """Issue 7: examples that the suite really sends: of the path, of the answer with its status, also if an alias recorded it."""
    mounted = RouteTable(FastAPI())
    row = _row(Harbour().one, "/ships/{id}", operation_id="get_ship")
    mount_routes(mounted, "/api/agent", [row], Nobody())
    mount_routes(mounted, "/v1", [row], Nobody())
    examples: dict[str, Schema] = {"GET /v1/ships/{id}": {"path": {"id": "argo"}, "status": 200, "answer": {"name": "Argo"}}}

    whole = build_document(mounted.endpoints, public_url=lambda _: "http://localhost", examples=examples)

    (shown,) = cast("dict[str, dict[str, Schema]]", whole["paths"]).values()
    assert cast("list[Schema]", shown["get"]["parameters"])[0]["example"] == "argo"
    answer = cast("dict[str, dict[str, dict[str, Schema]]]", shown["get"]["responses"])["200"]
    assert answer["content"]["application/json"]["example"] == {"name": "Argo"}


def test_a_route_that_is_mounted_twice_is_one_operation_with_an_alias() -> None:
    """D-60, D-83: the first path is documented, the further one named; a client has one function of it."""
    mounted = RouteTable(FastAPI())
    row = _row(Harbour().one, "/ships/{id}", operation_id="get_ship")
    mount_routes(mounted, "/api/agent", [row], Nobody())
    mount_routes(mounted, "/v1", [row], Nobody())

    near, far = _whole(mounted), build_document(mounted.endpoints, public_url=lambda path: f"https://{path.split('/')[1]}.example.org")

    operation, elsewhere = (cast("dict[str, dict[str, Schema]]", each["paths"])["/api/agent/ships/{id}"]["get"] for each in (near, far))
    assert operation["x-aliases"] == elsewhere["x-aliases"] == ["/v1/ships/{id}"]
    assert "Also served at `/v1/ships/{id}`." in cast("str", operation["description"])
    assert "Also served at `https://v1.example.org/v1/ships/{id}`." in cast("str", elsewhere["description"])


def test_two_operations_of_one_name_are_a_mistake_in_the_tables() -> None:
    """D-83: unique operationIds; a table that would break that is not shown at all."""
    with pytest.raises(ValueError, match="GET /api/v1/a and GET /api/v1/b have the same operation id, get_ship"):
        _paths(_row(Harbour().plain, "/a", operation_id="get_ship"), _row(Harbour().one, "/b", operation_id="get_ship"))


def test_a_header_that_the_document_does_not_know_is_a_mistake() -> None:
    """House 5.7: every header is explained once."""

    @document_route(request_headers=("X-Unheard-Of",))
    async def handler() -> Response:
        return Response()

    with pytest.raises(KeyError, match="X-Unheard-Of"):
        _paths(_row(handler, "/a"))
