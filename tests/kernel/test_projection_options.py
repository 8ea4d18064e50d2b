"""Hidden fields, null for a default, and parts of a view in the projections of a dataclass."""

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
class Pedal:
    """A part of a tricycle."""

    length_mm: Annotated[int, Field(ge=1)]


@dataclass(frozen=True, kw_only=True)
class TricycleSettings:
    """The fields that an owner chooses."""

    name: Annotated[str, Field(min_length=1)]
    colour: Annotated[str, Field(max_length=5)] = "black"
    tags: dict[str, object] = field(default_factory=dict[str, object])
    pedals: tuple[Pedal, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Tricycle(TricycleSettings):
    """A tricycle as stored."""

    id: int
    frame: str = ""


@dataclass(frozen=True, kw_only=True)
class TricycleView:
    """A tricycle with a derived field."""

    tricycle: Tricycle
    is_complete: bool


class PedalBody(Body[Pedal]):
    """A pedal in a request."""


Pedals = Annotated[tuple[PedalBody, ...], Field(strict=False)]


class TricycleBody(Body[TricycleSettings]):
    """A tricycle to add, whose tags are not sent."""

    hidden = frozenset({"tags"})
    resets_by_null = True

    pedals: Pedals | None = None


class TricyclePatch(Patch[TricycleSettings]):
    """A change of a tricycle."""

    resets_by_null = True

    pedals: Pedals | UNSET | None = UNSET


class TaggedTricyclePatch(Patch[TricycleSettings]):
    """A change of a tricycle by which null removes the tags, and nothing else."""

    hidden = frozenset({"pedals"})
    resets_by_null = frozenset({"tags"})


class PedalResponse(Projection[Pedal]):
    """A pedal in a response."""


class TricycleResponse(Projection[Tricycle]):
    """A tricycle, read from its view."""

    part = "tricycle"
    hidden = frozenset({"frame"})

    pedals: list[PedalResponse]
    is_complete: bool


def test_null_in_a_body_is_the_default() -> None:
    """A field of the source that has a default may be null; nested bodies become objects of the domain."""
    body = parse_model(TricycleBody, {"name": "Ada", "colour": None, "pedals": [{"length_mm": 311}]})
    assert body.to_model() == TricycleSettings(name="Ada", pedals=(Pedal(length_mm=311),))
    assert body.to_model(tags={"a": 1}) == TricycleSettings(name="Ada", pedals=(Pedal(length_mm=311),), tags={"a": 1})


@pytest.mark.parametrize("fields", [{"name": None}, {"name": "Ada", "tags": {}}, {"name": "Ada", "colour": "magenta"}])
def test_a_body_refuses_hidden_fields_and_null_without_a_default(fields: dict[str, object]) -> None:
    """A hidden field is unknown, and a field without a default must not be null. Bounds hold."""
    with pytest.raises(ValidationFailed):
        parse_model(TricycleBody, fields)


def test_null_in_a_change_restores_the_default() -> None:
    """Null resets a field that has a default, and is refused for the others."""
    tricycle = Tricycle(id=1, name="Ada", colour="red", tags={"a": 1}, pedals=(Pedal(length_mm=300),))
    change = TricyclePatch.of(colour=None, tags=None, pedals=[{"length_mm": 311}])
    assert change.apply_to(tricycle) == Tricycle(id=1, name="Ada", pedals=(Pedal(length_mm=311),))
    with pytest.raises(ValidationFailed, match="null"):
        TricyclePatch.of(name=None)


def test_null_in_a_change_restores_the_default_of_named_fields() -> None:
    """Null is refused for the fields that the change does not name."""
    assert TaggedTricyclePatch.of(tags=None).get_set_fields() == {"tags": {}}
    with pytest.raises(ValidationFailed, match="null"):
        TaggedTricyclePatch.of(colour=None)


def test_a_response_reads_the_fields_of_a_part() -> None:
    """The fields of the source come from the part of the view, its own fields from the view."""
    tricycle = Tricycle(id=1, name="Ada", pedals=(Pedal(length_mm=311),))
    response = TricycleResponse.from_parts(TricycleView(tricycle=tricycle, is_complete=True))
    assert to_json(response) == {
        "id": 1,
        "name": "Ada",
        "colour": "black",
        "tags": {},
        "pedals": [{"length_mm": 311}],
        "is_complete": True,
    }


def test_settings_are_copied_to_the_stored_object() -> None:
    """The stored object has the values of its settings."""
    settings = TricycleSettings(name="Ada", colour="red")
    assert Tricycle(**copy_fields(TricycleSettings, settings), id=1) == Tricycle(id=1, name="Ada", colour="red")


class ClosedTricycleResponse(Projection[Tricycle]):
    """A tricycle without its frame."""

    hidden = frozenset({"frame"})


def test_a_response_hides_what_its_base_hides() -> None:
    """A list of hidden fields replaces that of the base, so one that shows a field again is a mistake."""
    with pytest.raises(TypeError, match="must hide frame"):
        type("OpenTricycleResponse", (ClosedTricycleResponse,), {"__module__": __name__, "hidden": frozenset({"tags"})})
