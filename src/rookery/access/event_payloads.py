"""How keys look to the outside (D-80, D-81): the fields that their GET gives, without the secret and without addresses (D-12)."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.access import serializers
from rookery.access.models import Caller, KeyKind
from rookery.access.store import keys, workspaces
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Tx


def make_system_caller(tx: Tx, workspace_id: int) -> Caller:
    """
    Return who sees all that the tenant has, as its webhooks do: no key of anybody's.

    A portrait is made as an answer is, and an answer is made for a caller.
    """
    shown_id = workspaces.get_public_id(tx, workspace_id)
    return Caller(
        key_id="",
        key_kind="api",
        key_name="webhooks",
        workspace_id=workspace_id,
        public_workspace_id=shown_id,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live" if shown_id == workspace_id else "test",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="unknown",
        request_id="",
    )


def serialize_key_event(tx: Tx, kind: KeyKind, workspace_id: int, key_id: str, *, clock: Clock) -> Mapping[str, object]:
    """Return the fields of a key of the workspace; of one that is gone, its id."""
    now = clock()
    found = keys.find_key(tx, kind, workspace_id, key_id, at=to_micros(now))
    return {"id": key_id} if found is None else serializers.serialize_key(found, now, with_addresses=False)
