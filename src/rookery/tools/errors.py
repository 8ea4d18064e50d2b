"""
Errors of the tools domain.

A `RookeryError` is a response; its class has the status and the code. Connectors raise `UpstreamError`, which the domain converts to a
`RookeryError` or to a `CallOutcome`.

The errors of authorisation servers become texts, with advice if the resource indicator is the likely cause (RFC 6749, RFC 8707).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus

from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.safe_texts import escape_control_characters
from rookery.kernel.sentences import suggest


class CallInvalid(RookeryError):
    """The body of a tool call does not have the required form."""

    status, code = 400, "invalid_request"
    fields = "`errors`, `success`, `server`, `tool`"


_MAX_SHOWN_PROBLEMS = 20


class ArgumentsInvalid(RookeryError):
    """The arguments do not match the tool's inputSchema."""

    status, code = 400, "invalid_arguments"
    fields = "`errors` {JSON pointer: [text]}, `success`, `server`, `tool`"

    def __init__(self, errors: Mapping[str, Sequence[str]]) -> None:
        """Name all problems in the message, because models see nothing else, and correct one problem a call otherwise."""
        messages = {key: list(value) for key, value in errors.items()}
        problems = [f"{pointer or 'the arguments'}: {text}" for pointer, texts in messages.items() for text in texts] or ["not valid"]
        if len(problems) > _MAX_SHOWN_PROBLEMS:
            problems = [*problems[:_MAX_SHOWN_PROBLEMS], f"and {len(problems) - _MAX_SHOWN_PROBLEMS} more"]
        text = "; ".join([*(problem.removesuffix(".") for problem in problems[:-1]), problems[-1]])
        super().__init__(f"The arguments do not match the tool's inputSchema: {text}", errors=messages)


class ServerNotFound(RookeryError):
    """The tool server does not exist."""

    status, code = 404, "server_not_found"
    fields = "`server`"

    def __init__(self, server_id: str, known_ids: Iterable[str] = ()) -> None:
        """Suggest the nearest of *known_ids*, which the caller may see."""
        hint = suggest(server_id, known_ids) or "."
        super().__init__(f"The server {server_id!r} does not exist{hint}", server=server_id)


class ServerNotAdded(NotFound):
    """The server belongs to the installation, so the workspace can use it but has no settings of it."""

    def __init__(self, server_id: str) -> None:
        RookeryError.__init__(
            self,
            f"The server {server_id!r} belongs to the installation, and only its operator changes it. "
            f"GET /api/v1/mcp/servers/{server_id} shows it, and POST /api/v1/servers/{server_id}/check checks it.",
            resource="server",
        )


class ToolNotFound(RookeryError):
    """The server has no such tool."""

    status, code = 404, "tool_not_found"
    fields = "`server`, `tool`"

    def __init__(self, server_id: str, tool: str, known_names: Iterable[str] = ()) -> None:
        """Suggest the nearest of *known_names*, which the caller may see."""
        hint = suggest(tool, known_names) or "."
        super().__init__(f"The server {server_id!r} has no tool {tool!r}{hint}", server=server_id, tool=tool)


class PromptNotFound(RookeryError):
    """The server has no such prompt."""

    status, code = 404, "prompt_not_found"
    fields = "`server`, `prompt`"

    def __init__(self, server_id: str, prompt: str) -> None:
        super().__init__(f"The server {server_id!r} has no prompt {prompt!r}.", server=server_id, prompt=prompt)


class AmbiguousName(RookeryError):
    """Several tool servers have this resource. Use one of `candidates`."""

    status, code = 400, "ambiguous_name"
    fields = "`candidates`"

    def __init__(self, kind: str, name: str, candidates: Sequence[str]) -> None:
        listed = ", ".join(repr(candidate) for candidate in candidates)
        super().__init__(f"Several servers have the {kind} {name!r}. Use one of {listed}.", candidates=list(candidates))


class ToolDisabled(RookeryError):
    """The operator switched off or stopped the server or tool."""

    status, code = 403, "disabled"


class TestKeyRefused(RookeryError):
    """A test key called a tool that is not read-only, on a server without `sandbox`."""

    __test__ = False
    status, code = 403, "test_key_refused"


class SessionNotOpen(RookeryError):
    """`X-Session-ID` is not an open agent session of the workspace."""

    status, code = 422, "session_not_open"
    fields = "`session_id`, `success`, `server`, `tool`"

    def __init__(self, session_id: str) -> None:
        super().__init__(f"X-Session-ID: {session_id[:100]!r} is not an open agent session of this workspace.", session_id=session_id[:100])


class ServerBusy(RookeryError):
    """The tool server has the maximum number of running and waiting calls, or the call waited for others as long as it may take itself."""

    status, code = 429, "server_busy"
    fields = "`server`, `retry_after`; header `Retry-After`"

    def __init__(self, server_id: str, *, reason: str = "its queue of calls is full.", retry_after_s: int = 1) -> None:
        super().__init__(
            f"The server {server_id!r} is busy: {reason} Try again in {retry_after_s} s.",
            headers={"Retry-After": str(retry_after_s)},
            server=server_id,
            retry_after=retry_after_s,
        )


class TooManySessions(RookeryError):
    """All MCP sessions of the older protocol are in use: 100 of a key, 250 of a workspace or 1,000 of the process, the maximum."""

    status, code = 429, "too_many_sessions"
    fields = "`retry_after`; header `Retry-After`"

    def __init__(self, problem: str, *, retry_after_s: int) -> None:
        message = f"{problem} Close an event stream, or try again in {retry_after_s} s."
        super().__init__(message, headers={"Retry-After": str(retry_after_s)}, retry_after=retry_after_s)


class ResourceFailed(RookeryError):
    """The tool server failed to return a resource that it lists."""

    status, code = 500, "resource_error"
    fields = "`server`, `uri`; `retry_after` and header `Retry-After`, if the server sent them"
    is_upstream = True


class PromptFailed(RookeryError):
    """The tool server failed to return the prompt."""

    status, code = 500, "prompt_error"
    fields = "`server`, `prompt`; `retry_after` and header `Retry-After`, if the server sent them"
    is_upstream = True


class ServerUnavailable(RookeryError):
    """No session with the tool server could be opened."""

    status, code = 500, "server_unavailable"
    fields = "`server`; `retry_after` and header `Retry-After`, if the server sent them or Rookery pauses its attempts"
    is_upstream = True


class LoginFailed(RookeryError):
    """A login at a tool server failed; the message explains what to correct."""

    status, code = 422, "login_failed"


class LoginExpired(LoginFailed):
    """The stored login is no longer accepted. A user must log in again."""


class LoginNotSupported(RookeryError):
    """The entry of the tool server does not use a login."""

    status, code = 409, "no_login"


class UpstreamError(Exception):
    """
    The base class of errors that connectors and connections raise. The message may be shown to callers.

    Attributes:
        retry_after_s: The seconds after which another request is allowed; None if nobody said so.
        is_throttled: The upstream is healthy but allows no further request for now. By default it is, if `retry_after_s` is set.
        concerns_caller: The upstream rejected, or missed, the login that a caller sends in forwarded headers. Nothing is wrong with
            the upstream or its entry, and no other caller is concerned.
    """

    concerns_caller = False

    def __init__(self, message: str, *, retry_after_s: int | None = None, is_throttled: bool | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_throttled = retry_after_s is not None if is_throttled is None else is_throttled


class ConnectFailed(UpstreamError):
    """No session could be opened, and no request was sent. `needs_login`: the upstream requires a login or another key."""

    def __init__(
        self,
        message: str,
        *,
        needs_login: bool = False,
        concerns_caller: bool = False,
        retry_after_s: int | None = None,
        is_throttled: bool | None = None,
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, is_throttled=is_throttled)
        self.needs_login = needs_login
        self.concerns_caller = concerns_caller

    def with_message(self, message: str, *, retry_after_s: int | None = None) -> ConnectFailed:
        """Return a new error with the same attributes, which may be raised in another task. *retry_after_s*: another value."""
        return ConnectFailed(
            message,
            needs_login=self.needs_login,
            concerns_caller=self.concerns_caller,
            retry_after_s=self.retry_after_s if retry_after_s is None else retry_after_s,
            is_throttled=self.is_throttled,
        )


class StartTimedOut(ConnectFailed):
    """The server did not answer within the time that its start may take."""


class HandshakeRefused(ConnectFailed):
    """The server does not know `server/discover`, and rejected `initialize` after it. It may accept that as its first message."""


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

    def __init__(
        self, number: int, message: str, data: object = None, *, retry_after_s: int | None = None, is_throttled: bool | None = None
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s, is_throttled=is_throttled)
        self.number = number
        self.data = data


class UpstreamStatusError(UpstreamError):
    """The upstream answered the request with an HTTP error status. Only this request failed; the session is usable."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        is_throttled = status == HTTPStatus.TOO_MANY_REQUESTS or retry_after_s is not None
        super().__init__(message, retry_after_s=retry_after_s, is_throttled=is_throttled)
        self.status = status


class InvalidResult(UpstreamError):
    """The upstream returned something that is not a valid protocol result."""


class ResultTooLarge(UpstreamError):
    """The upstream's result exceeds the size limit and was discarded unread."""


_MAX_QUOTED_CHARS = 300
_RESOURCE_ERROR = "invalid_target"
"""The error code for a resource that is not accepted (RFC 8707, section 2)."""

_OTHER_ERRORS = frozenset({"access_denied", "server_error", "temporarily_unavailable"})
"""Errors whose cause is another, even if the text has the word "resource"."""

_RESOURCE_WORD = re.compile(r"\bresources?\b(?!\s+owner)", re.IGNORECASE)


def describe_oauth_error(code: object, description: object, *, default: str) -> str:
    """Return the fields `error` and `error_description` of an authorisation server in one line; *default* if both are missing."""
    return ": ".join(part[:_MAX_QUOTED_CHARS] for part in _list_parts(code, description)) or default


def add_resource_advice(reason: str, code: object, description: object, *, resource: str | None) -> str:
    """
    Return *reason*, with advice if the error concerns the resource.

    Args:
        resource: The resource that the request named; None: it named none.
    """
    if not _concerns_resource(code, " ".join(_list_parts(code, description)), resource):
        return reason
    return f"{reason.rstrip('.')}. {_advise_on_resource(resource)}"


def _list_parts(code: object, description: object) -> list[str]:
    parts = [escape_control_characters(" ".join(part.split())) for part in (code, description) if isinstance(part, str)]
    return [part for part in parts if part]


def _concerns_resource(code: object, text: str, resource: str | None) -> bool:
    if code == _RESOURCE_ERROR:
        return True
    if resource is not None and re.search(rf"{re.escape(resource.rstrip('/'))}/?(?![\w/-]|[.:]\w)", text) is not None:
        return True
    return code not in _OTHER_ERRORS and _RESOURCE_WORD.search(text) is not None


def _advise_on_resource(resource: str | None) -> str:
    if resource is None:
        return 'If it requires a resource, which Rookery did not send, set "resource" in `auth` of the entry.'
    return (
        f"If the cause is the resource {resource[:_MAX_QUOTED_CHARS]!r} that Rookery sends, change `auth` of the entry: "
        '"resource": null leaves it out, as Entra ID requires, and a text replaces it.'
    )
