"""Interfaces of other domains that agent work uses. The application supplies implementations from memory, tools and access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rookery.access.models import Caller
from rookery.kernel.db import Tx


class SessionMemoryStore(Protocol):
    """The memory operations that sessions need (D-53, D-62)."""

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
        self, tx: Tx, workspace_id: int, session_id: str, *, ids: Sequence[str] | None, org: str | None, project: str | None, at: datetime
    ) -> None:
        """Move session memories to the project: those in *ids*, or all. *org* and *project* fill in missing values."""
        ...

    def archive(self, tx: Tx, workspace_id: int, session_id: str, *, at: datetime, limit: int) -> bool:
        """Archive at most *limit* memories of a session. Return True if none is left."""
        ...


class ToolCallCounter(Protocol):
    """Counts of tool calls (D-38)."""

    def count_by_session(self, tx: Tx, workspace_id: int, ids: Sequence[str]) -> Mapping[str, int]:
        """Return the number of tool calls in each session. Sessions without calls may be missing."""
        ...


class SessionKeyVerifier(Protocol):
    """A check of the key of a long-running stream."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* with the current permissions of its key, or None if the key is no longer accepted."""
        ...
