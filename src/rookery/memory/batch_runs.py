"""What all commands that go through the whole memory share: what they do of each memory, how they end, how far they came."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

RunAction = Literal["index", "change", "archive", "delete", "merge", "candidate", "import", "skip", "end", "conflict", "refuse"]
"""What is done to a memory; a candidate is only named."""

BATCH_SIZE = 64
"""So many memories a transaction: writers beside it wait a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunItem:
    """
    What a run does, or would do, to one memory, and why.

    Attributes:
        into: The memory that it is merged into.
    """

    id: str
    action: RunAction
    why: str
    into: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """
    How a run ended.

    Attributes:
        total: How many memories it was to go through when it began.
        successes: How many of them it went through well, whether there was anything to do or not.
        counts: What came of them, by name.
        stopped: Why it ended early: the engine that went down; None: it did not.
    """

    total: int
    successes: int
    failures: int
    duration_s: float
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheckpoint:
    """
    How far a run came that was ended in the middle.

    Attributes:
        name: The command with its options: only the same one may go on from here.
        workspace_id: None: it goes through all.
        cursor: The last memory that it went through.
    """

    name: str
    workspace_id: int | None
    cursor: str
    done: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObserver:
    """
    Who hears of a run.

    Attributes:
        on_item: Told each memory that something is done to, once it is.
        on_progress: Told after each batch how many of how many were gone through.
    """

    on_item: Callable[[RunItem], None]
    on_progress: Callable[[int, int], None]


def null_observer() -> RunObserver:
    """Return a watch that hears nothing."""
    return RunObserver(on_item=_ignore, on_progress=_ignore)


def _ignore(*_: object) -> None:
    """Hear nothing."""
