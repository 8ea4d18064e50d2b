"""The documentation of a route beyond its path, models and texts (spec 4.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel

from rookery.kernel.errors import RookeryError


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedResponse:
    """
    A further response of a route, beside the one in its row.

    Attributes:
        model: The model of the body; None: see *media_types*.
        media_types: Content types of the body. Without these and without a model, there is no body.
    """

    description: str
    model: type[BaseModel] | None = None
    media_types: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDocs:
    """
    The documentation of a route beyond its row.

    Attributes:
        errors: Errors beyond those that follow from the route's row.
        responses: Further responses, by status.
        media_types: Content types of the response in place of JSON, or beside it if the row has a model.
        request_headers: Names of the request headers that the handler reads.
        response_headers: Names of the response headers.
        request_media_types: Content types of a body that the handler reads itself and not as a model.
        security: Names of alternative security schemes. None: as in the row; empty: none is needed.
    """

    hidden: bool = False
    errors: tuple[type[RookeryError], ...] = ()
    responses: Mapping[int, DocumentedResponse] = field(default_factory=dict[int, DocumentedResponse])
    media_types: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    request_media_types: tuple[str, ...] = ()
    security: tuple[str, ...] | None = None
