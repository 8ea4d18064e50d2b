"""Bodies, partial updates and responses with the fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
from pydantic import Field

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.projections import Body, Patch, Projection, copy_fields
from rookery.kernel.schema import parse_model, to_json
from rookery.kernel.unset import UNSET


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A part of a bicycle."""

    radius_mm: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True)
class BicycleSettings:
    """The fields that an owner chooses."""

    name: Annotated[str, Field(min_length=1)]
    colour: Annotated[str, Field(max_length=5)] = "black"
    tags: dict[str, object] = field(default_factory=dict[str, object])
    wheels: tuple[Wheel, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Bicycle(BicycleSettings):
    """A bicycle as stored."""

    id: int
    frame: str = ""


@dataclass(frozen=True, kw_only=True)
class BicycleView:
    """A bicycle with a derived field."""

    bicycle: Bicycle
    is_complete: bool


class WheelBody(Body[Wheel]):
    """A wheel in a request."""


Wheels = Annotated[tuple[WheelBody, ...], Field(strict=False)]


class BicycleBody(Body[BicycleSettings]):
    """A bicycle to add, whose tags are not sent."""

    hidden = frozenset({"tags"})
    resets_by_null = True

    wheels: Wheels | None = None


class BicyclePatch(Patch[BicycleSettings]):
    """A change of a bicycle."""

    resets_by_null = True

    wheels: Wheels | UNSET | None = UNSET


class WheelResponse(Projection[Wheel]):
    """A wheel in a response."""


class BicycleResponse(Projection[Bicycle]):
    """A bicycle, read from its view."""

    part = "bicycle"
    hidden = frozenset({"frame"})

    wheels: list[WheelResponse]
    is_complete: bool


def test_null_in_a_body_is_the_default() -> None:
    body = parse_model(BicycleBody, {"name": "Ada", "colour": None, "wheels": [{"radius_mm": 311}]})
    assert body.to_model() == BicycleSettings(name="Ada", wheels=(Wheel(radius_mm=311),))
    assert body.to_model(tags={"a": 1}) == BicycleSettings(name="Ada", wheels=(Wheel(radius_mm=311),), tags={"a": 1})


@pytest.mark.parametrize("fields", [{"name": None}, {"name": "Ada", "tags": {}}, {"name": "Ada", "colour": "magenta"}])
def test_a_body_refuses_hidden_fields_and_null_without_a_default(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationFailed):
        parse_model(BicycleBody, fields)


def test_null_in_a_change_restores_the_default() -> None:
    bicycle = Bicycle(id=1, name="Ada", colour="red", tags={"a": 1}, wheels=(Wheel(radius_mm=300),))
    change = BicyclePatch.of(colour=None, tags=None, wheels=[{"radius_mm": 311}])
    assert change.apply_to(bicycle) == Bicycle(id=1, name="Ada", wheels=(Wheel(radius_mm=311),))
    with pytest.raises(ValidationFailed, match="null"):
        BicyclePatch.of(name=None)


def test_a_response_reads_the_fields_of_a_part() -> None:
    bicycle = Bicycle(id=1, name="Ada", wheels=(Wheel(radius_mm=311),))
    response = BicycleResponse.from_parts(BicycleView(bicycle=bicycle, is_complete=True))
    assert to_json(response) == {
        "id": 1,
        "name": "Ada",
        "colour": "black",
        "tags": {},
        "wheels": [{"radius_mm": 311}],
        "is_complete": True,
    }


def test_settings_are_copied_to_the_stored_object() -> None:
    settings = BicycleSettings(name="Ada", colour="red")
    assert Bicycle(**copy_fields(BicycleSettings, settings), id=1) == Bicycle(id=1, name="Ada", colour="red")
