"""Bodies, partial updates and responses with the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import pytest
from pydantic import Field

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.projections import Body, Patch, Projection
from rookery.kernel.schema import parse_model, to_json
from rookery.kernel.unset import UNSET


class Plumage(StrEnum):
    """The colour of a bird."""

    GREY = "grey"
    WHITE = "white"


@dataclass(frozen=True, slots=True, kw_only=True)
class BirdSettings:
    """The fields that an owner chooses."""

    name: Annotated[str, Field(min_length=2, description="Its name.")]
    plumage: Annotated[Plumage, Field(description="Its colour.")] = Plumage.GREY
    eggs: Annotated[int | None, Field(ge=0)] = None
    rings: Annotated[tuple[Annotated[str, Field(max_length=3)], ...], Field(max_length=2)] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bird(BirdSettings):
    """A stored bird."""

    id: str
    workspace_id: int
    public_workspace_id: int
    seen_at: Annotated[datetime, Field(description="When it was last seen.")]
    sealed_song: bytes | None = None


class NewBirdBody(Body[BirdSettings]):
    """A new bird."""

    note: str | None = None


class BirdChangeBody(Patch[BirdSettings]):
    """A change of a bird."""


class BirdResponse(Projection[Bird]):
    """A bird."""

    hidden = frozenset({"eggs"})

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flock:
    """Birds that fly together."""

    leader: BirdSettings
    plumages: Annotated[tuple[Plumage, ...], Field(min_length=1, max_length=2)] = ()
    names: Annotated[dict[Annotated[str, Field(max_length=3)], str], Field(max_length=1)] = field(default_factory=dict[str, str])


class FlockBody(Body[Flock]):
    """A new flock."""

    leader: NewBirdBody


class FlockChangeBody(Patch[Flock]):
    """A change of a flock."""

    leader: NewBirdBody | UNSET = UNSET


class FlockResponse(Projection[Flock]):
    """A flock."""

    leader: str


BIRD = Bird(
    name="Ada", id="b1", workspace_id=7, public_workspace_id=1, seen_at=datetime(2026, 11, 30, tzinfo=UTC), sealed_song=b"x", rings=("a",)
)


def test_a_body_has_the_bounds_and_defaults_of_the_dataclass() -> None:
    """Enumerations are texts and tuples are arrays, although everything else keeps its type."""
    body = parse_model(NewBirdBody, {"name": "Ada", "plumage": "white", "rings": ["a"], "note": "shy"})

    assert body.to_model() == BirdSettings(name="Ada", plumage=Plumage.WHITE, rings=("a",))
    assert parse_model(NewBirdBody, {"name": "Ada"}).to_model() == BirdSettings(name="Ada")
    assert body.note == "shy"


@pytest.mark.parametrize(
    ("body", "place", "problem"),
    [
        ({"name": "A"}, "name", "must have at least 2 characters, not 1"),
        ({"name": 1}, "name", "must be a string, not 1"),
        ({"name": "Ada", "plumage": "green"}, "plumage", "must be one of 'grey' or 'white', not 'green'"),
        ({"name": "Ada", "eggs": True}, "eggs", "must be an integer, not true"),
        ({"name": "Ada", "rings": "a"}, "rings", "must be an array, not 'a'"),
        ({"name": "Ada", "rings": ["long"]}, "rings.0", "must have at most 3 characters, not 4"),
        ({"name": "Ada", "seen_at": "2026-11-30"}, "seen_at", "unknown field"),
        ({}, "name", "is required"),
    ],
)
def test_a_body_rejects_what_the_dataclass_does_not_allow(body: dict[str, object], place: str, problem: str) -> None:
    """Each error is at its field."""
    with pytest.raises(ValidationFailed) as failure:
        parse_model(NewBirdBody, body)

    assert failure.value.field_errors == {place: (problem,)}


def test_a_partial_update_changes_what_was_sent() -> None:
    """Null clears a field that may be null. The others keep their value, and no field has a default."""
    change = parse_model(BirdChangeBody, {"name": "Bea", "eggs": None})

    assert change.apply_to(replace(BIRD, eggs=3)) == replace(BIRD, name="Bea")
    assert change.get_set_fields() == {"name": "Bea", "eggs": None}
    assert change.get("plumage") is UNSET
    assert BirdChangeBody.of(rings=["b"], name=UNSET).get_set_fields() == {"rings": ("b",)}
    assert not any("default" in schema for schema in BirdChangeBody.model_json_schema()["properties"].values())
    with pytest.raises(ValidationFailed, match="name"):
        BirdChangeBody.of(name=None)


def test_a_response_has_the_public_fields_without_bounds() -> None:
    """The id is first; sealed values and hidden fields are missing; the workspace is the public one."""
    response = BirdResponse.from_parts(BIRD, length=12)
    schema = BirdResponse.model_json_schema(mode="serialization")

    assert to_json(response) == {
        "id": "b1",
        "workspace_id": 1,
        "name": "Ada",
        "plumage": "grey",
        "rings": ["a"],
        "seen_at": "2026-11-30T00:00:00.000000Z",
        "length": 12,
    }
    assert list(to_json(response)) == ["id", "workspace_id", "name", "plumage", "rings", "seen_at", "length"]
    assert schema["properties"]["name"] == {"title": "Name", "type": "string", "description": "Its name."}
    assert schema["required"] == list(schema["properties"])


def test_a_body_in_a_body_is_an_object_of_the_domain() -> None:
    """The object that is built and the fields that are changed have no bodies."""
    leader = BirdSettings(name="Ada", rings=("a",))
    flock = parse_model(FlockBody, {"leader": {"name": "Ada", "rings": ["a"]}, "plumages": ["white"]})

    assert flock.to_model() == Flock(leader=leader, plumages=(Plumage.WHITE,))
    assert flock.to_model(names={"a": "b"}) == Flock(leader=leader, plumages=(Plumage.WHITE,), names={"a": "b"})
    assert parse_model(FlockChangeBody, {"leader": {"name": "Ada", "rings": ["a"]}}).get_set_fields() == {"leader": leader}


@pytest.mark.parametrize(
    ("plumages", "problems"),
    [
        (["green"], {"plumages.0": ("must be one of 'grey' or 'white', not 'green'",)}),
        ([], {"plumages": ("must have at least 1 item, not 0",)}),
        (["green"] * 1_000, {"plumages": ("must have at most 2 items, not 1,000",)}),
    ],
)
def test_an_array_has_either_errors_of_its_items_or_of_its_length(plumages: list[str], problems: dict[str, tuple[str, ...]]) -> None:
    """A long array has one error and not one for each item."""
    with pytest.raises(ValidationFailed) as failure:
        parse_model(FlockBody, {"leader": {"name": "Ada"}, "plumages": plumages})

    assert failure.value.field_errors == problems


def test_the_keys_and_items_of_a_response_have_no_bounds() -> None:
    """A stored value is sent although a later version would reject it."""
    flock = Flock(leader=BIRD, names={"longer": "x"})

    assert to_json(FlockResponse.from_parts(flock, leader="Ada"))["names"] == {"longer": "x"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """A field whose name no model may have."""

    json_copy: Annotated[Annotated[str, Field(max_length=3, description="Its copy.")] | None, Field(alias="copy")] = None


class NestBody(Body[Nest]):
    """A new nest."""


class NestResponse(Projection[Nest]):
    """A nest."""


def test_a_field_with_an_alias_has_that_name_in_json() -> None:
    """Its errors are at that name too."""
    nest = parse_model(NestBody, {"copy": "a"}).to_model()

    assert nest == Nest(json_copy="a")
    assert to_json(NestResponse.from_parts(nest)) == {"copy": "a"}
    with pytest.raises(ValidationFailed) as failure:
        parse_model(NestBody, {"copy": "long"})
    assert failure.value.field_errors == {"copy": ("must have at most 3 characters, not 4",)}
