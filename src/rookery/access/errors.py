"""
What the guard refuses with, and what changing a key may meet (spec 7, D-10).

    RookeryError
    ├── Unauthorised            401  unauthorised
    │   ├── KeyRevoked          401  key_revoked
    │   └── KeyExpired          401  key_expired
    ├── AddressNotAllowed       403  ip_not_allowed
    ├── ScopeMissing            403  scope_missing        (API keys; agent keys get the kernel's PermissionDenied)
    ├── WrongWorkspace          403  permission_denied
    ├── NotHeld                 403  permission_denied
    ├── RateLimited             429  rate_limited
    └── Conflict
        ├── KeyInGrace          409  key_in_grace
        └── NameTaken           409  name_taken
"""

from __future__ import annotations

from rookery.kernel.errors import Conflict, RookeryError


class Unauthorised(RookeryError):
    """No key, several keys, or one that is not known; which of these a stranger is told only in general words."""

    status, code = 401, "unauthorised"

    def __init__(self, message: str = "A valid key is required: send it as a Bearer token or in X-API-Key.") -> None:
        super().__init__(message, headers={"WWW-Authenticate": "Bearer"})


class KeyRevoked(Unauthorised):
    """The key's secret was proven, but the key was revoked or is suspended."""

    code = "key_revoked"

    def __init__(self) -> None:
        super().__init__("This key was revoked.")


class KeyExpired(Unauthorised):
    """The key's secret was proven, but its time is over."""

    code = "key_expired"

    def __init__(self) -> None:
        super().__init__("This key has expired.")


class AddressNotAllowed(RookeryError):
    """The key may be used from other addresses only (spec 5.3, step 4)."""

    status, code = 403, "ip_not_allowed"

    def __init__(self, your_ip: str) -> None:
        super().__init__(f"This key may not be used from {your_ip}.", your_ip=your_ip)


class ScopeMissing(RookeryError):
    """The API key is valid but was not granted the scope that this route requires (spec 5.2, rule 5)."""

    status, code = 403, "scope_missing"

    def __init__(self, required_scope: str) -> None:
        super().__init__(f"This key lacks the scope {required_scope!r}.", required_scope=required_scope)


class WorkspaceMismatch(RookeryError):
    """X-Workspace-ID names another workspace than the key's (D-15); whether that one exists is not told."""

    status, code = 403, "permission_denied"

    def __init__(self, workspace_id: int) -> None:
        super().__init__(f"This key belongs to workspace {workspace_id}; X-Workspace-ID names another.", field="X-Workspace-ID")


class DelegationDenied(RookeryError):
    """The key may change keys, but not this one or not to this: it does not have that itself (D-24); `field` names what."""

    status, code = 403, "permission_denied"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, field=field)
        self.field = field


class RateLimited(RookeryError):
    """More requests than the key, the tool limit or the failure budget of an address allows; `retry_after` is in seconds."""

    status, code = 429, "rate_limited"

    def __init__(self, retry_after_s: int, message: str = "The rate limit of this key is exceeded.") -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after_s)}, retry_after=retry_after_s)
        self.retry_after_s = retry_after_s


class KeyInGrace(Conflict):
    """The key was rotated already and only lives on through its grace period (D-26)."""

    code = "key_in_grace"

    def __init__(self) -> None:
        super().__init__("This key was rotated and is in its grace period; rotate its successor.")


class NameTaken(Conflict):
    """Another thing in the same place has this name, which must be unique there."""

    code = "name_taken"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"Another {kind} is named {name!r}.", resource=kind)
