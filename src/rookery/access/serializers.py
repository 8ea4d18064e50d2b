"""
Keys, workspaces and usage as JSON fields. The API and the command line share them.

They are written by hand and not read by the response models, because a command that reads keys does not import pydantic. With it,
`keys list` takes twice the CPU time.
"""

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
"""Fields that need `audit:read`."""


def serialize_api_key(key: Key, usage: KeyUsage, at: datetime) -> Fields:
    """Return an API key's fields, with its status at the time *at*."""
    return {
        "id": key.id,
        "name": key.name,
        "workspace_id": key.workspace_id,
        "agent_id": key.agent_id,
        "scopes": list(key.scopes),
        "rate_limit_tier": key.rate_limit_tier,
        "environment": key.environment,
        "expires_at": format_optional_time(key.expires_at),
        "created_at": format_iso(key.created_at),
        "suspended_at": format_optional_time(key.suspended_at),
        "status": key.status(at).value,
        "hint": key.hint,
        **_serialize_usage(usage),
        "delete_after": format_optional_time(key.delete_after),
        **_serialize_restrictions(key.restrictions),
    }


def serialize_agent_key(key: Key, usage: KeyUsage, at: datetime) -> Fields:
    """Return an agent key's fields, with its status at the time *at*."""
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
        **_serialize_usage(usage),
        **_serialize_restrictions(key.restrictions),
    }


def serialize_key(entry: KeyWithUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind with its usage."""
    return serialize_key_fields(entry.key, entry.usage, at, with_addresses=with_addresses)


def serialize_key_fields(key: Key, usage: KeyUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind. Addresses need `audit:read`."""
    fields = serialize_api_key(key, usage, at) if key.kind == "api" else serialize_agent_key(key, usage, at)
    return fields if with_addresses else {name: value for name, value in fields.items() if name not in ADDRESS_FIELDS}


def serialize_key_with_secret(new_key: KeyWithSecret, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a new key and its plaintext: `plaintext_key` of an API key, `key` of an agent key."""
    secret = "plaintext_key" if new_key.key.kind == "api" else "key"
    return {**serialize_key_fields(new_key.key, KeyUsage(), at, with_addresses=with_addresses), secret: new_key.plaintext.reveal()}


def serialize_workspace(workspace: Workspace) -> Fields:
    """Return a workspace's fields."""
    return {"id": workspace.id, "workspace_id": workspace.id, "name": workspace.name, "created_at": format_iso(workspace.created_at)}


def serialize_deletion(deletion: WorkspaceDeletion) -> Fields:
    """Return the result of deleting a workspace, or of a dry run."""
    return {
        **serialize_workspace(deletion.workspace),
        "keys": deletion.key_count,
        "calls": deletion.call_count,
        "rows": deletion.row_count,
        "deleted": deletion.row_count is not None,
    }


def serialize_call(call: KeyCall, *, with_addresses: bool = True) -> Fields:
    fields: Fields = {
        "at": format_iso(call.at),
        "method": call.method,
        "route": call.route,
        "status": call.status,
        "duration_ms": round(call.duration_ms, 3),
        "is_upstream_error": call.is_upstream_error,
        "address": call.address,
        "request_id": call.request_id,
    }
    return fields if with_addresses else {name: value for name, value in fields.items() if name != "address"}


def serialize_usage_sum(usage_sum: UsageSum, by: Collection[UsageField]) -> Fields:
    """Return one group of usage totals: the fields it is grouped by, and the totals."""
    fields: Fields = {}
    for field in ("day", "key", "method", "route", "status"):
        if field == "key" and "key" in by:
            fields |= {"key_id": usage_sum.key_id, "key_name": usage_sum.key_name}
        elif field in by:
            fields[field] = getattr(usage_sum, field)
    mean_ms = usage_sum.total_ms / usage_sum.calls if usage_sum.calls else 0.0
    return {
        **fields,
        "calls": usage_sum.calls,
        "errors": usage_sum.errors,
        "upstream_errors": usage_sum.upstream_errors,
        "mean_ms": round(mean_ms, 3),
    }


def _serialize_usage(usage: KeyUsage) -> Mapping[str, object]:
    return {"call_count": usage.call_count, "last_used_at": format_optional_time(usage.last_used_at), "last_used_ip": usage.last_used_ip}


def _serialize_restrictions(restrictions: KeyRestrictions) -> Mapping[str, object]:
    return {
        "servers": None if restrictions.servers is None else sorted(restrictions.servers),
        "tools": None if restrictions.tools is None else list(restrictions.tools),
        "orgs": None if restrictions.orgs is None else sorted(restrictions.orgs),
        "projects": None if restrictions.projects is None else sorted(restrictions.projects),
        "tool_limits": dict(restrictions.tool_limits),
    }


def format_optional_time(moment: datetime | None) -> str | None:
    """Return a time in ISO 8601, or None."""
    return None if moment is None else format_iso(moment)
