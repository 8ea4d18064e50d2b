"""Keys and workspaces as they are shown, field by field as D-29 names them: what the wire and the command line have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from rookery.access.models import Call, Deletion, Entry, Key, Minted, Reach, UsageField, UsageSum, Use, Workspace
from rookery.kernel.clock import iso

Fields = dict[str, object]

ADDRESSES = frozenset({"last_used_ip", "ip_list"})
"""Fields that need `audit:read` (D-12)."""


def api_key(key: Key, use: Use, at: datetime) -> Fields:
    """Return an API key's fields; its status is the one at that time."""
    return {
        "id": key.id,
        "name": key.name,
        "workspace_id": key.workspace_id,
        "agent_id": key.agent_id,
        "scopes": list(key.scopes),
        "rate_limit_tier": key.tier,
        "environment": key.environment,
        "expires_at": time(key.expires_at),
        "created_at": iso(key.created_at),
        "suspended_at": time(key.suspended_at),
        "status": key.status(at).value,
        "hint": key.hint,
        **_use(use),
        "delete_after": time(key.delete_after),
        **_reach(key.reach),
    }


def agent_key(key: Key, use: Use, at: datetime) -> Fields:
    """Return an agent key's fields; its status is the one at that time."""
    return {
        "id": key.id,
        "name": key.name,
        "agent_id": key.agent_id,
        "workspace_id": key.workspace_id,
        "permissions": list(key.scopes),
        "rate_limit": key.rate_limit,
        "expires_at": time(key.expires_at),
        "created_at": iso(key.created_at),
        "suspended_at": time(key.suspended_at),
        "revoked_at": time(key.revoked_at),
        "delete_after": time(key.delete_after),
        "status": key.status(at).value,
        "hint": key.hint,
        "ip_restriction": key.ip_restriction,
        "ip_list": list(key.ip_list),
        **_use(use),
        **_reach(key.reach),
    }


def entry(found: Entry, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind, as `key` does."""
    return key(found.key, found.use, at, with_addresses=with_addresses)


def key(found: Key, use: Use, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind; addresses are for those who may read the audit log (D-12)."""
    fields = api_key(found, use, at) if found.kind == "api" else agent_key(found, use, at)
    return fields if with_addresses else {name: value for name, value in fields.items() if name not in ADDRESSES}


def minted(made: Minted, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key just made, with its plaintext: `plaintext_key` of an API key, `key` of an agent key."""
    secret = "plaintext_key" if made.key.kind == "api" else "key"
    return {**key(made.key, Use(), at, with_addresses=with_addresses), secret: made.plaintext.reveal()}


def workspace(found: Workspace) -> Fields:
    """Return a workspace's fields."""
    return {"id": found.id, "workspace_id": found.id, "name": found.name, "created_at": iso(found.created_at)}


def deletion(gone: Deletion) -> Fields:
    """Return what went, or would go, with a workspace."""
    return {**workspace(gone.workspace), "keys": gone.keys, "calls": gone.calls, "rows": gone.rows, "deleted": gone.rows is not None}


def call(made: Call, *, with_addresses: bool = True) -> Fields:
    """Return one call's fields (D-29)."""
    fields: Fields = {
        "at": iso(made.at),
        "method": made.method,
        "route": made.route,
        "status": made.status,
        "duration_ms": round(made.duration_ms, 3),
        "address": made.address,
        "request_id": made.request_id,
    }
    return fields if with_addresses else {name: value for name, value in fields.items() if name != "address"}


def usage_sum(added: UsageSum, by: Collection[UsageField]) -> Fields:
    """Return calls added up: what they were added up by, and the sums."""
    fields: Fields = {}
    for field in ("day", "key", "method", "route", "status"):
        if field == "key" and "key" in by:
            fields |= {"key_id": added.key_id, "key_name": added.key_name}
        elif field in by:
            fields[field] = getattr(added, field)
    mean_ms = added.total_ms / added.calls if added.calls else 0.0
    return {**fields, "calls": added.calls, "errors": added.errors, "mean_ms": round(mean_ms, 3)}


def _use(use: Use) -> Mapping[str, object]:
    return {"call_count": use.call_count, "last_used_at": time(use.last_used_at), "last_used_ip": use.last_used_ip}


def _reach(reach: Reach) -> Mapping[str, object]:
    return {
        "servers": None if reach.servers is None else sorted(reach.servers),
        "tools": None if reach.tools is None else list(reach.tools),
        "orgs": None if reach.orgs is None else sorted(reach.orgs),
        "projects": None if reach.projects is None else sorted(reach.projects),
        "tool_limits": dict(reach.tool_limits),
    }


def time(moment: datetime | None) -> str | None:
    """Return a moment as it is shown."""
    return None if moment is None else iso(moment)
