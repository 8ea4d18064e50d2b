"""The current request, available to log lines and metrics in whatever task they run."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol, cast, runtime_checkable

ADMISSION = "admission"
"""The key of the request state for the result of the guard, which a handler that counts its requests needs."""

CONSOLE_CALL = "rookery.console_call"
"""A key of the ASGI scope of requests that the console sends in this process. A client cannot set it."""


@runtime_checkable
class RequestCaller(Protocol):
    """The fields of an admitted caller that may be logged: ids, which are not secret. `access.models.Caller` implements it."""

    @property
    def key_id(self) -> str: ...

    @property
    def public_workspace_id(self) -> int: ...

    @property
    def address(self) -> str: ...


class RequestContext:
    """
    The context of one request.

    A task started by the request inherits this object and may outlive the request by days, such as a session with a tool server.

    Attributes:
        state: The state of the scope, to which the endpoint adds the caller. Empty once the request is finished.
        trace_id: The id of the trace; empty if the request is not traced.
    """

    __slots__ = ("is_finished", "request_id", "state", "trace_id")

    def __init__(self, request_id: str, state: Mapping[str, object]) -> None:
        self.request_id = request_id
        self.state = state
        self.trace_id = ""
        self.is_finished = False

    def finish(self) -> None:
        """Mark the request as finished."""
        self.is_finished = True
        self.state = _EMPTY_STATE

    def caller(self) -> RequestCaller | None:
        """Return the caller of the request; None before admission."""
        caller = self.state.get("caller")
        return caller if isinstance(caller, RequestCaller) else None

    def log_fields(self) -> dict[str, object]:
        """
        Return the log fields of the request.

        A task that logs after the request has finished gets `born_in` instead of `request_id`, because its line no longer belongs to
        the request.
        """
        if self.is_finished:
            return {"born_in": self.request_id}
        fields: dict[str, object] = {"request_id": self.request_id}
        caller = self.caller()
        if caller is not None:
            fields |= {"workspace_id": caller.public_workspace_id, "key_id": caller.key_id}
        if self.trace_id:
            fields["trace_id"] = self.trace_id
        return fields


_EMPTY_STATE = cast("Mapping[str, object]", {})

CURRENT_REQUEST: ContextVar[RequestContext | None] = ContextVar("rookery_request", default=None)
"""Set by `EdgeMiddleware`. It costs half as much as binding a context variable of structlog (`python -m benchmarks.metrics`)."""
