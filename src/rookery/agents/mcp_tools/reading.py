"""Arguments of tools as the bodies of their REST twins, and answers as plain objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rookery.kernel.http.pages import PageQuery
from rookery.kernel.wire import refusal

B = TypeVar("B", bound=BaseModel)

Answer = Mapping[str, object]


def valid(model: type[B], arguments: Mapping[str, object], *without: str) -> B:
    """
    Return *arguments* as the body that the REST twin would be sent, but those that are in its path.

    Raises:
        ValidationFailed: By field, as the twin says it.
    """
    try:
        return model.model_validate({name: value for name, value in arguments.items() if name not in without})
    except ValidationError as error:
        raise refusal(error, model) from None


def plain(answer: BaseModel) -> Answer:
    """Return the twin's answer as an object."""
    return answer.model_dump(mode="json")


def paged(name: str, answers: Sequence[BaseModel], query: PageQuery, total: int) -> Answer:
    """Return one page of a list under *name*."""
    return {name: [plain(each) for each in answers], "page": query.page, "total": total}
