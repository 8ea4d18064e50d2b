"""
What can go wrong with tool servers.

    RookeryError
    ├── CallInvalid             400  invalid_request
    ├── ArgumentsInvalid        400  invalid_arguments, with errors {JSON pointer: [text]}
    ├── ServerNotFound          404  server_not_found
    ├── ToolNotFound            404  tool_not_found
    ├── PromptNotFound          404  prompt_not_found
    ├── Disabled                403  disabled
    ├── TestKeyRefused          403  test_key_refused
    ├── SessionNotOpen          422  session_not_open
    ├── ServerBusy              429  server_busy
    ├── TooManySessions         429  too_many_sessions
    ├── ResourceFailed          500  resource_error
    ├── ServerUnavailable       500  server_unavailable
    ├── PromptFailed            500  prompt_error
    ├── LoginFailed             422  login_failed
    │   └── LoginOver                the login is no longer good, or was never made
    └── NoLogin                 409  no_login, the server asks for none

    UpstreamError               what connectors raise; verbs turn it into one of the above or an `Outcome`
    ├── ConnectFailed           no session could be opened
    ├── ConnectionLost          it broke; `was_handled` tells whether the upstream may have acted
    ├── UpstreamRefused         the upstream answered with a protocol error
    ├── ResultInvalid           the upstream answered with something that is no result
    └── ResultTooLarge          more than 10 MiB
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.kernel.errors import RookeryError


class CallInvalid(RookeryError):
    """The body of a call is not of the form asked for (D-34)."""

    status, code = 400, "invalid_request"


class ArgumentsInvalid(RookeryError):
    """The arguments do not fit the tool's inputSchema; `errors` tells by JSON pointer what is wrong (D-34)."""

    status, code = 400, "invalid_arguments"

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        pointer, texts = next(iter(errors.items()), ("", ["not valid"]))
        shown = {key: list(value) for key, value in errors.items()}
        super().__init__(f"The arguments do not fit the tool: {pointer or 'the arguments'}: {texts[0]}", errors=shown)


class ServerNotFound(RookeryError):
    """There is no such server, for this workspace at least."""

    status, code = 404, "server_not_found"

    def __init__(self, server_id: str) -> None:
        super().__init__(f"There is no server {server_id!r}.", server=server_id)


class ToolNotFound(RookeryError):
    """The server has no such tool."""

    status, code = 404, "tool_not_found"

    def __init__(self, server_id: str, tool: str) -> None:
        super().__init__(f"The server {server_id!r} has no tool {tool!r}.", server=server_id, tool=tool)


class PromptNotFound(RookeryError):
    """The server has no such prompt."""

    status, code = 404, "prompt_not_found"

    def __init__(self, server_id: str, prompt: str) -> None:
        super().__init__(f"The server {server_id!r} has no prompt {prompt!r}.", server=server_id, prompt=prompt)


class ToolDisabled(RookeryError):
    """The operator switched the server or the tool off (D-33)."""

    status, code = 403, "disabled"


class TestKeyRefused(RookeryError):
    """A test key may call read-only tools, and servers marked as a sandbox (D-25)."""

    __test__ = False
    status, code = 403, "test_key_refused"


class SessionNotOpen(RookeryError):
    """The header X-Session-ID names no agent session that calls can be part of (D-38)."""

    status, code = 422, "session_not_open"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"X-Session-ID: {session_id[:100]!r} is no open agent session of this workspace.", session_id=session_id[:100])


class ServerBusy(RookeryError):
    """As many calls as the server takes are running, and as many as may wait are waiting (D-34)."""

    status, code = 429, "server_busy"

    def __init__(self, server_id: str, *, retry_after_s: int = 1) -> None:
        super().__init__(
            f"The server {server_id!r} is busy; try again in a moment.",
            headers={"Retry-After": str(retry_after_s)},
            server=server_id,
            retry_after=retry_after_s,
        )


class TooManySessions(RookeryError):
    """So many sessions of MCP clients are open that no other may be (D-36)."""

    status, code = 429, "too_many_sessions"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"Retry-After": "60"}, retry_after=60)


class ResourceFailed(RookeryError):
    """The upstream could not give a resource it was asked for (D-30)."""

    status, code = 500, "resource_error"
    is_upstream = True


class PromptFailed(RookeryError):
    """The upstream could not give a prompt it was asked for."""

    status, code = 500, "prompt_error"
    is_upstream = True


class ServerUnavailable(RookeryError):
    """No session with the upstream could be had in time (D-32)."""

    status, code = 500, "server_unavailable"
    is_upstream = True


class LoginFailed(RookeryError):
    """A login at an upstream's authorisation server came to nothing; the words say what to mend (D-31)."""

    status, code = 422, "login_failed"


class LoginExpired(LoginFailed):
    """What we hold of a login is no longer taken: somebody has to log in again."""


class LoginNotSupported(RookeryError):
    """The server's entry does not say that it asks for a login."""

    status, code = 409, "no_login"


class UpstreamError(Exception):
    """The root of what connectors and connections raise; its text may be shown to callers."""


class ConnectFailed(UpstreamError):
    """No session could be opened; nothing was asked of the upstream. `needs_login`: it wants a login or another key."""

    def __init__(self, message: str, *, needs_login: bool = False) -> None:
        super().__init__(message)
        self.needs_login = needs_login


class ConnectionLost(UpstreamError):
    """
    The session broke.

    Attributes:
        was_handled: False when the upstream surely did not act on the request, so that it may be asked again.
    """

    def __init__(self, message: str, *, was_handled: bool) -> None:
        super().__init__(message)
        self.was_handled = was_handled


class UpstreamErrorResponse(UpstreamError):
    """The upstream answered with a JSON-RPC error: its number, its text, and what else it says of it."""

    def __init__(self, number: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.number = number
        self.data = data


class InvalidResult(UpstreamError):
    """The upstream answered with something that the protocol does not know as a result."""


class ResultTooLarge(UpstreamError):
    """The upstream answered with more than we pass on; it was thrown away unread."""
