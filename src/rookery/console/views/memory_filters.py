"""The filters of the list of memories, as its form sends them and the API takes them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
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

_DATE = re.compile(r"\d{4}-\d\d-\d\d")

ScopeName = Literal["project", "agent", "session", "shared"]
StateName = Literal["created", "pending_embed", "indexed", "stale", "failed", "archived", "deleted"]


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
        return page.items, _build_links(visit, page.number, len(page.items), page.total)

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
            since=_given(self._since_time),
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
            since=_given(self._since_time),
        )
        links = _build_links(visit, offset // PER_PAGE + 1, len(result.hits), result.total)
        return result.hits, links

    @property
    def _since_time(self) -> str:
        return f"{self.since}T00:00:00Z" if _DATE.fullmatch(self.since) else self.since


def _given(text: str) -> str | Unset:
    return text or UNSET


def _build_links(visit: Visit, number: int, count: int, total: int) -> PageLinks:
    first = (number - 1) * PER_PAGE
    return PageLinks(
        number=number,
        total=total,
        first=first + 1 if count else 0,
        last=first + count,
        has_next=first + count < total and first < MAX_SEARCH_OFFSET,
        query=tuple((name, value) for name, value in visit.request.query_params.multi_items() if name not in {"page", "done"}),
    )
