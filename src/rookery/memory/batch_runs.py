"""The models that all commands over the whole memory share: actions, reports, checkpoints, observers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

RunAction = Literal[
    "index", "change", "archive", "delete", "merge", "keep apart", "candidate", "import", "skip", "end", "conflict", "refuse"
]
"""The action on one memory. `candidate` and `keep apart` only report it."""

BATCH_SIZE = 64
"""Memories per transaction. Other writers wait a few milliseconds at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunItem:
    """
    The action of a run, or of a dry run, on one memory, and the reason.

    Attributes:
        into: The memory that this one is merged into.
        apart_from: The similar memory that this one is kept apart from.
    """

    id: str
    action: RunAction
    why: str
    into: str | None = None
    apart_from: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """
    The result of a run.

    Attributes:
        total: The number of memories to process when the run began.
        successes: The number of memories processed without an error, changed or not.
        counts: The number of memories by outcome.
        recognised: What an import read, by its form; None if there was nothing to recognise.
        warnings: Values that could not be used, each with its place. They are no failures.
        stopped: The reason for an early end, such as an engine that is down. None if the run completed.
    """

    total: int
    successes: int
    failures: int
    duration_s: float
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    recognised: str | None = None
    warnings: Sequence[str] = ()
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCheckpoint:
    """
    The progress of an interrupted run.

    Attributes:
        name: The command with its options. Only the same command can resume from here.
        workspace_id: None if the run covers all workspaces.
        cursor: The last memory processed.
    """

    name: str
    workspace_id: int | None
    cursor: str
    done: int
    at: datetime


def _ignore(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObserver:
    """
    Callbacks for the progress of a run; by default they do nothing.

    Attributes:
        on_item: Called with each memory that was changed, after the change.
        on_progress: Called after each batch with the number processed and the total.
    """

    on_item: Callable[[RunItem], None] = _ignore
    on_progress: Callable[[int, int], None] = _ignore


SILENT = RunObserver()
