"""The org and project in which the caller of a tool works, for arguments that a call omits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSession:
    """
    The session that a call belongs to, as the call names it.

    Attributes:
        session_id: The agent session that the call names.
        client_sessions: Texts that may be the client's own id of its session.
        is_required: Whether only the session that the call names counts. Otherwise another one of the caller may stand in for it.
    """

    session_id: str | None = None
    client_sessions: Sequence[str] = ()
    is_required: bool = False


class WorkingContext(Protocol):
    """The session in which a caller works, with its org and project."""

    @property
    def org(self) -> str | None: ...

    @property
    def project(self) -> str | None: ...

    @property
    def session_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class WorkingContextFinder:
    """
    A finder of the session in which a caller works.

    Attributes:
        find: Takes the caller and the session of a call. Returns None if no session of the caller is known.
    """

    find: Callable[[object, CallSession], Awaitable[WorkingContext | None]]


def add_org_and_project(parameters: dict[str, object], context: WorkingContext) -> None:
    """
    Add the org and project of *context* to the parameters of a tool that name neither.

    The project of *context* without an org gets its org. Other values stay as they are.
    """
    if "project" in parameters or "org" in parameters:
        if parameters.get("project") == context.project and context.project is not None and context.org is not None:
            parameters.setdefault("org", context.org)
        return
    parameters.update({name: value for name, value in (("org", context.org), ("project", context.project)) if value is not None})
