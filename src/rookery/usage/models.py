"""The types of usage and its cost. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Literal, get_args

from pydantic import Field

SERVER_TENANT = 0
"""The tenant of usage that no workspace causes, such as probes of an embedding service. Only the operator sees it."""


class UsageKind(StrEnum):
    """
    The cause of usage.

    `session` is what agents report for their sessions. Everything else is counted by Rookery.
    """

    GENERATION = "generation"
    JUDGE = "judge"
    EMBEDDING = "embedding"
    SESSION = "session"
    TOOL_CALL = "tool_call"


UsageDimension = Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]
"""The fields by which usage can be grouped."""

DIMENSIONS: tuple[UsageDimension, ...] = get_args(UsageDimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSums:
    """
    Sums of usage.

    Attributes:
        failed, cancelled: The calls that did not succeed.
        estimated_calls: Calls whose tokens were, in whole or in part, not reported by the provider, but computed from the texts.
        cost_nanos: The cost in billionths of the currency.
        duration_us: The time of tool calls in microseconds.
    """

    calls: Annotated[
        int, Field(description="Generations, judge calls, requests to an embedding service, reports of sessions, tool calls.")
    ] = 0
    failed: int = 0
    cancelled: int = 0
    input_tokens: int = 0
    cached_input_tokens: Annotated[
        int, Field(description="Input tokens that came from the cache of the provider, part of input_tokens.")
    ] = 0
    output_tokens: int = 0
    reasoning_tokens: Annotated[int, Field(description="Output tokens that are reasoning, part of output_tokens.")] = 0
    estimated_calls: int = 0
    unpriced_calls: Annotated[int, Field(description="Calls with tokens of a model without a price.")] = 0
    cost_nanos: int = 0
    duration_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEntry(UsageSums):
    """
    Usage to add to the ledger. A key, an agent, a model or a tool that does not apply is empty.

    Attributes:
        workspace_id: The tenant: a workspace, its sandbox, or `SERVER_TENANT`.
        day: The day in UTC, in ISO format.
        tool: The tool as `server/tool`.
    """

    workspace_id: int
    day: str
    kind: UsageKind
    key_id: str = ""
    agent_id: str = ""
    model: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerFilter:
    """
    A filter of usage; None: no filter. Days are in UTC; both ends are inclusive. Empty texts are entries without the field.

    Attributes:
        tenants: The tenants; None: all, for the operator.
        kinds: The kinds; empty: all.
        tools: The tools that a key may see, as `server/tool`; None: all. Entries without a tool always match.
    """

    tenants: Sequence[int] | None
    since: date
    until: date
    kinds: Sequence[UsageKind] = ()
    key_id: str | None = None
    agent_id: str | None = None
    model: str | None = None
    tool: str | None = None
    tools: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGroup:
    """
    The sums of one group in one currency. A field by which the usage is not grouped is empty.

    Attributes:
        tenant: A tenant of the group, to which its key belongs.
        reported_nanos: The part of the cost that agents report for their sessions.
    """

    currency: str
    sums: UsageSums
    reported_nanos: int = 0
    tenant: int = SERVER_TENANT
    day: str = ""
    month: str = ""
    kind: str = ""
    key_id: str = ""
    agent_id: str = ""
    model: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class NamedUsage:
    """A group with the names of its key and workspace; None: deleted, or not grouped by."""

    group: UsageGroup
    key_name: str | None
    workspace_name: str | None


def day_of(moment: datetime) -> str:
    """Return the day of *moment* in UTC, such as 2026-11-23."""
    return moment.astimezone(UTC).date().isoformat()
