"""The events of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rookery.kernel.events import EventType, NamedEvent, Recipient

_DATA = "the key, without its secret and addresses; an agent key as in /api/v1/agent-keys"
_DESCRIPTIONS = {
    "key.created": "An API key or agent key was created.",
    "key.rotated": "A key was rotated. It ends with its grace period; `key.created` reports its successor.",
    "key.revoked": "A key was revoked or deleted.",
    "key.expired": "A key expired.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged(NamedEvent):
    """
    A key was created, rotated, revoked or deleted, or expired.

    `name` is the change, such as `key.rotated`; *tenant_id* the sandbox of a test key; *last_snapshot* the last state of a deleted key.

    Attributes:
        workspace_id: The workspace that owns the key.
        tenant_id: The tenant in which the key acts: the sandbox for a test key.
        last_snapshot: The public representation of a deleted key.
    """

    types = tuple(
        EventType(name=name, description=description, data=_DATA, scope="keys:read", resource="/api/v1/api-keys/{key_id}")
        for name, description in _DESCRIPTIONS.items()
    )

    workspace_id: int
    tenant_id: int
    kind: str
    key_id: str
    at: datetime
    last_snapshot: Mapping[str, object] | None = None

    def list_recipients(self) -> Sequence[Recipient]:
        # A test key is visible in its workspace and in the sandbox; a live key is not visible in the sandbox.
        return [(tenant, "") for tenant in dict.fromkeys((self.workspace_id, self.tenant_id))]
