"""
Errors of the tools domain.

A `RookeryError` is a response; its class has the status and the code. Connectors raise `UpstreamError`, which the domain converts to a
`RookeryError` or to a `CallOutcome`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rookery.kernel.errors import RookeryError
from rookery.kernel.suggestions import suggest


class CallInvalid(RookeryError):
    """The body of a call has an invalid form (D-34)."""

    status, code = 400, "invalid_request"


class ArgumentsInvalid(RookeryError):
    """The arguments do not match the tool's inputSchema; `errors` lists the problems by JSON pointer (D-34)."""

    status, code = 400, "invalid_arguments"

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        pointer, texts = next(iter(errors.items()), ("", ["not valid"]))
        messages = {key: list(value) for key, value in errors.items()}
        super().__init__(f"The arguments do not match the tool's inputSchema: {pointer or 'the arguments'}: {texts[0]}", errors=messages)


class ServerNotFound(RookeryError):
    """The server does not exist or is not visible to this workspace."""

    status, code = 404, "server_not_found"

    def __init__(self, server_id: str, known_ids: Iterable[str] = ()) -> None:
        """Suggest the nearest of *known_ids*, which the caller may see."""
        hint = suggest(server_id, known_ids) or "."
        super().__init__(f"The server {server_id!r} does not exist{hint}", server=server_id)


class ToolNotFound(RookeryError):
    """The server has no tool of this name."""

    status, code = 404, "tool_not_found"

    def __init__(self, server_id: str, tool: str, known_names: Iterable[str] = ()) -> None:
        """Suggest the nearest of *known_names*, which the caller may see."""
        hint = suggest(tool, known_names) or "."
        super().__init__(f"The server {server_id!r} has no tool {tool!r}{hint}", server=server_id, tool=tool)


class PromptNotFound(RookeryError):
    """The server has no prompt of this name."""

    status, code = 404, "prompt_not_found"

    def __init__(self, server_id: str, prompt: str) -> None:
        super().__init__(f"The server {server_id!r} has no prompt {prompt!r}.", server=server_id, prompt=prompt)


class ToolDisabled(RookeryError):
    """The operator disabled the server or the tool (D-33)."""

    status, code = 403, "disabled"


class TestKeyRefused(RookeryError):
    """A test key called a tool that is neither read-only nor on a sandbox server (D-25)."""

    __test__ = False
    status, code = 403, "test_key_refused"


class SessionNotOpen(RookeryError):
    """The header X-Session-ID does not name an open agent session (D-38)."""

    status, code = 422, "session_not_open"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"X-Session-ID: {session_id[:100]!r} is not an open agent session of this workspace.", session_id=session_id[:100])


class ServerBusy(RookeryError):
    """The server has reached its limits on concurrent and on queued calls (D-34)."""

    status, code = 429, "server_busy"

    def __init__(self, server_id: str, *, retry_after_s: int = 1) -> None:
        super().__init__(
            f"The server {server_id!r} is busy: its queue of calls is full. Try again in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            server=server_id,
            retry_after=retry_after_s,
        )


class TooManySessions(RookeryError):
    """The number of open MCP client sessions has reached its limit (D-36)."""

    status, code = 429, "too_many_sessions"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": "60"}, retry_after=60)


class ResourceFailed(RookeryError):
    """The upstream could not return a resource (D-30)."""

    status, code = 500, "resource_error"
    is_upstream = True


class PromptFailed(RookeryError):
    """The upstream could not return a prompt."""

    status, code = 500, "prompt_error"
    is_upstream = True


class ServerUnavailable(RookeryError):
    """No session with the upstream could be opened in time (D-32)."""

    status, code = 500, "server_unavailable"
    is_upstream = True


class LoginFailed(RookeryError):
    """A login at an upstream's authorisation server failed. The message explains what to correct (D-31)."""

    status, code = 422, "login_failed"


class LoginExpired(LoginFailed):
    """The stored login is no longer accepted. A user must log in again."""


class LoginNotSupported(RookeryError):
    """The server's entry has no OAuth settings, so it accepts no login."""

    status, code = 409, "no_login"


class UpstreamError(Exception):
    """The base class of errors that connectors and connections raise. The message may be shown to callers."""


class ConnectFailed(UpstreamError):
    """No session could be opened, and no request was sent. `needs_login`: the upstream requires a login or another key."""

    def __init__(self, message: str, *, needs_login: bool = False) -> None:
        super().__init__(message)
        self.needs_login = needs_login


class ConnectionLost(UpstreamError):
    """
    The session broke during a request.

    Attributes:
        was_handled: False if the upstream certainly did not act on the request, so that a retry is safe.
    """

    def __init__(self, message: str, *, was_handled: bool) -> None:
        super().__init__(message)
        self.was_handled = was_handled


class UpstreamErrorResponse(UpstreamError):
    """The upstream returned a JSON-RPC error with a code, a message and optional data."""

    def __init__(self, number: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


class InvalidResult(UpstreamError):
    """The upstream returned something that is not a valid protocol result."""


class ResultTooLarge(UpstreamError):
    """The upstream's result exceeds the size limit and was discarded unread."""
