"""Pages of lists. Iterating over a page yields its items, then those of the pages after it, which are fetched when they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T")

Following = Mapping[str, str]
"""The parameters of a page: its cursor."""


class Meta(BaseModel):
    """The position of a page."""

    current_page: int
    per_page: int
    total: int
    next_cursor: str | None = None


class PageBody(BaseModel, Generic[T]):
    """The body of a list response."""

    data: list[T]
    meta: Meta

    @property
    def following(self) -> Following | None:
        """The parameters of the page after this one, or None after the last page."""
        return None if self.meta.next_cursor is None else {"cursor": self.meta.next_cursor}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """
    A page of a list. `len(page.items)` counts the items of this page, `page.total` those of all pages.

    Each item that was in the list at the first page is yielded once, also if items are stored and deleted meanwhile.

    Attributes:
        items: The items on this page alone.
        number: The number of this page, from 1.
        total: The number of items on all pages.
        following: The parameters of the page after this one, or None after the last page.
    """

    items: list[T]
    number: int
    total: int
    following: Following | None
    fetch: Callable[[Following], Page[T]]

    @property
    def has_next(self) -> bool:
        """True if there is a page after this one."""
        return self.following is not None

    def __iter__(self) -> Iterator[T]:
        """Yield the items of this page and of all pages after it."""
        page: Page[T] | None = self
        while page is not None:
            yield from page.items
            page = page.next()

    def next(self) -> Page[T] | None:
        """Fetch the page after this one; return None after the last page."""
        return None if self.following is None else self.fetch(self.following)


@dataclass(frozen=True, slots=True)
class AsyncPage(Generic[T]):
    """A page of a list, for `async for`. It has the attributes of `Page`."""

    items: list[T]
    number: int
    total: int
    following: Following | None
    fetch: Callable[[Following], Awaitable[AsyncPage[T]]]

    @property
    def has_next(self) -> bool:
        """True if there is a page after this one."""
        return self.following is not None

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the items of this page and of all pages after it."""
        page: AsyncPage[T] | None = self
        while page is not None:
            for item in page.items:
                yield item
            page = await page.next()

    async def next(self) -> AsyncPage[T] | None:
        """Fetch the page after this one; return None after the last page."""
        return None if self.following is None else await self.fetch(self.following)
