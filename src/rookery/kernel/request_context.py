"""The request that the code of now works for, in whatever task it runs: log lines and metrics ask here."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol, cast, runtime_checkable


@runtime_checkable
class RequestCaller(Protocol):
    """What of an admitted caller may stand in a log line: ids, which are no secrets. `access.models.Caller` is one."""

    @property
    def key_id(self) -> str: ...

    @property
    def public_workspace_id(self) -> int: ...

    @property
    def address(self) -> str: ...


class RequestContext:
    """
    One request on its way.

    A task that was born in it may outlive it, for days even (a session with a tool server): it keeps this, and no more of it.

    Attributes:
        state: The scope's, into which the route wrapper puts the caller; empty once the request is answered.
        trace_id: Of the trace that it is part of; empty: it is not traced.
    """

    __slots__ = ("is_finished", "request_id", "state", "trace_id")

    def __init__(self, request_id: str, state: Mapping[str, object]) -> None:
        self.request_id = request_id
        self.state = state
        self.trace_id = ""
        self.is_finished = False

    def finish(self) -> None:
        """Note that the request was answered."""
        self.is_finished = True
        self.state = _EMPTY_STATE

    def caller(self) -> RequestCaller | None:
        """Return who makes the request, once admitted."""
        caller = self.state.get("caller")
        return caller if isinstance(caller, RequestCaller) else None

    def log_fields(self) -> dict[str, object]:
        """
        Return what a log line says of the request.

        What is logged after the answer, by a task born before it, says `born_in` instead of `request_id`: it is not that
        request's any more, though it began there.
        """
        if self.is_finished:
            return {"born_in": self.request_id}
        found: dict[str, object] = {"request_id": self.request_id}
        caller = self.caller()
        if caller is not None:
            found |= {"workspace_id": caller.public_workspace_id, "key_id": caller.key_id}
        if self.trace_id:
            found["trace_id"] = self.trace_id
        return found


_EMPTY_STATE = cast("Mapping[str, object]", {})

CURRENT_REQUEST: ContextVar[RequestContext | None] = ContextVar("rookery_request", default=None)
"""Set by the shell around each request: half of what binding one of structlog's contextvars costs (`python -m benchmarks.metrics`)."""
