"""Response models that are read from the objects of a domain."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

import pytest
from pydantic import Field, ValidationError, create_model

from rookery.kernel.schema import ResponseModel, to_json


@dataclass(frozen=True)
class Wheel:
    """A part with names of its own."""

    id: int
    radius_mm: float


@dataclass(frozen=True)
class Bicycle:
    """An object with parts."""

    id: int
    wheels: tuple[Wheel, ...] = ()


class WheelResponse(ResponseModel):
    """A wheel."""

    id: int
    radius: Annotated[float, Field(validation_alias="radius_mm")]


class BicycleResponse(ResponseModel):
    """A bicycle and its owner."""

    id: int
    wheels: list[WheelResponse]
    owner: str


def test_threads_may_use_a_model_first_at_the_same_time() -> None:
    """Models are built on their first use, so that a start builds none."""

    def read(model: type[ResponseModel]) -> dict[str, object]:
        return to_json(model.model_validate(Bicycle(id=3, wheels=(Wheel(id=1, radius_mm=340.5),)), from_attributes=True))

    with ThreadPoolExecutor(8) as pool:
        for number in range(20):
            model = create_model(f"Copy{number}", __base__=ResponseModel, id=(int, ...), wheels=(list[WheelResponse], ...))
            assert not model.__pydantic_complete__
            results = list(pool.map(read, [model] * 8))
            assert results == [{"id": 3, "wheels": [{"id": 1, "radius": 340.5}]}] * 8


def test_a_response_has_the_attributes_of_its_parts_the_first_part_first() -> None:
    """Aliases are read, and nested objects too."""
    response = BicycleResponse.from_parts(Bicycle(id=1, wheels=(Wheel(2, 311.5),)), Wheel(3, 5), owner="Ada")

    assert to_json(response) == {"id": 1, "wheels": [{"id": 2, "radius": 311.5}], "owner": "Ada"}


def test_values_replace_attributes() -> None:
    """A value by the name of an attribute is used in place of it."""
    assert BicycleResponse.from_parts(Bicycle(id=1), id=4, owner="Ada").id == 4


def test_a_missing_attribute_is_an_error() -> None:
    """No part has an owner."""
    with pytest.raises(ValidationError, match="owner"):
        BicycleResponse.from_parts(Bicycle(id=1))
