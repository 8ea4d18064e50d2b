"""Usage as JSON fields. The API and the command line share them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rookery.kernel.money import to_amount, to_exact_amount
from rookery.usage.models import DIMENSIONS, NamedUsage, UsageDimension, UsageGroup

Fields = Mapping[str, object]

_FIELDS: Mapping[UsageDimension, tuple[str, ...]] = {
    "day": ("day",),
    "month": ("month",),
    "workspace": ("workspace_id", "workspace_name"),
    "kind": ("kind",),
    "key": ("key_id", "key_name"),
    "agent": ("agent_id",),
    "model": ("model",),
    "tool": ("tool",),
}
_SUMS = (
    *("calls", "failed", "cancelled", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens"),
    *("cost", "currency", "reported_cost", "is_estimated", "unpriced_calls", "mean_ms"),
)


def list_fields(by: Collection[UsageDimension]) -> list[str]:
    """Return the names of the fields of a group."""
    return [*(name for dimension in DIMENSIONS if dimension in by for name in _FIELDS[dimension]), *_SUMS]


def serialize_group(usage: NamedUsage, by: Collection[UsageDimension]) -> Fields:
    """Return a group: the fields that it is grouped by, and its sums."""
    group = usage.group
    values: dict[str, object] = {
        "day": group.day,
        "month": group.month,
        "workspace_id": group.tenant,
        "workspace_name": usage.workspace_name,
        "kind": group.kind,
        "key_id": group.key_id or None,
        "key_name": usage.key_name,
        "agent_id": group.agent_id or None,
        "model": group.model or None,
        "tool": group.tool or None,
        **serialize_sums(group),
    }
    return {name: values[name] for name in list_fields(by)}


def to_csv_row(usage: NamedUsage, by: Collection[UsageDimension]) -> Fields:
    """Return a group as a row of CSV, with amounts as exact decimal numbers."""
    group = usage.group
    amounts = {"cost": to_exact_amount(group.sums.cost_nanos), "reported_cost": to_exact_amount(group.reported_nanos)}
    return {**serialize_group(usage, by), **amounts}


def serialize_sums(group: UsageGroup) -> Fields:
    sums = group.sums
    computed = {
        "cost": to_amount(sums.cost_nanos),
        "currency": group.currency,
        "reported_cost": to_amount(group.reported_nanos),
        "is_estimated": sums.estimated_calls > 0,
        "mean_ms": round(sums.duration_us / 1_000 / sums.calls, 1) if sums.duration_us and sums.calls else None,
    }
    return {name: computed[name] if name in computed else getattr(sums, name) for name in _SUMS}
