"""Arguments of tools as the bodies of their REST twins, and answers as plain objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, cast

from pydantic import BaseModel, ValidationError

from rookery.kernel.http.pagination import PageQuery
from rookery.kernel.schema import map_validation_error

B = TypeVar("B", bound=BaseModel)

ToolOutput = Mapping[str, object]


def validate_arguments(model: type[B], arguments: Mapping[str, object], *excluded: str) -> B:
    """
    Return *arguments* as the body that the REST twin would be sent, but those that are in its path.

    Raises:
        ValidationFailed: By field, as the twin says it.
    """
    try:
        return model.model_validate({name: value for name, value in arguments.items() if name not in excluded})
    except ValidationError as error:
        raise map_validation_error(error, model) from None


def to_json(answer: BaseModel) -> ToolOutput:
    """Return the twin's answer as an object."""
    return answer.model_dump(mode="json")


def to_json_page(name: str, answers: Sequence[BaseModel], query: PageQuery, total: int) -> ToolOutput:
    """Return one page of a list under *name*."""
    return {name: [to_json(each) for each in answers], "page": query.page, "total": total}


def drop_empty(content: Mapping[str, object]) -> dict[str, object]:
    """
    Return *content* for a model to read: without null, and without empty texts, lists and objects.

    The empty lists of *content* itself stay: "tasks": [] is an answer.
    """
    filled = {name: _drop_empty(value) for name, value in content.items()}
    return {name: each for name, each in filled.items() if isinstance(each, list) or not _is_empty(each)}


def _drop_empty(value: object) -> object:
    if isinstance(value, Mapping):
        filled = {name: _drop_empty(each) for name, each in cast("Mapping[str, object]", value).items()}
        return {name: each for name, each in filled.items() if not _is_empty(each)}
    if isinstance(value, list):
        return [_drop_empty(each) for each in cast("list[object]", value)]
    return value


def _is_empty(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)
