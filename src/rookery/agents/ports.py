"""Interfaces of other domains that agent work uses. The application supplies implementations from memory, tools and access."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rookery.access.models import Caller
from rookery.agents.models.agent_hooks import PastMemory
from rookery.agents.models.sessions import TokenReport
from rookery.kernel.db import Tx


class SessionMemoryStore(Protocol):
    """The memory operations that sessions need."""

    async def boot(
        self, caller: Caller, *, agent_id: str, org: str | None, project: str | None, session_id: str | None
    ) -> Mapping[str, object] | None:
        """
        Return the memories that an agent starts with, ready for JSON, or None if *caller* may not read memories.

        Args:
            session_id: A session whose memories are included.
        """
        ...

    def find_unknown(self, tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of *ids* that are not memories of the session."""
        ...

    def promote(
        self,
        tx: Tx,
        caller: Caller,
        session_id: str,
        *,
        ids: Sequence[str] | None,
        org: str | None,
        project: str | None,
        at: datetime,
    ) -> None:
        """Move session memories to the project: those in *ids*, or all. *org* and *project* fill in missing values."""
        ...

    def archive(self, tx: Tx, workspace_id: int, session_id: str, *, at: datetime, limit: int) -> bool:
        """Archive at most *limit* memories of a session. Return True if none is left."""
        ...


class MemoryFinder(Protocol):
    """The memories that a coding agent gets without asking for them."""

    async def find_related(
        self,
        caller: Caller,
        queries: Sequence[str],
        *,
        org: str | None,
        project: str,
        session_id: str | None,
        without: Collection[str],
        limit: int,
        min_relevance: float,
    ) -> Sequence[PastMemory]:
        """
        Return the memories that relate to one of *queries*, most relevant first. Nothing if *caller* may not read memories.

        Args:
            session_id: A session whose memories are included.
            without: Ids of memories that are left out.
            min_relevance: The lowest relevance of a memory, 0..1, as in recall.

        Raises:
            EngineUnavailable: An index that is needed is down.
            PermissionDenied: The org or project is not in the allow-lists of the key.
        """
        ...


class FreeSpace(Protocol):
    """The free space of the disk."""

    def require(self) -> None:
        """Raise StorageFull if the disk is nearly full."""
        ...


class ToolCallCounter(Protocol):
    """Counts of tool calls."""

    def count_by_session(self, tx: Tx, workspace_id: int, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the number of tool calls in each session. Sessions without calls may be missing."""
        ...


class PriceTokens(Protocol):
    """The prices of models."""

    def __call__(self, tokens: TokenReport, /) -> int | None:
        """Return the cost of *tokens* in billionths; None: they name no model, or one without a price."""
        ...


class SessionKeyVerifier(Protocol):
    """A check of the key of a long-running stream."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* with the current permissions of its key, or None if the key is no longer accepted."""
        ...
