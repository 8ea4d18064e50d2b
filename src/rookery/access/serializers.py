"""Keys and workspaces as they are shown, field by field as D-29 names them: what the wire and the command line have in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from rookery.access.models import (
    Key,
    KeyCall,
    KeyRestrictions,
    KeyUsage,
    KeyWithSecret,
    KeyWithUsage,
    UsageField,
    UsageSum,
    Workspace,
    WorkspaceDeletion,
)
from rookery.kernel.clock import format_iso

Fields = dict[str, object]

ADDRESS_FIELDS = frozenset({"last_used_ip", "ip_list"})
"""Fields that need `audit:read` (D-12)."""


def serialize_api_key(key: Key, use: KeyUsage, at: datetime) -> Fields:
    """Return an API key's fields; its status is the one at that time."""
    return {
        "id": key.id,
        "name": key.name,
        "workspace_id": key.workspace_id,
        "agent_id": key.agent_id,
        "scopes": list(key.scopes),
        "rate_limit_tier": key.tier,
        "environment": key.environment,
        "expires_at": format_optional_time(key.expires_at),
        "created_at": format_iso(key.created_at),
        "suspended_at": format_optional_time(key.suspended_at),
        "status": key.status(at).value,
        "hint": key.hint,
        **_serialize_usage(use),
        "delete_after": format_optional_time(key.delete_after),
        **_serialize_restrictions(key.restrictions),
    }


def serialize_agent_key(key: Key, use: KeyUsage, at: datetime) -> Fields:
    """Return an agent key's fields; its status is the one at that time."""
    return {
        "id": key.id,
        "name": key.name,
        "agent_id": key.agent_id,
        "workspace_id": key.workspace_id,
        "permissions": list(key.scopes),
        "rate_limit": key.rate_limit,
        "expires_at": format_optional_time(key.expires_at),
        "created_at": format_iso(key.created_at),
        "suspended_at": format_optional_time(key.suspended_at),
        "revoked_at": format_optional_time(key.revoked_at),
        "delete_after": format_optional_time(key.delete_after),
        "status": key.status(at).value,
        "hint": key.hint,
        "ip_restriction": key.ip_restriction,
        "ip_list": list(key.ip_list),
        **_serialize_usage(use),
        **_serialize_restrictions(key.restrictions),
    }


def serialize_key(found: KeyWithUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind, as `key` does."""
    return serialize_key_fields(found.key, found.usage, at, with_addresses=with_addresses)


def serialize_key_fields(found: Key, use: KeyUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind; addresses are for those who may read the audit log (D-12)."""
    fields = serialize_api_key(found, use, at) if found.kind == "api" else serialize_agent_key(found, use, at)
    return fields if with_addresses else {name: value for name, value in fields.items() if name not in ADDRESS_FIELDS}


def serialize_key_with_secret(made: KeyWithSecret, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key just made, with its plaintext: `plaintext_key` of an API key, `key` of an agent key."""
    secret = "plaintext_key" if made.key.kind == "api" else "key"
    return {**serialize_key_fields(made.key, KeyUsage(), at, with_addresses=with_addresses), secret: made.plaintext.reveal()}


def serialize_workspace(found: Workspace) -> Fields:
    """Return a workspace's fields."""
    return {"id": found.id, "workspace_id": found.id, "name": found.name, "created_at": format_iso(found.created_at)}


def serialize_deletion(gone: WorkspaceDeletion) -> Fields:
    """Return what went, or would go, with a workspace."""
    return {
        **serialize_workspace(gone.workspace),
        "keys": gone.key_count,
        "calls": gone.call_count,
        "rows": gone.row_count,
        "deleted": gone.row_count is not None,
    }


def serialize_call(made: KeyCall, *, with_addresses: bool = True) -> Fields:
    """Return one call's fields (D-29)."""
    fields: Fields = {
        "at": format_iso(made.at),
        "method": made.method,
        "route": made.route,
        "status": made.status,
        "duration_ms": round(made.duration_ms, 3),
        "address": made.address,
        "request_id": made.request_id,
    }
    return fields if with_addresses else {name: value for name, value in fields.items() if name != "address"}


def serialize_usage_sum(added: UsageSum, by: Collection[UsageField]) -> Fields:
    """Return calls added up: what they were added up by, and the sums."""
    fields: Fields = {}
    for field in ("day", "key", "method", "route", "status"):
        if field == "key" and "key" in by:
            fields |= {"key_id": added.key_id, "key_name": added.key_name}
        elif field in by:
            fields[field] = getattr(added, field)
    mean_ms = added.total_ms / added.calls if added.calls else 0.0
    return {**fields, "calls": added.calls, "errors": added.errors, "mean_ms": round(mean_ms, 3)}


def _serialize_usage(use: KeyUsage) -> Mapping[str, object]:
    return {"call_count": use.call_count, "last_used_at": format_optional_time(use.last_used_at), "last_used_ip": use.last_used_ip}


def _serialize_restrictions(reach: KeyRestrictions) -> Mapping[str, object]:
    return {
        "servers": None if reach.servers is None else sorted(reach.servers),
        "tools": None if reach.tools is None else list(reach.tools),
        "orgs": None if reach.orgs is None else sorted(reach.orgs),
        "projects": None if reach.projects is None else sorted(reach.projects),
        "tool_limits": dict(reach.tool_limits),
    }


def format_optional_time(moment: datetime | None) -> str | None:
    """Return a moment as it is shown."""
    return None if moment is None else format_iso(moment)
