"""The filters of the list of memories, as its form sends them and the API takes them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal, cast
from urllib.parse import urlencode

from rookery.console.visit import PER_PAGE, PageLinks, Visit
from rookery_client import AsyncPage
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import models

KNOWN_TYPES = (
    "observation",
    "context",
    "decision",
    "convention",
    "architecture",
    "procedure",
    "fact",
    "research",
    "plan",
    "bug",
    "documentation",
    "service",
    "pattern",
)
"""The types that the API names. A workspace may have others."""

SCOPES = ("project", "shared", "agent", "session")
STATES = (
    ("indexed", "indexed"),
    ("pending_embed", "not yet indexed"),
    ("stale", "stale"),
    ("failed", "failed"),
    ("archived", "archived"),
)
MAX_SEARCH_OFFSET = 100_000
"""The last offset that the search by words takes."""

ScopeName = Literal["project", "agent", "session", "shared"]
StateName = Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"]


def list_types(extra: str) -> list[str]:
    """Return the types that a filter offers: the known ones and *extra*, unless it is empty."""
    return sorted({*KNOWN_TYPES, extra} - {""})


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryListFilters:
    """The filters of the list. An empty one selects nothing."""

    q: str = ""
    type: str = ""
    org: str = ""
    project: str = ""
    tag: str = ""
    scope: str = ""
    agent: str = ""
    session: str = ""
    state: str = ""
    since: str = ""

    @classmethod
    def read(cls, visit: Visit) -> MemoryListFilters:
        """Return the filters of the URL."""
        return cls(**{name: visit.query(name) for name in cls.__slots__})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the filters that select something."""
        return tuple(name for name, value in asdict(self).items() if value)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of these filters as people read them."""
        return tuple("words" if name == "q" else name for name in self.names)

    @property
    def query_string(self) -> str:
        """The filters as the query of a URL."""
        return urlencode({name: getattr(self, name) for name in self.names})

    async def list_page(self, visit: Visit) -> tuple[list[models.Memory], PageLinks]:
        """
        Return the page of the URL, newest first.

        Raises:
            ApiError: A filter is invalid, or needs a scope that the key lacks.
        """
        page = await self.fetch_page(visit, visit.page_number, PER_PAGE)
        return page.items, PageLinks.of(visit, page)

    async def fetch_page(self, visit: Visit, number: int, per_page: int) -> AsyncPage[models.Memory]:
        """
        Return one page of the memories, newest first.

        Raises:
            ApiError: A filter is invalid, or needs a scope that the key lacks.
        """
        return await visit.client.memory.list_memories(
            page=number,
            per_page=per_page,
            org=_given(self.org),
            project=_given(self.project),
            agent_id=_given(self.agent),
            session_id=_given(self.session),
            memory_scope=cast("ScopeName", self.scope) if self.scope else UNSET,
            type=_given(self.type),
            tags=[self.tag] if self.tag else UNSET,
            since=_given(self.since),
            state=cast("StateName", self.state) if self.state else UNSET,
        )

    async def search(self, visit: Visit) -> tuple[list[models.SearchHit], PageLinks]:
        """
        Return the page of the URL of the memories that have the words of *q*, best first. Archived memories are not searched.

        Raises:
            ApiError: A filter is invalid, or needs a scope that the key lacks.
        """
        offset = min((visit.page_number - 1) * PER_PAGE, MAX_SEARCH_OFFSET)
        result = await visit.client.memory.search_memories(
            q=self.q,
            limit=PER_PAGE,
            offset=offset,
            org=_given(self.org),
            project=_given(self.project),
            agent_id=_given(self.agent),
            session_id=_given(self.session),
            memory_scope=cast("ScopeName", self.scope) if self.scope else UNSET,
            type=_given(self.type),
            tags=[self.tag] if self.tag else UNSET,
            since=_given(self.since),
        )
        links = PageLinks.at(visit, offset // PER_PAGE + 1, result.total)
        return result.hits, replace(links, has_next=links.has_next and offset < MAX_SEARCH_OFFSET)


def _given(text: str) -> str | Unset:
    return text or UNSET
