"""OpenAPI annotations of routes: hidden, tags, parameters, responses and security."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from functools import partial
from typing import Any, cast

import pytest
from pydantic import BaseModel
from starlette.responses import Response

from rookery.kernel.errors import Conflict
from rookery.kernel.http import AdmissionResult, DocumentedResponse, Operation, mount_routes
from rookery.kernel.http.routes import RouteTable
from rookery.reference.downgrade import Schema
from rookery.reference.openapi import build_document


class Ship(BaseModel):
    """The response to send."""

    name: str


class Sunk(Conflict):
    """The ship has sunk."""

    code = "sunk"


class Nobody:
    """A guard that admits no request; nothing is served here."""

    async def admit(self, scope: MutableMapping[str, object], *, required_scope: str | None, rate_limited: bool = True) -> AdmissionResult:
        raise AssertionError("nothing is served here")


class Harbour:
    """Handlers of routes."""

    async def plain(self) -> Response:
        """Return an empty response."""
        return Response()

    async def get_ship(self, id: str) -> Response:
        """Return one ship."""
        return Response(id)


def _paths(*routes: Operation) -> dict[str, dict[str, Schema]]:
    mounted = RouteTable()
    mount_routes(mounted, "/api/v1", routes, Nobody())
    return cast("dict[str, dict[str, Schema]]", _build_document(mounted)["paths"])


def _build_document(mounted: RouteTable) -> Schema:
    return build_document(mounted.endpoints, public_url=lambda _: "http://localhost")


def _route(handler: object, path: str, *, tags: Sequence[str] = ("Row",), **fields: object) -> Operation:
    options: dict[str, Any] = {"handler": handler, **fields}
    return Operation(method="GET", path=path, required_scope="ships:read", summary="Look", tags=tags, response_model=Ship, **options)


def _annotated_route() -> Operation:
    return _route(
        Harbour().plain,
        "/annotated",
        errors=(Sunk,),
        responses={202: DocumentedResponse(description="On its way.", model=Ship), 204: DocumentedResponse(description="Nobody is there.")},
        media_types=("text/csv",),
        request_headers=("If-Match",),
        response_headers=("ETag",),
        security=("bearerAuth",),
    )


def test_an_endpoint_or_a_controller_may_be_hidden() -> None:
    """Endpoints and controllers may be hidden; hidden ones are mounted too."""
    cellar = partial(_route, Harbour().plain, hidden=True)

    assert list(_paths(_route(Harbour().plain, "/plain"), _route(Harbour().plain, "/secret", hidden=True))) == ["/api/v1/plain"]
    assert _paths(cellar("/one"), cellar("/other")) == {}


def test_an_endpoint_or_a_controller_may_be_tagged() -> None:
    """Endpoints and controllers may be tagged; the tag of the endpoint takes precedence."""
    quay = partial(_route, Harbour().plain, tags=("Harbour",))

    paths = _paths(_route(Harbour().plain, "/row"), quay("/quay"), quay("/annotated", tags=("Ships",)))

    assert [paths[f"/api/v1/{name}"]["get"]["tags"] for name in ("row", "quay", "annotated")] == [["Row"], ["Harbour"], ["Ships"]]


def test_parameters_responses_and_security_may_be_declared_per_endpoint() -> None:
    """Parameters, responses and security requirements may be declared per endpoint."""
    annotated = _paths(_annotated_route())["/api/v1/annotated"]["get"]

    responses = cast("dict[str, Schema]", annotated["responses"])
    assert annotated["security"] == [{"bearerAuth": []}]
    assert {"$ref": "#/components/parameters/If-Match"} in cast("list[Schema]", annotated["parameters"])
    assert list(cast("Schema", responses["200"]["content"])) == ["application/json", "text/csv"]
    assert "ETag" in cast("Schema", responses["200"]["headers"])
    assert responses["202"]["description"] == "On its way."
    assert "content" not in responses["204"]
    assert responses["409"] == {"$ref": "#/components/responses/409-sunk"}


def test_an_error_is_documented_by_its_code_and_its_description() -> None:
    """The code is the contract; decision numbers are left out."""
    mounted = RouteTable()
    mount_routes(mounted, "/api/v1", [_annotated_route(), _route(Harbour().plain, "/row", errors=(Sunk,))], Nobody())

    document = _build_document(mounted)

    responses = cast("dict[str, dict[str, Schema]]", document["components"])["responses"]
    assert responses["409-sunk"]["description"] == "- `sunk`: The ship has sunk."
    row = cast("dict[str, dict[str, Schema]]", document["paths"])["/api/v1/row"]["get"]
    assert cast("Schema", row["responses"])["409"] == {"$ref": "#/components/responses/409-sunk"}


def test_an_example_is_inserted_at_its_operation() -> None:
    """Recorded examples are used for path and response, also if recorded under an alias."""
    mounted = RouteTable()
    row = _route(Harbour().get_ship, "/ships/{id}", operation_id="get_ship")
    mount_routes(mounted, "/api/agent", [row], Nobody())
    mount_routes(mounted, "/v1", [row], Nobody())
    examples: dict[str, Schema] = {"GET /v1/ships/{id}": {"path": {"id": "argo"}, "status": 200, "answer": {"name": "Argo"}}}

    document = build_document(mounted.endpoints, public_url=lambda _: "http://localhost", examples=examples)

    (path_item,) = cast("dict[str, dict[str, Schema]]", document["paths"]).values()
    assert cast("list[Schema]", path_item["get"]["parameters"])[0]["example"] == "argo"
    response = cast("dict[str, dict[str, dict[str, Schema]]]", path_item["get"]["responses"])["200"]
    assert response["content"]["application/json"]["example"] == {"name": "Argo"}


def test_a_route_that_is_mounted_twice_is_one_operation_with_an_alias() -> None:
    """The first path is documented and the second one named, so that a client has one function."""
    mounted = RouteTable()
    row = _route(Harbour().get_ship, "/ships/{id}", operation_id="get_ship")
    mount_routes(mounted, "/api/agent", [row], Nobody())
    mount_routes(mounted, "/v1", [row], Nobody())

    local, public = (
        _build_document(mounted),
        build_document(mounted.endpoints, public_url=lambda path: f"https://{path.split('/')[1]}.example.org"),
    )

    operation, public_operation = (
        cast("dict[str, dict[str, Schema]]", document["paths"])["/api/agent/ships/{id}"]["get"] for document in (local, public)
    )
    assert operation["x-aliases"] == public_operation["x-aliases"] == ["/v1/ships/{id}"]
    assert "Also served at `/v1/ships/{id}`." in cast("str", operation["description"])
    assert "Also served at `https://v1.example.org/v1/ships/{id}`." in cast("str", public_operation["description"])


def test_duplicate_operation_ids_are_an_error() -> None:
    """Operation ids are unique; otherwise there is no document."""
    with pytest.raises(ValueError, match="GET /api/v1/a and GET /api/v1/b have the same operation id, get_ship"):
        _paths(_route(Harbour().plain, "/a", operation_id="get_ship"), _route(Harbour().get_ship, "/b", operation_id="get_ship"))


def test_an_undocumented_header_is_an_error() -> None:
    """Every header is explained once in the document."""
    with pytest.raises(KeyError, match="X-Unheard-Of"):
        _paths(_route(Harbour().plain, "/a", request_headers=("X-Unheard-Of",)))
