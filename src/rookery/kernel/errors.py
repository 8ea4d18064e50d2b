"""
The base class of all errors, and the errors that every domain may raise.

    RookeryError                500  internal_error
    ├── ValidationFailed        422  validation_error
    ├── NotFound                404  resource_not_found
    ├── Conflict                409  conflict
    ├── PermissionDenied        403  permission_denied
    │   └── NotInAllowList      403  permission_denied
    ├── EngineUnavailable       503  engine_unavailable
    ├── StorageFull             507  storage_full
    └── WrongSettings           —    the process does not start

Each domain adds its own in `errors.py`. `kernel.http` sends them all as {"error": code, "message": text, **detail}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import ClassVar

_MAX_SUMMARY_FIELDS = 5
"""Maximum fields in the message of a `ValidationFailed`. `errors` has all of them."""


class RookeryError(Exception):
    """
    An error with a message for the caller.

    Attributes:
        status: The HTTP status; on the class.
        code: The value of the `error` field, a part of the public contract; on the class. The reference lists it with the summary of the
            docstring of the class that declares it.
        fields: The further fields of the body, in words of the reference; on the class.
        is_upstream: True if a tool server failed and not Rookery; on the class.
        detail: Further fields of the body, JSON-ready.
        headers: Headers of the response, for example Retry-After.
        tool_message: The message for a caller of an MCP tool, if the usual one names a route. It names a tool of the same server.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    fields: ClassVar[str] = ""
    is_upstream: ClassVar[bool] = False
    tool_message: str | None = None

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})
        self.detail = detail

    def body(self) -> dict[str, object]:
        """Return the error body. A detail never replaces the code or the message."""
        return {**self.detail, "error": self.code, "message": self.message}


class ValidationFailed(RookeryError):
    """
    A field of the body or query, or the header Idempotency-Key, is invalid.

    Attributes:
        field_errors: The problems of each field, as in `errors`.
    """

    status, code = 422, "validation_error"
    fields = "`errors` {field: [text]}"

    def __init__(self, errors: Mapping[str, Sequence[str]], message: str | None = None) -> None:
        self.field_errors = {field: tuple(texts) for field, texts in errors.items()}
        super().__init__(message or _summary(errors), errors={field: list(texts) for field, texts in errors.items()})


class NotFound(RookeryError):
    """The memory or other resource does not exist, or belongs to another workspace. The error is the same if another tenant has it."""

    status, code = 404, "resource_not_found"
    fields = "`resource`"

    def __init__(self, kind: str, name: str) -> None:
        location = "" if kind == "workspace" else " in this workspace"
        super().__init__(f"There is no {kind} {name!r}{location}.", resource=kind)


class Conflict(RookeryError):
    """The state of the resource does not allow the operation."""

    status, code = 409, "conflict"


class PermissionDenied(RookeryError):
    """The key lacks a permission that can be granted (`required_permission`), or its list excludes what is named (`not_in_list`)."""

    status, code = 403, "permission_denied"
    fields = "one of `required_permission`, `not_in_list` (with `list`, of servers, tools, orgs or projects, and `value`), `field`"

    def __init__(self, required_permission: str, message: str | None = None) -> None:
        super().__init__(message or f"This key lacks the permission {required_permission!r}.", required_permission=required_permission)


class NotInAllowList(PermissionDenied):
    """
    The key is valid, but one of its allow-lists does not contain a value of the request.

    No permission would help, so the body has no `required_permission`. `not_in_list` holds the list and the value.
    """

    def __init__(self, allow_list: str, value: str | None, message: str) -> None:
        RookeryError.__init__(self, message, not_in_list={"list": allow_list, "value": value})


class EngineUnavailable(RookeryError):
    """An engine did not answer; the same request may succeed later."""

    status, code = 503, "engine_unavailable"
    fields = "`engine`; header `Retry-After`"

    def __init__(self, engine: str, reason: str, *, retry_after_s: int = 5) -> None:
        super().__init__(f"The {engine} engine is unavailable: {reason}", headers={"Retry-After": str(retry_after_s)}, engine=engine)
        self.engine = engine
        self.reason = reason


class EngineReadOnly(EngineUnavailable):
    """An engine on a server answers, but accepts only reads: it is a standby, or its operator or its disk allows no writes."""


class StorageFull(RookeryError):
    """The disk has less free space than `ROOKERY_MIN_FREE_DISK_MB`; reads still work."""

    status, code = 507, "storage_full"


OUTAGES = (EngineUnavailable, StorageFull)
"""Failures of the environment: the same work succeeds once the engine responds or the disk has space."""


class WrongSettings(RookeryError):
    """The server or command does not start: one line on standard error, exit code 1."""

    code = "wrong_settings"


def _summary(errors: Mapping[str, Sequence[str]]) -> str:
    if not errors:
        return "The request is invalid."
    lines = [f"{field}: {texts[0] if texts else 'invalid'}" for field, texts in islice(errors.items(), _MAX_SUMMARY_FIELDS)]
    more = f"; and {len(errors) - _MAX_SUMMARY_FIELDS} more, see errors" if len(errors) > _MAX_SUMMARY_FIELDS else ""
    return "; ".join(line.removesuffix(".") for line in lines[:-1]) + ("; " if len(lines) > 1 else "") + lines[-1] + more
