"""Validation of tool arguments by the request models of the REST API, and conversion of responses to JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from rookery.kernel.schema import PageQuery, map_validation_error

B = TypeVar("B", bound=BaseModel)

ToolOutput = Mapping[str, object]


def validate_arguments(model: type[B], arguments: Mapping[str, object], *excluded: str) -> B:
    """
    Return *arguments* as an instance of *model*, without those in *excluded*, which are path parameters of the route.

    Raises:
        ValidationFailed: An argument is invalid. The errors are those of the route.
    """
    try:
        return model.model_validate({name: value for name, value in arguments.items() if name not in excluded})
    except ValidationError as error:
        raise map_validation_error(error, model) from None


def to_json(response: BaseModel) -> ToolOutput:
    """Return a response model as a JSON object."""
    return response.model_dump(mode="json")


def to_json_page(name: str, answers: Sequence[BaseModel], query: PageQuery, total: int) -> ToolOutput:
    """Return a page of a list: the items under *name*, the page number and the total count."""
    return {name: [to_json(answer) for answer in answers], "page": query.page, "total": total}


def drop_empty(content: Mapping[str, object]) -> dict[str, object]:
    """
    Return *content* without null and without empty texts, lists and objects, so that a model reads less.

    Empty lists at the top level stay: `"tasks": []` is a result.
    """
    fields = {name: _drop_empty(value) for name, value in content.items()}
    return {name: value for name, value in fields.items() if isinstance(value, list) or not _is_empty(value)}


def _drop_empty(value: object) -> object:
    if isinstance(value, Mapping):
        fields = {name: _drop_empty(item) for name, item in cast("Mapping[str, object]", value).items()}
        return {name: item for name, item in fields.items() if not _is_empty(item)}
    if isinstance(value, list):
        return [_drop_empty(item) for item in cast("list[object]", value)]
    return value


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)
