"""
What a route says of itself beyond its row, for the generated documentation (spec 4.5).

Decorators for a handler, or for the class whose methods are handlers; a method's own words come before its class's.
They change nothing of what the route does: a request is served before anybody asks for the documentation.
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
    One more answer of a route, beside the one of its row.

    Attributes:
        model: Its body; None: see *media_types*.
        media_types: Content types of its body; none of them and no model: it has no body.
    """

    description: str
    model: type[BaseModel] | None = None
    media_types: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDocs:
    """
    All that decorators said of a route.

    Attributes:
        errors: Refusals that it may answer with beyond those that follow from its row.
        responses: Further answers, by status.
        media_types: Content types of its answer in place of JSON, or beside it if its row has a model.
        request_headers: Request headers that it looks at, by name.
        response_headers: Headers of its answer, by name.
        request_media_types: Content types of a body that it reads by itself, and not as a model.
        security: Names of the schemes of which one is needed; None: as its row says; empty: none.
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
        """Return both together: where only one can be right, this one."""
        return RouteDocs(
            hidden=self.hidden or other.hidden,
            tags=self.tags or other.tags,
            errors=(*self.errors, *(each for each in other.errors if each not in self.errors)),
            responses={**other.responses, **self.responses},
            media_types=self.media_types or other.media_types,
            request_headers=(*self.request_headers, *(each for each in other.request_headers if each not in self.request_headers)),
            response_headers=(*self.response_headers, *(each for each in other.response_headers if each not in self.response_headers)),
            request_media_types=self.request_media_types or other.request_media_types,
            security=other.security if self.security is None else self.security,
        )


def hide_from_docs(target: Documentable) -> Documentable:
    """Leave the route, or all routes of a class, out of the documentation; it is served as before."""
    return _add_docs(target, RouteDocs(hidden=True))


def tag(*names: str) -> Callable[[Documentable], Documentable]:
    """List the route, or all routes of a class, under *names*, in place of its row's tags."""
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
    """Say what `RouteDocs` has a place for."""
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
    """Return what was said of *handler* and of the class whose method it is."""
    own = _get_docs(handler)
    owner = cast("object", getattr(handler, "__self__", None))
    return own if owner is None else own.merge(_get_docs(type(owner)))


def _get_docs(target: object) -> RouteDocs:
    found = cast("object", getattr(target, _DOCS_ATTRIBUTE, None))
    return found if isinstance(found, RouteDocs) else RouteDocs()


def _add_docs(target: Documentable, notes: RouteDocs) -> Documentable:
    setattr(target, _DOCS_ATTRIBUTE, notes.merge(_get_docs(target)))
    return target
