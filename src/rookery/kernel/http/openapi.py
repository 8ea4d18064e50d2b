"""
Documentation of a route beyond its row in the table, for the generated documentation (spec 4.5).

The decorators apply to a handler, or to a class whose methods are handlers. Documentation of a method overrides that of its class.
They do not change how requests are served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from pydantic import BaseModel

from rookery.kernel.errors import RookeryError

_DOCS_ATTRIBUTE = "__rookery_notes__"

Documentable = TypeVar("Documentable", bound=Callable[..., object])


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
    The documentation of a route from its decorators.

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
    tags: tuple[str, ...] = ()
    errors: tuple[type[RookeryError], ...] = ()
    responses: Mapping[int, DocumentedResponse] = field(default_factory=dict[int, DocumentedResponse])
    media_types: tuple[str, ...] = ()
    request_headers: tuple[str, ...] = ()
    response_headers: tuple[str, ...] = ()
    request_media_types: tuple[str, ...] = ()
    security: tuple[str, ...] | None = None

    def merge(self, other: RouteDocs) -> RouteDocs:
        """Return both combined. Where only one value is possible, this one wins."""
        return RouteDocs(
            hidden=self.hidden or other.hidden,
            tags=self.tags or other.tags,
            errors=(*self.errors, *(error for error in other.errors if error not in self.errors)),
            responses={**other.responses, **self.responses},
            media_types=self.media_types or other.media_types,
            request_headers=(*self.request_headers, *(header for header in other.request_headers if header not in self.request_headers)),
            response_headers=(
                *self.response_headers,
                *(header for header in other.response_headers if header not in self.response_headers),
            ),
            request_media_types=self.request_media_types or other.request_media_types,
            security=other.security if self.security is None else self.security,
        )


def hide_from_docs(target: Documentable) -> Documentable:
    """Leave the route, or all routes of a class, out of the documentation. It is still served."""
    return _add_docs(target, RouteDocs(hidden=True))


def tag(*names: str) -> Callable[[Documentable], Documentable]:
    """Set the tags of the route, or of all routes of a class, in place of the tags of its row."""
    return lambda target: _add_docs(target, RouteDocs(tags=names))


def document_route(
    *,
    errors: Sequence[type[RookeryError]] = (),
    responses: Mapping[int, DocumentedResponse] | None = None,
    media_types: Sequence[str] = (),
    request_headers: Sequence[str] = (),
    response_headers: Sequence[str] = (),
    request_media_types: Sequence[str] = (),
    security: Sequence[str] | None = None,
) -> Callable[[Documentable], Documentable]:
    """Attach documentation to a route; see `RouteDocs` for the arguments."""
    notes = RouteDocs(
        errors=tuple(errors),
        responses=dict(responses or {}),
        media_types=tuple(media_types),
        request_headers=tuple(request_headers),
        response_headers=tuple(response_headers),
        request_media_types=tuple(request_media_types),
        security=None if security is None else tuple(security),
    )
    return lambda target: _add_docs(target, notes)


def get_route_docs(handler: Callable[..., object]) -> RouteDocs:
    """Return the documentation attached to *handler* and to the class of which it is a method."""
    own_docs = _get_docs(handler)
    owner = cast("object", getattr(handler, "__self__", None))
    return own_docs if owner is None else own_docs.merge(_get_docs(type(owner)))


def _get_docs(target: object) -> RouteDocs:
    docs = cast("object", getattr(target, _DOCS_ATTRIBUTE, None))
    return docs if isinstance(docs, RouteDocs) else RouteDocs()


def _add_docs(target: Documentable, notes: RouteDocs) -> Documentable:
    setattr(target, _DOCS_ATTRIBUTE, notes.merge(_get_docs(target)))
    return target
