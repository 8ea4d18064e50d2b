"""Request and response models of usage."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.projections import Projection
from rookery.kernel.schema import Links, Meta, PageQuery, ResponseModel, split_names
from rookery.usage.errors import InvalidRange
from rookery.usage.models import DIMENSIONS, LedgerFilter, UsageDimension, UsageKind, UsageSums
from rookery.usage.ranges import DAYS_PATTERN, MONTH_PATTERN, DayRange, resolve_range

_MAX_NAME_LENGTH = 300


class UsageReportQuery(PageQuery):
    """The range, the grouping and the filters of a report. Without a range, it covers the last 30 days."""

    since: Annotated[date | None, Field(description="The first day, UTC.")] = None
    until: Annotated[date | None, Field(description="The last day, UTC; by default today.")] = None
    month: Annotated[
        str | None, Field(pattern=MONTH_PATTERN, description="A calendar month such as 2026-11, or `this` or `last`, in place of days.")
    ] = None
    last: Annotated[str | None, Field(pattern=DAYS_PATTERN, description="The last days up to today, such as 7d, in place of days.")] = None
    by: Annotated[
        list[UsageDimension],
        BeforeValidator(split_names),
        Field(min_length=1, max_length=len(DIMENSIONS), description=f"Fields to group by: {', '.join(DIMENSIONS)}."),
    ] = Field(default_factory=lambda: ["kind", "model"])
    kind: Annotated[
        list[UsageKind],
        BeforeValidator(split_names),
        Field(max_length=len(UsageKind), description=f"Only these kinds: {', '.join(UsageKind)}."),
    ] = Field(default_factory=list[UsageKind])
    key_id: Annotated[str | None, Field(max_length=_MAX_NAME_LENGTH, description="Only this key.")] = None
    agent_id: Annotated[str | None, Field(max_length=_MAX_NAME_LENGTH, description="Only this agent.")] = None
    model: Annotated[str | None, Field(max_length=_MAX_NAME_LENGTH, description="Only this model.")] = None
    tool: Annotated[str | None, Field(max_length=_MAX_NAME_LENGTH, description="Only this tool, as `server/tool`.")] = None
    workspace: Annotated[
        str | None,
        Field(
            pattern=r"^(?:all|[0-9]{1,18})$",
            description="The id of another workspace, or `all`. Needs platform:workspaces; by default the workspace of the key.",
        ),
    ] = None
    format: Annotated[
        Literal["json", "csv"] | None, Field(description="CSV contains all groups instead of one page. `Accept: text/csv` asks for it too.")
    ] = None

    def to_range(self, now: datetime) -> DayRange:
        """
        Return the days.

        Raises:
            ValidationFailed: The range contradicts itself.
        """
        try:
            return resolve_range(now, since=self.since, until=self.until, month=self.month, last=self.last)
        except InvalidRange as error:
            raise ValidationFailed({error.field: [str(error)]}) from error

    def to_filter(self, tenants: list[int] | None, days: DayRange) -> LedgerFilter:
        """Return the filter for *days* of *tenants*; None: all tenants."""
        return LedgerFilter(
            tenants=tenants,
            since=days.since,
            until=days.until,
            kinds=self.kind,
            key_id=self.key_id,
            agent_id=self.agent_id,
            model=self.model,
            tool=self.tool,
        )


class UsageTotalsResponse(Projection[UsageSums]):
    """Sums of usage in one currency."""

    hidden = frozenset({"estimated_calls", "cost_nanos", "duration_us"})

    cost: Annotated[float, Field(description="The cost. Calls of models without a price count as 0.")]
    currency: Annotated[str, Field(description="The currency of the amounts, a code of ISO 4217.", examples=["USD"])]
    reported_cost: Annotated[float, Field(description="The part of the cost that agents report for their sessions.")]
    is_estimated: Annotated[bool, Field(description="A provider did not report all tokens, so some were computed from the texts.")]
    mean_ms: Annotated[float | None, Field(description="The mean time of the tool calls; null without any.")]


class UsageGroupResponse(UsageTotalsResponse):
    """The sums of one group. Fields that the report is not grouped by are omitted."""

    day: date | None = None
    month: Annotated[str | None, Field(description="The calendar month.", examples=["2026-11"])] = None
    workspace_id: int | None = None
    workspace_name: Annotated[str | None, Field(description="The name of the workspace; null if it was deleted, or for the server.")] = None
    kind: UsageKind | None = None
    key_id: Annotated[str | None, Field(description="The key; null: the command line.")] = None
    key_name: Annotated[str | None, Field(description="The name of the key, also if it was deleted.")] = None
    agent_id: Annotated[str | None, Field(description="The agent; null if none was named.")] = None
    model: Annotated[str | None, Field(description="The model; null for tool calls, and for sessions that name none.")] = None
    tool: Annotated[str | None, Field(description="The tool as `server/tool`; null for anything but tool calls.")] = None


class UsageReportResponse(ResponseModel):
    """A page of a report of usage."""

    data: list[UsageGroupResponse]
    links: Links
    meta: Meta
    since: Annotated[date, Field(description="The first day, UTC.")]
    until: Annotated[date, Field(description="The last day, UTC.")]
    totals: Annotated[list[UsageTotalsResponse], Field(description="The sums of all pages, one for each currency.")]
