"""Payloads of key events for webhooks: the fields of the key's GET without secret and addresses (D-12, D-80, D-81)."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.access import serializers
from rookery.access.models import Caller, KeyKind
from rookery.access.store import keys, workspaces
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Tx


def make_system_caller(tx: Tx, workspace_id: int) -> Caller:
    """
    Return a caller with every right in the tenant, for serialising webhook payloads. It has no key.

    The serialisers need a caller because the same code makes the API responses.
    """
    public_id = workspaces.get_public_id(tx, workspace_id)
    return Caller(
        key_id="",
        key_kind="api",
        key_name="webhooks",
        workspace_id=workspace_id,
        public_workspace_id=public_id,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live" if public_id == workspace_id else "test",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="unknown",
        request_id="",
    )


def serialize_key_event(tx: Tx, kind: KeyKind, workspace_id: int, key_id: str, *, clock: Clock) -> Mapping[str, object]:
    """Return the fields of a key of the workspace; only its id if it no longer exists."""
    now = clock()
    key = keys.find_key(tx, kind, workspace_id, key_id, at=to_micros(now))
    return {"id": key_id} if key is None else serializers.serialize_key(key, now, with_addresses=False)
