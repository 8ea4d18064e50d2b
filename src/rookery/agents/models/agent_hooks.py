"""The hooks of connected coding agents: what a client reports, and what a text for it consists of. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from rookery.agents.models.sessions import Handoff
from rookery.coding_agents.hook_declarations import HookEvent


class HookOutcome(StrEnum):
    """The result of a hook, as the metrics count it."""

    TEXT = "text"
    RECORDED = "recorded"
    EMPTY = "empty"
    DUPLICATE = "duplicate"
    IGNORED = "ignored"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """
    An event that a client reports.

    Attributes:
        client: The client whose hook it is, one of `HOOKS`.
        session_id: The client's own id of the session.
        turn: The client's own id of the turn. None: the client sends none.
        source: The reason of a start, such as startup, resume or compact.
        prompt: The prompt of the user; empty for other events.
        message: The last message of the agent; empty for other events, and for clients that do not send it.
    """

    client: str
    event: HookEvent
    session_id: str
    turn: str | None = None
    source: str = "startup"
    prompt: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookProject:
    """
    The project in which a coding agent works, as `rookery hook` finds it on the machine of the agent.

    Attributes:
        remotes: The ids of the remotes of the repository. The first identifies it.
        folder: The id of its folder, which identifies a repository without remotes.
        full_name: The name of the repository with its owner.
        is_named: `.rookery.toml` names the project, so the name stays as it is.
        taken_name: The name that the project would have if another repository did not have it.
        branch: The branch of the repository, and *commit* the subject of its last commit. They are part of the query for memories.
    """

    project: str
    org: str | None = None
    remotes: tuple[str, ...] = ()
    folder: str | None = None
    full_name: str | None = None
    is_named: bool = False
    taken_name: str | None = None
    branch: str | None = None
    commit: str | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that identify the repository, the most general first. Empty if the client sends none."""
        return self.remotes or (() if self.folder is None else (self.folder,))


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """The text to add to the conversation, empty for none, and the outcome for the metrics."""

    outcome: HookOutcome
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSession:
    """An earlier session of a project: its hand-off, or else the last message that a hook recorded."""

    agent_id: str
    at: datetime
    handoff: Handoff | None
    message: str = ""


class PastMemory(Protocol):
    """A memory as a text shows it. Its author is its agent, or else its source."""

    @property
    def id(self) -> str: ...

    @property
    def content(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def author(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTask:
    """A task that can be claimed, with the slug of its plan."""

    id: str
    name: str
    plan: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartContext:
    """
    The record of a project for a new session of a coding agent.

    Attributes:
        past_sessions: The session to describe in full, then those in parallel with it.
    """

    past_sessions: Sequence[PastSession] = ()
    memories: Sequence[PastMemory] = ()
    tasks: Sequence[ReadyTask] = ()

    @property
    def is_empty(self) -> bool:
        """True if there is no record."""
        return not self.past_sessions and not self.memories and not self.tasks


HookPayload = Mapping[str, object]
"""The JSON object that a client sends."""
