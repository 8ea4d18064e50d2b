"""
The one root of errors, and those that every domain may raise (D-10).

    RookeryError                500  internal_error
    ├── ValidationFailed        422  validation_error
    ├── NotFound                404  resource_not_found
    ├── Conflict                409  conflict
    ├── PermissionDenied        403  permission_denied
    │   └── NotInList           403  permission_denied
    ├── EngineUnavailable       503  engine_unavailable
    ├── StorageFull             507  storage_full
    └── WrongSettings           —    refuses to start

Each domain's `errors.py` adds its own. `kernel.http` renders them all as {"error": code, "message": text, **detail}.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import ClassVar

_MAX_SUMMARY_FIELDS = 5
"""Fields that the message of a refusal names; `errors` has all."""


class RookeryError(Exception):
    """
    Something we can say in words to whoever asked.

    Attributes:
        status: The HTTP status; on the class.
        code: The word of D-10's `error` field, part of the contract; on the class.
        is_upstream: The failure is a tool server's, not Rookery's; on the class.
        detail: Further fields of the body, JSON-ready.
        headers: Headers of the answer, for example Retry-After.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "internal_error"
    is_upstream: ClassVar[bool] = False

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.headers = dict(headers or {})
        self.detail = detail

    def body(self) -> dict[str, object]:
        """Return the error body; a detail can never replace the code or the message."""
        return {**self.detail, "error": self.code, "message": self.message}


class ValidationFailed(RookeryError):
    """What was sent is not of the form asked for; `errors` tells each field what is wrong with it."""

    status, code = 422, "validation_error"

    def __init__(self, errors: Mapping[str, Sequence[str]], message: str | None = None) -> None:
        super().__init__(message or _summary(errors), errors={field: list(texts) for field, texts in errors.items()})


class NotFound(RookeryError):
    """There is no such thing in the caller's workspace; whether another tenant has it is never told."""

    status, code = 404, "resource_not_found"

    def __init__(self, kind: str, name: str) -> None:
        where = "" if kind == "workspace" else " in this workspace"
        super().__init__(f"There is no {kind} {name!r}{where}.", resource=kind)


class Conflict(RookeryError):
    """The thing is not in a state in which this can be done."""

    status, code = 409, "conflict"


class PermissionDenied(RookeryError):
    """The key is valid, but may not do this; `required_permission` names what would let it."""

    status, code = 403, "permission_denied"

    def __init__(self, required_permission: str, message: str | None = None) -> None:
        super().__init__(message or f"This key lacks the permission {required_permission!r}.", required_permission=required_permission)


class NotInAllowList(PermissionDenied):
    """
    The key is valid, but one of its allow-lists leaves out what the request names (D-23).

    No permission would help, so the body has no `required_permission`: `not_in_list` names the list and the value.
    """

    def __init__(self, allow_list: str, value: str | None, message: str) -> None:
        RookeryError.__init__(self, message, not_in_list={"list": allow_list, "value": value})


class EngineUnavailable(RookeryError):
    """An engine did not answer, or not in time; the same request may succeed later."""

    status, code = 503, "engine_unavailable"

    def __init__(self, engine: str, reason: str, *, retry_after_s: int = 5) -> None:
        super().__init__(f"The {engine} engine is unavailable: {reason}", headers={"Retry-After": str(retry_after_s)}, engine=engine)
        self.engine = engine
        self.reason = reason


class StorageFull(RookeryError):
    """The disk has too little room for another write; reads go on (D-17)."""

    status, code = 507, "storage_full"


OUTAGES = (EngineUnavailable, StorageFull)
"""Failures that are not the work's own: the same work succeeds once the engine answers or the disk has room."""


class WrongSettings(RookeryError):
    """A setting that cannot work; starting is refused with this one line (D-02)."""

    code = "wrong_settings"


def _summary(errors: Mapping[str, Sequence[str]]) -> str:
    if not errors:
        return "The request is not valid."
    shown = [f"{field}: {texts[0] if texts else 'not valid'}" for field, texts in islice(errors.items(), _MAX_SUMMARY_FIELDS)]
    more = f"; and {len(errors) - _MAX_SUMMARY_FIELDS} more, see errors" if len(errors) > _MAX_SUMMARY_FIELDS else ""
    return "; ".join(each.removesuffix(".") for each in shown[:-1]) + ("; " if len(shown) > 1 else "") + shown[-1] + more
