"""Pages of lists. Iterating over a page yields its items, then those of the pages after it, which are fetched when they are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel

T = TypeVar("T")


class Links(BaseModel):
    """The neighbours of a page."""

    next: str | None = None


class Meta(BaseModel):
    """The position of a page."""

    current_page: int
    per_page: int
    total: int


class PageBody(BaseModel, Generic[T]):
    """The body of a list response (D-12)."""

    data: list[T]
    links: Links
    meta: Meta


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """
    A page of a list. `len(page.items)` counts the items of this page, `page.total` those of all pages.

    Attributes:
        items: The items on this page alone.
        number: The number of this page, from 1.
        total: The number of items on all pages.
        has_next: True if there is a page after this one.
    """

    items: list[T]
    number: int
    total: int
    has_next: bool
    fetch: Callable[[int], Page[T]]

    def __iter__(self) -> Iterator[T]:
        """Yield the items of this page and of all pages after it."""
        page: Page[T] | None = self
        while page is not None:
            yield from page.items
            page = page.next()

    def next(self) -> Page[T] | None:
        """Fetch the page after this one; return None after the last page."""
        return self.fetch(self.number + 1) if self.has_next else None


@dataclass(frozen=True, slots=True)
class AsyncPage(Generic[T]):
    """A page of a list, for `async for`. It has the attributes of `Page`."""

    items: list[T]
    number: int
    total: int
    has_next: bool
    fetch: Callable[[int], Awaitable[AsyncPage[T]]]

    async def __aiter__(self) -> AsyncIterator[T]:
        """Yield the items of this page and of all pages after it."""
        page: AsyncPage[T] | None = self
        while page is not None:
            for item in page.items:
                yield item
            page = await page.next()

    async def next(self) -> AsyncPage[T] | None:
        """Fetch the page after this one; return None after the last page."""
        return await self.fetch(self.number + 1) if self.has_next else None
