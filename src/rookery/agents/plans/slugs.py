"""Slugs made from titles, and resolution of references by id, key, name or position. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Sequence

from rookery.kernel.ids import is_uuid

MAX_SLUG_LENGTH = 80

ANY_PLAN = "any"
"""The value that stands for any active plan in a request. A slug made from a title is never this word."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")


def slugify(title: str, *, fallback: str = "plan") -> str:
    """Return a slug for *title*: ASCII letters and digits without accents, at most 80 characters. Other scripts are dropped."""
    ascii_title = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    slug = _SEPARATORS.sub("-", ascii_title).strip("-")[:MAX_SLUG_LENGTH].rstrip("-")
    # A URL takes a slug or an id, so a slug must not look like an id.
    return fallback if not slug else f"{fallback}-{slug}" if is_uuid(slug) else slug


def make_unique_slug(slug: str, taken_slugs: Collection[str]) -> str:
    """Return *slug* if it is free, else the slug with the lowest free suffix from -2 on."""
    number, candidate = 1, slug
    while candidate in taken_slugs:
        number += 1
        candidate = f"{slug}-{number}"
    return candidate


class RefIndex:
    """An index that resolves a reference by id, position, name or key."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._ids_by_position: dict[int, str] = {}
        self._ids_by_name: dict[str, list[str]] = defaultdict(list)

    def add(self, id: str, position: int, names: Sequence[str | None]) -> None:
        """Add an item. A name shared by several items is ambiguous and finds none of them."""
        self._ids.add(id)
        self._ids_by_position[position] = id
        for name in {name for name in names if name}:
            self._ids_by_name[name].append(id)

    def find(self, ref: str | int) -> str | None:
        """Return the id of the item that *ref* names, or None if it is unknown or ambiguous."""
        if isinstance(ref, int):
            return self._ids_by_position.get(ref)
        if ref in self._ids:
            return ref
        ids = self._ids_by_name.get(ref, [])
        if len(ids) == 1:
            return ids[0]
        return self._ids_by_position.get(int(ref)) if not ids and ref.isascii() and ref.isdigit() and len(ref) < 10 else None
