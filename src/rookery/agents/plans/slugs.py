"""What authors write where something is named: slugs out of titles, and dependencies by whatever name is at hand. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence

from rookery.kernel.ids import is_uuid

MAX_SLUG_LENGTH = 80

ANY_PLAN = "any"
"""What stands for any active plan where a plan may be named; no slug that is made of a title is this word."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")


def slugify(title: str, *, fallback: str = "plan") -> str:
    """Return a slug for *title*: its letters and digits without accents, other scripts left out."""
    folded = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    slug = _SEPARATORS.sub("-", folded).strip("-")[:MAX_SLUG_LENGTH].rstrip("-")
    # An address takes both a slug and an id, so that no slug may look like an id.
    return fallback if not slug else f"{fallback}-{slug}" if is_uuid(slug) else slug


def make_unique_slug(slug: str, taken_slugs: Collection[str]) -> str:
    """Return *slug*, or it with the first number from 2 that makes it free."""
    number, found = 1, slug
    while found in taken_slugs:
        number += 1
        found = f"{slug}-{number}"
    return found


class RefIndex:
    """Things that may be named: each by its id, its position, its name or its key."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._ids_by_position: dict[int, str] = {}
        self._ids_by_name: dict[str, list[str]] = defaultdict(list)

    def add(self, id: str, position: int, names: Sequence[str | None]) -> None:
        """Let *id* be found; a name that several have finds none of them."""
        self._ids.add(id)
        self._ids_by_position[position] = id
        for name in {each for each in names if each}:
            self._ids_by_name[name].append(id)

    def find(self, ref: str | int) -> str | None:
        """Return the id of what *ref* names; None: nothing does, or more than one thing."""
        if isinstance(ref, int):
            return self._ids_by_position.get(ref)
        if ref in self._ids:
            return ref
        named = self._ids_by_name.get(ref, [])
        if len(named) == 1:
            return named[0]
        return self._ids_by_position.get(int(ref)) if not named and ref.isascii() and ref.isdigit() and len(ref) < 10 else None
