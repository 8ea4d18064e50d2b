"""Parts of the platform that the console uses beside its API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rookery.access.audit_log import AuditLog
from rookery.access.rate_limits import RateLimiter
from rookery.console.sign_outs import SignOuts
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.sealing import Sealer


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
