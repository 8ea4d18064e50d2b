"""What agent work needs of others; wiring fills it with memory, tools and access, which this domain does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rookery.access.models import Caller
from rookery.kernel.db import Tx


class SessionMemoryStore(Protocol):
    """The shared memory, as far as sessions touch it (D-53, D-62)."""

    async def boot(
        self, caller: Caller, *, agent_id: str, org: str | None, project: str | None, session_id: str | None
    ) -> Mapping[str, object] | None:
        """
        Return what an agent begins with, JSON-ready; None: *caller* may not read memories.

        Args:
            session_id: Whose session memories count too.
        """
        ...

    def find_unknown(self, tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[str]:
        """Return those of *ids* that are no memories of the session's own."""
        ...

    def promote(
        self, tx: Tx, workspace_id: int, session_id: str, *, ids: Sequence[str] | None, org: str | None, project: str | None, at: datetime
    ) -> None:
        """Make session memories the project's: *ids* of them, or all; those without an org or project get these."""
        ...

    def archive(self, tx: Tx, workspace_id: int, session_id: str, *, at: datetime, limit: int) -> bool:
        """Archive at most *limit* of a session's own memories; tell whether none is left."""
        ...


class ToolCallCounter(Protocol):
    """The rows of tool calls (D-38)."""

    def count_by_session(self, tx: Tx, workspace_id: int, ids: Sequence[str]) -> Mapping[str, int]:
        """Return how many calls were made in each of *ids*; one without calls may be missing."""
        ...


class SessionKeyVerifier(Protocol):
    """Whether a key is still good: what a stream must know long after its request was let in."""

    async def refresh_caller(self, caller: Caller, required_scope: str) -> Caller | None:
        """Return *caller* as its key is now; None: it would not be let in any more."""
        ...
