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

_NOTES = "__rookery_notes__"

Target = TypeVar("Target", bound=Callable[..., object])


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """
    One more answer of a route, beside the one of its row.

    Attributes:
        model: Its body; None: see *media*.
        media: Content types of its body; none of them and no model: it has no body.
    """

    says: str
    model: type[BaseModel] | None = None
    media: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """
    All that decorators said of a route.

    Attributes:
        errors: Refusals that it may answer with beyond those that follow from its row.
        answers: Further answers, by status.
        media: Content types of its answer in place of JSON, or beside it if its row has a model.
        reads: Request headers that it looks at, by name.
        sends: Headers of its answer, by name.
        takes: Content types of a body that it reads by itself, and not as a model.
        security: Names of the schemes of which one is needed; None: as its row says; empty: none.
    """

    hidden: bool = False
    tags: tuple[str, ...] = ()
    errors: tuple[type[RookeryError], ...] = ()
    answers: Mapping[int, Described] = field(default_factory=dict[int, Described])
    media: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    sends: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    security: tuple[str, ...] | None = None

    def over(self, other: Notes) -> Notes:
        """Return both together: where only one can be right, this one."""
        return Notes(
            hidden=self.hidden or other.hidden,
            tags=self.tags or other.tags,
            errors=(*self.errors, *(each for each in other.errors if each not in self.errors)),
            answers={**other.answers, **self.answers},
            media=self.media or other.media,
            reads=(*self.reads, *(each for each in other.reads if each not in self.reads)),
            sends=(*self.sends, *(each for each in other.sends if each not in self.sends)),
            takes=self.takes or other.takes,
            security=other.security if self.security is None else self.security,
        )


def hide(target: Target) -> Target:
    """Leave the route, or all routes of a class, out of the documentation; it is served as before."""
    return _noted(target, Notes(hidden=True))


def tag(*names: str) -> Callable[[Target], Target]:
    """List the route, or all routes of a class, under *names*, in place of its row's tags."""
    return lambda target: _noted(target, Notes(tags=names))


def describe(
    *,
    errors: Sequence[type[RookeryError]] = (),
    answers: Mapping[int, Described] | None = None,
    media: Sequence[str] = (),
    reads: Sequence[str] = (),
    sends: Sequence[str] = (),
    takes: Sequence[str] = (),
    security: Sequence[str] | None = None,
) -> Callable[[Target], Target]:
    """Say what `Notes` has a place for."""
    notes = Notes(
        errors=tuple(errors),
        answers=dict(answers or {}),
        media=tuple(media),
        reads=tuple(reads),
        sends=tuple(sends),
        takes=tuple(takes),
        security=None if security is None else tuple(security),
    )
    return lambda target: _noted(target, notes)


def notes_of(handler: Callable[..., object]) -> Notes:
    """Return what was said of *handler* and of the class whose method it is."""
    own = _of(handler)
    owner = cast("object", getattr(handler, "__self__", None))
    return own if owner is None else own.over(_of(type(owner)))


def _of(target: object) -> Notes:
    found = cast("object", getattr(target, _NOTES, None))
    return found if isinstance(found, Notes) else Notes()


def _noted(target: Target, notes: Notes) -> Target:
    setattr(target, _NOTES, notes.over(_of(target)))
    return target
