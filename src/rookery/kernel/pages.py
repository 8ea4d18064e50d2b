"""
Pages of lists, which are asked for by an offset or by a cursor.

A cursor is the position of the item after which the next page begins: the values by which the list is sorted, the last of which is
unique. Items that are added or deleted meanwhile do not move it, unlike an offset.
"""

from __future__ import annotations

import binascii
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import orjson

from rookery.kernel.errors import ValidationFailed

T = TypeVar("T")
U = TypeVar("U")

Position = tuple[str | int | float, ...]
"""The place of an item in a list: the values that the list is sorted by."""

CURSOR_FIELD = "cursor"
MAX_CURSOR_CHARS = 2_000

_DIGEST_BYTES = 6
_INTEGERS = range(-(2**63), 2**63)
"""The integers that both record stores hold."""


class InvalidCursor(ValidationFailed):
    """The cursor was not returned by this list, or by a request with other filters."""

    def __init__(self, problem: str = "is not a cursor that this list returned") -> None:
        super().__init__({CURSOR_FIELD: [f"{problem}. Send `next_cursor` of the page before, unchanged and with the same filters"]})


@dataclass(frozen=True, slots=True)
class PageSlice:
    """
    The part of a list that a page has.

    Attributes:
        limit: Maximum number of items.
        offset: The number of items to skip, from the beginning or from *after* on.
        after: The position of the last item before the page. None: the page is counted from the beginning.
    """

    limit: int
    offset: int = 0
    after: Position | None = None


class ListPage(NamedTuple, Generic[T]):
    """
    The items on one page of a list, and the number of items on all pages.

    Attributes:
        positions: The positions of the items, for cursors.
        has_next: There are items after the last one.
    """

    items: Sequence[T]
    total: int
    positions: Sequence[Position] = ()
    has_next: bool = False

    @property
    def end(self) -> Position | None:
        """The position of the last item, or None if there are no items after it."""
        return self.positions[-1] if self.has_next else None

    def following(self, limit: int) -> PageSlice | None:
        """Return the part of the list after this page, or None after the last one."""
        return None if self.end is None else PageSlice(limit, after=self.end)

    def with_positions(self, positions: Sequence[Position]) -> ListPage[T]:
        """Return the page with *positions*, each for the one at its place."""
        return ListPage(self.items, self.total, positions, self.has_next)

    def with_items(self, items: Sequence[U]) -> ListPage[U]:
        """Return the page with *items*, each for the one at its place."""
        return ListPage(items, self.total, self.positions, self.has_next)


@dataclass(frozen=True, slots=True)
class Cursor:
    """
    The content of a cursor.

    Attributes:
        page: The number of the page that it begins, in a walk from the first page.
    """

    page: int
    position: Position


def digest_list(name: str, filters: Mapping[str, object]) -> bytes:
    """Return the digest of a list and its filters, which binds a cursor to them."""
    content = orjson.dumps([name, filters], default=str, option=orjson.OPT_SORT_KEYS)
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def encode_cursor(digest: bytes, cursor: Cursor) -> str:
    """Return *cursor* as text for a URL, bound to the list with *digest*."""
    return urlsafe_b64encode(digest + orjson.dumps([cursor.page, *cursor.position])).rstrip(b"=").decode()


def decode_cursor(digest: bytes, text: str) -> Cursor:
    """
    Return the content of a cursor. The list checks the types of the position.

    Raises:
        InvalidCursor: *text* was not returned by `encode_cursor` with *digest*.
    """
    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        own_digest, values = content[:_DIGEST_BYTES], cast("object", orjson.loads(content[_DIGEST_BYTES:]))
    except (binascii.Error, ValueError):
        raise InvalidCursor from None
    if not isinstance(values, list) or not all(_is_storable(value) for value in cast("list[object]", values)):
        raise InvalidCursor
    page, *position = cast("list[str | int | float]", values) or [0]
    if not isinstance(page, int) or page < 1 or not position:
        raise InvalidCursor
    if own_digest != digest:
        raise InvalidCursor("belongs to another list, or to a request with other filters")
    return Cursor(page, tuple(position))


def _is_storable(value: object) -> bool:
    if isinstance(value, str):
        return "\x00" not in value
    return type(value) is float or (type(value) is int and value in _INTEGERS)


def check_position(position: Position, kinds: Sequence[type]) -> Position:
    """
    Return *position*.

    Raises:
        InvalidCursor: Its values do not have the types *kinds*.
    """
    if len(position) != len(kinds) or not all(
        isinstance(value, (int, float) if kind is float else kind) for value, kind in zip(position, kinds, strict=True)
    ):
        raise InvalidCursor
    return position


def slice_sorted(items: Sequence[T], page: PageSlice, key: Callable[[T], Position], *, descending: bool = False) -> ListPage[T]:
    """
    Return a page of *items*, which are all items of a list, sorted by *key*.

    Raises:
        InvalidCursor: The position of the page has other types than the keys.
    """
    start = page.offset
    if page.after is not None and items:
        after = check_position(page.after, [type(value) for value in key(items[0])])
        start += _find_first_after(items, after, key, descending=descending)
    page_items = items[start : start + page.limit]
    return ListPage(page_items, len(items), [key(item) for item in page_items], start + len(page_items) < len(items))


def _find_first_after(items: Sequence[T], after: Position, key: Callable[[T], Position], *, descending: bool) -> int:
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        middle_key = cast("tuple[Any, ...]", key(items[middle]))
        if (middle_key < after) if descending else (middle_key > after):
            high = middle
        else:
            low = middle + 1
    return low


def slice_anchored(items: Sequence[T], page: PageSlice, get_id: Callable[[T], str]) -> ListPage[T]:
    """
    Return a page of *items*, which are all items of a list whose order has no values that stay.

    The position of an item has the ids of the next item and of its own, and its number: the page begins at the first of these that is
    still in the list.
    """
    start = page.offset
    if page.after is not None:
        next_id, last_id, number = check_position(page.after, (str, str, int))
        places = {get_id(item): place for place, item in enumerate(items)}
        own_place = places.get(cast("str", last_id))
        after_own = cast("int", number) if own_place is None else own_place + 1
        start += max(0, places.get(cast("str", next_id), after_own))
    page_items = items[start : start + page.limit]
    ids = [*map(get_id, items[start : start + page.limit + 1]), ""]
    positions = [(ids[place + 1], ids[place], start + place + 1) for place in range(len(page_items))]
    return ListPage(page_items, len(items), positions, start + len(page_items) < len(items))


class FetchPage(Protocol[T]):
    """A function that returns a page of a list."""

    def __call__(self, *, page: PageSlice) -> Awaitable[ListPage[T]]: ...


async def iter_items(fetch: FetchPage[T], *, limit: int | None = None, page_size: int) -> AsyncGenerator[T]:
    """Yield at most *limit* items of a list from its beginning, fetched in pages. Each is yielded once, however the list changes."""
    missing = sys.maxsize if limit is None else limit
    page: PageSlice | None = PageSlice(min(page_size, missing))
    while page is not None and missing > 0:
        list_page = await fetch(page=page)
        for item in list_page.items:
            yield item
        missing -= len(list_page.items)
        page = list_page.following(min(page_size, missing))


async def collect_items(fetch: FetchPage[T], *, limit: int | None = None, page_size: int) -> list[T]:
    """Return the items that `iter_items` yields."""
    return [item async for item in iter_items(fetch, limit=limit, page_size=page_size)]
