"""
Errors of the guard and of changes to keys.

    RookeryError
    ├── Unauthorised            401  unauthorised
    │   ├── KeyRevoked          401  key_revoked
    │   │   └── KeySuspended    401  key_revoked
    │   └── KeyExpired          401  key_expired
    ├── AddressNotAllowed       403  ip_not_allowed
    ├── ScopeMissing            403  scope_missing        (API keys; agent keys get the kernel's PermissionDenied)
    ├── WorkspaceMismatch       403  permission_denied
    ├── DelegationDenied        403  permission_denied
    ├── RateLimited             429  rate_limited
    └── Conflict
        ├── KeyInGrace          409  key_in_grace
        └── NameTaken           409  name_taken
"""

from __future__ import annotations

from rookery.kernel.errors import Conflict, RookeryError


class Unauthorised(RookeryError):
    """
    No key, two different keys, or an unknown key.

    Deleted keys and keys past their grace period are unknown. The message does not reveal whether a key exists.
    """

    status, code = 401, "unauthorised"
    fields = "header `WWW-Authenticate: Bearer`"

    def __init__(self, message: str = "A valid key is required: send it as a Bearer token or in X-API-Key.") -> None:
        super().__init__(message, headers={"WWW-Authenticate": "Bearer"})


class KeyRevoked(Unauthorised):
    """The key is revoked, or suspended, as the message says."""

    code = "key_revoked"

    def __init__(self) -> None:
        super().__init__("This key was revoked.")


class KeySuspended(KeyRevoked):
    """The secret is correct, but the key is suspended. It has the code of a revoked key."""

    def __init__(self) -> None:
        Unauthorised.__init__(self, "This key is suspended. It works again once it is resumed.")


class KeyExpired(Unauthorised):
    """The key has expired."""

    code = "key_expired"

    def __init__(self) -> None:
        super().__init__("This key has expired.")


class AddressNotAllowed(RookeryError):
    """The key may not be used from this address."""

    status, code = 403, "ip_not_allowed"
    fields = "`your_ip`"

    def __init__(self, your_ip: str) -> None:
        super().__init__(f"This key may not be used from {your_ip}.", your_ip=your_ip)


class ScopeMissing(RookeryError):
    """The API key lacks the scope."""

    status, code = 403, "scope_missing"
    fields = "`required_scope`"

    def __init__(self, required_scope: str) -> None:
        super().__init__(f"This key lacks the scope {required_scope!r}.", required_scope=required_scope)


class WorkspaceMismatch(RookeryError):
    """`X-Workspace-ID` is another workspace than the key's (`field`)."""

    status, code = 403, "permission_denied"

    def __init__(self, workspace_id: int) -> None:
        super().__init__(f"This key belongs to workspace {workspace_id}; X-Workspace-ID names another.", field="X-Workspace-ID")


class DelegationDenied(RookeryError):
    """The key would grant what it does not have; `field` names the setting."""

    status, code = 403, "permission_denied"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message, field=field)
        self.field = field


class RateLimited(RookeryError):
    """
    The limit of the key, one of its tool limits, or the budget of an address for wrong keys (10 a minute) is exceeded.

    The last one applies to every route that takes a key, and its answer has no `X-RateLimit` headers.
    """

    status, code = 429, "rate_limited"
    fields = "`retry_after`: seconds; header `Retry-After`"

    def __init__(self, retry_after_s: int, message: str = "The rate limit of this key is exceeded.") -> None:
        """*message*: the limit that is exceeded. The seconds are added, because most clients show nothing but the message."""
        text = f"{message} Try again in {retry_after_s} s."
        super().__init__(text, headers={"Retry-After": str(retry_after_s)}, retry_after=retry_after_s)
        self.retry_after_s = retry_after_s


class KeyInGrace(Conflict):
    """The key was already rotated; rotate its successor."""

    code = "key_in_grace"

    def __init__(self) -> None:
        super().__init__("This key was already rotated and is in its grace period. Rotate its successor instead.")


class NameTaken(Conflict):
    """The name is in use and must be unique."""

    code = "name_taken"
    fields = "`resource`"

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"Another {kind} is named {name!r}.", resource=kind)
