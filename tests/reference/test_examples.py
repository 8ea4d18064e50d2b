"""The examples that the documentation shows: each operation has one that was really sent, and that is as the server answers today."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.openapi import get_route_docs
from rookery.kernel.http.routes import RouteEndpoint
from rookery.reference.aliases import documented_routes
from rookery.reference.downgrade import Schema
from rookery.reference.examples import Examples, load_packaged_examples
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform
from tests.conftest import lend_model
from tests.openapi_check import as_json_schema
from tests.reference.recording.story import UNRECORDED, record_story

_ANEW = "make examples, and look at what changed"


@pytest.fixture(scope="module")
def examples() -> Examples:
    """Those of the package."""
    return load_packaged_examples()


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """The route table of the documented application."""
    mounted = build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("data"))))
    return [each for each in mounted.endpoints if not get_route_docs(each.route.handler).hidden]


@pytest.fixture(scope="module")
def whole(endpoints: list[RouteEndpoint], examples: Examples) -> Schema:
    """The document with them."""
    return build_document(endpoints, public_url=lambda _: "http://localhost:8400", examples=examples)


def test_every_operation_has_an_example(endpoints: list[RouteEndpoint], examples: Examples) -> None:
    """Issue 7: each operation shows a request and an answer, recorded under its path or under an alias; what has none says why."""
    routes = documented_routes(endpoints)

    assert {each.name for each in routes if examples.keys().isdisjoint(each.all_names)} == set(UNRECORDED), _ANEW
    assert examples.keys() <= {name for each in routes for name in each.all_names}, "there are examples of what there is not"


@pytest.mark.timeout(120)
async def test_the_examples_are_what_the_server_answers(data_dir: Path, model_folder: Path, examples: Examples) -> None:
    """D-83: played again, the story is answered with the same statuses and the same fields, of the same types."""
    lend_model(model_folder, data_dir)
    again = {name: each for part in (await record_story(data_dir)).values() for name, each in part.items()}

    assert again.keys() == examples.keys(), _ANEW
    for name, example in examples.items():
        for part in ("path", "query", "body", "status"):
            assert again[name].get(part) == example.get(part), f"{name}: {part}; {_ANEW}"
        assert list(_differs(example.get("answer"), again[name].get("answer"))) == [], f"{name}; {_ANEW}"
        assert ("answer" in example) == ("answer" in again[name]), f"{name}; {_ANEW}"


def test_the_document_stays_valid_with_its_examples(whole: Schema, endpoints: list[RouteEndpoint], examples: Examples) -> None:
    """D-83: an independent validator agrees, and what is shown is what was recorded."""
    assert [str(error) for error in OpenAPIV30SpecValidator(whole).iter_errors()] == []
    shown = sum("example" in media for _, media in _media(whole))
    assert shown >= sum("answer" in each for each in examples.values())
    assert len(endpoints) > len(examples)


def test_each_example_is_of_the_form_that_the_document_says(whole: Schema) -> None:
    """Issue 7: bodies and answers of examples are valid against the schemas beside which they stand."""
    schemas = cast("dict[str, dict[str, Schema]]", whole["components"])["schemas"]
    components = {"schemas": {name: as_json_schema(each) for name, each in schemas.items()}}
    for where, media in _media(whole):
        if "example" in media:
            schema = {**as_json_schema(cast("Schema", media["schema"])), "components": components}
            wrong = [
                f"{error.instance_path}: {error.message}" for error in jsonschema_rs.Draft4Validator(schema).iter_errors(media["example"])
            ]
            assert wrong == [], where


def test_examples_hold_no_secret_and_nothing_of_the_machine_that_made_them(examples: Examples) -> None:
    """Issue 7: they are shown to everybody who may read the documentation."""
    text = str(examples)

    assert re.findall(r"\b(?:sk_live_|sk_test_|ak_|whsec_)[A-Za-z0-9+/=]{8,}", text) == []
    assert re.findall(r"/(?:home|root|tmp|work|Users)/|127\.0\.0\.1|localhost", text) == []
    assert socket.gethostname() not in text


def _media(whole: Schema) -> Iterator[tuple[str, Schema]]:
    for path, item in cast("dict[str, dict[str, Schema]]", whole["paths"]).items():
        for method, operation in item.items():
            if method == "servers":
                continue
            bodies = {"body": cast("Schema", operation.get("requestBody", {})), **cast("dict[str, Schema]", operation["responses"])}
            for name, each in bodies.items():
                yield from ((f"{method} {path} {name}", media) for media in cast("dict[str, Schema]", each.get("content", {})).values())


def _differs(one: object, other: object, where: str = "") -> Iterator[str]:
    """Yield where two answers have other fields, or other types; null and the empty list are of every type."""
    kinds = _kind(one), _kind(other)
    if isinstance(one, dict) and isinstance(other, dict):
        ours, theirs = cast("Schema", one), cast("Schema", other)
        yield from (f"{where}/{name}" for name in sorted(ours.keys() ^ theirs.keys()))
        for name in ours.keys() & theirs.keys():
            yield from _differs(ours[name], theirs[name], f"{where}/{name}")
    elif isinstance(one, list) and isinstance(other, list):
        for first, second in zip(cast("list[object]", one)[:1], cast("list[object]", other)[:1], strict=False):
            yield from _differs(first, second, f"{where}/0")
    elif one is not None and other is not None and kinds[0] != kinds[1]:
        yield f"{where}: {kinds}"


def _kind(value: object) -> str:
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
