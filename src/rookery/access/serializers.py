"""
Keys, workspaces and usage as JSON fields. The API and the command line share them.

They are written by hand and not read by the response models, because a command that reads keys does not import pydantic. With it,
`keys list` takes twice the CPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from datetime import datetime
from typing import Any

from rookery.access.models import (
    Key,
    KeyCall,
    KeyKind,
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

ADDRESS_FIELDS = frozenset({"address", "last_used_ip", "ip_list"})
"""Fields that need `audit:read`."""

_HIDDEN_KEY_FIELDS: Mapping[KeyKind, Collection[str]] = {
    "api": {"kind", "tenant_id", "restrictions", "rate_limit", "ip_restriction", "ip_list", "revoked_at"},
    "agent": {"kind", "tenant_id", "restrictions", "rate_limit_tier", "environment"},
}
_CONVERSIONS: Mapping[type, Callable[[Any], object]] = {datetime: format_iso, frozenset: sorted, tuple: list}
_CALL_COLUMNS = [field.name for field in fields(KeyCall) if field.name not in {"key_id", "workspace_id"}]
_COLUMNS_BY_GROUP: Mapping[UsageField, Collection[str]] = {
    "day": ["day"],
    "key": ["key_id", "key_name"],
    "method": ["method"],
    "route": ["route"],
    "status": ["status"],
}


def serialize_key(entry: KeyWithUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind with its usage."""
    return serialize_key_fields(entry.key, entry.usage, at, with_addresses=with_addresses)


def serialize_key_fields(key: Key, usage: KeyUsage, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a key of either kind, with its status at the time *at*. Addresses need `audit:read`."""
    values = _list_values(key, _HIDDEN_KEY_FIELDS[key.kind])
    if key.kind == "agent":
        values["permissions"] = values.pop("scopes")
    values |= {"status": key.status(at).value, **_list_values(usage), **_list_values(key.restrictions)}
    return values if with_addresses else {name: value for name, value in values.items() if name not in ADDRESS_FIELDS}


def serialize_key_with_secret(new_key: KeyWithSecret, at: datetime, *, with_addresses: bool = True) -> Fields:
    """Return the fields of a new key and its plaintext: `plaintext_key` of an API key, `key` of an agent key."""
    secret = "plaintext_key" if new_key.key.kind == "api" else "key"
    return {**serialize_key_fields(new_key.key, KeyUsage(), at, with_addresses=with_addresses), secret: new_key.plaintext.reveal()}


def serialize_workspace(workspace: Workspace) -> Fields:
    """Return a workspace's fields."""
    return {**_list_values(workspace, {"parent_id"}), "workspace_id": workspace.id}


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
    values: Fields = {name: getattr(call, name) for name in call_columns(with_addresses=with_addresses)}
    return values | {"at": format_iso(call.at), "duration_ms": round(call.duration_ms, 3)}


def call_columns(*, with_addresses: bool = True) -> list[str]:
    """Return the fields of single requests, which CSV has as columns."""
    return [name for name in _CALL_COLUMNS if with_addresses or name not in ADDRESS_FIELDS]


def serialize_usage_sum(usage_sum: UsageSum, by: Collection[UsageField]) -> Fields:
    """Return one group of usage totals: the fields it is grouped by, and the totals."""
    mean_ms = round(usage_sum.total_ms / usage_sum.calls, 3) if usage_sum.calls else 0.0
    return {name: mean_ms if name == "mean_ms" else getattr(usage_sum, name) for name in usage_columns(by)}


def usage_columns(by: Collection[UsageField]) -> list[str]:
    """Return the fields of usage totals grouped by *by*, which CSV has as columns."""
    group = [column for field, columns in _COLUMNS_BY_GROUP.items() if field in by for column in columns]
    return [*group, "calls", "errors", "mean_ms", "upstream_errors"]


def _list_values(record: Any, hidden: Collection[str] = ()) -> Fields:  # noqa: ANN401 - any dataclass
    return {field.name: _to_json(getattr(record, field.name)) for field in fields(record) if field.name not in hidden}


def _to_json(value: object) -> object:
    convert = _CONVERSIONS.get(type(value))
    return value if convert is None else convert(value)
