"""Parts of the platform that the console uses beside its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rookery.access.audit_log import AuditLog
from rookery.access.rate_limits import RateLimiter
from rookery.console.store import SignOuts
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.http.operations import Operation
from rookery.kernel.sealing import Sealer


class MemoryFile(Protocol):
    """The memories that were read from a file: their places in it with bodies of `remember`, and what could not be read."""

    @property
    def recognised(self) -> str | None: ...
    @property
    def drafts(self) -> Sequence[tuple[str, dict[str, object]]]: ...
    @property
    def rejected(self) -> Sequence[tuple[str, str]]: ...
    @property
    def warnings(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolePorts:
    """
    Parts of the platform.

    Attributes:
        sealer: Encrypts the session cookie.
        audit: Records sign-ins.
        limiter: Limits failed sign-ins.
        sign_outs: Stores which sign-ins have ended.
        find_address: Returns the address of the client of an ASGI scope.
        has_docs: The API documentation is served.
        list_operations: Returns the operations that the pages call.
        read_memory_file: Returns the memories of a file of another program, by its name and its text. It blocks.
    """

    db: Database
    sealer: Sealer
    audit: AuditLog
    limiter: RateLimiter
    sign_outs: SignOuts
    clock: Clock
    find_address: Callable[[Mapping[str, object]], str]
    organization: str
    has_docs: bool
    list_operations: Callable[[], Sequence[Operation]]
    read_memory_file: Callable[[str, str], MemoryFile]
