"""The operations of daily and monthly budgets, and of the usage of content."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller
from rookery.content.api.generations import CONTENT_TAG, READ_SCOPE
from rookery.content.budgets import Budgets
from rookery.content.models import BudgetStatus, ContentTenant
from rookery.content.schemas import (
    BudgetBody,
    BudgetPeriodQuery,
    BudgetResponse,
    BudgetsQuery,
    ContentUsageQuery,
    ContentUsageResponse,
    serialize_budget,
    serialize_usage,
)
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.pages import slice_anchored
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page
from rookery.usage.models import NamedUsage

MANAGE_SCOPE = "keys:write"
"""The scope that sets budgets: a key that generates content must not raise its own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetApi:
    """The operations of budgets and usage. Each handler calls one service."""

    budgets: Budgets

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, workspace, key = "/content/budgets", "/content/budgets/workspace", "/content/budgets/keys/{key_id}"
        operation = partial(Operation, tags=(CONTENT_TAG,))
        change = partial(operation, present=_present, required_scope=MANAGE_SCOPE, response_model=BudgetResponse, etag=True)
        return [
            operation(method="GET", path=base, handler=self.get_budgets, present=_present, required_scope=READ_SCOPE,
                      response_model=Page[BudgetResponse], operation_id="list_content_budgets", summary="List budgets"),
            change(method="PUT", path=workspace, handler=self.put_workspace_budget, operation_id="set_workspace_content_budget",
                   summary="Set the budgets of the workspace"),
            change(method="DELETE", path=workspace, handler=self.delete_workspace_budget, operation_id="delete_workspace_content_budget",
                   summary="Return to the default budgets of the workspace"),
            change(method="PUT", path=key, handler=self.put_key_budget, operation_id="set_key_content_budget",
                   summary="Set the budgets of a key"),
            change(method="DELETE", path=key, handler=self.delete_key_budget, operation_id="delete_key_content_budget",
                   summary="Return to the default budgets of a key"),
            operation(method="GET", path="/content/usage", handler=self.get_usage, present=_present_usage, required_scope=READ_SCOPE,
                      response_model=Page[ContentUsageResponse], operation_id="list_content_usage", summary="Show usage by day and model"),
        ]  # fmt: skip

    async def get_budgets(self, caller: Caller, query: BudgetsQuery) -> ItemPage[BudgetStatus]:
        """List the budgets of the workspace, those of the calling key, and those of all keys with a budget of their own."""
        budgets = await self.budgets.list_budgets(ContentTenant.from_caller(caller), text=query.q or "")
        return ItemPage(*slice_anchored(budgets, query.slice, lambda budget: budget.key_id or "workspace"))

    async def put_workspace_budget(self, caller: Caller, body: BudgetBody, expected: ExpectedETags) -> BudgetStatus:
        """Set budgets of the workspace, which cover the calls of all its keys together. Days and months begin at midnight in UTC."""
        return await self.budgets.set_limits(ContentTenant.from_caller(caller), None, body.to_limits(), expected=expected)

    async def delete_workspace_budget(self, caller: Caller, query: BudgetPeriodQuery, expected: ExpectedETags) -> BudgetStatus:
        """Remove the budgets that were set for the workspace, or the one of `period`. The operator's defaults apply again."""
        return await self.budgets.reset_limits(ContentTenant.from_caller(caller), None, query.to_periods(), expected=expected)

    async def put_key_budget(self, caller: Caller, key_id: str, body: BudgetBody, expected: ExpectedETags) -> BudgetStatus:
        """Set budgets of a key. A call must be covered by each budget of its key and of the workspace."""
        return await self.budgets.set_limits(ContentTenant.from_caller(caller), key_id, body.to_limits(), expected=expected)

    async def delete_key_budget(self, caller: Caller, key_id: str, query: BudgetPeriodQuery, expected: ExpectedETags) -> BudgetStatus:
        """Remove the budgets that were set for a key, or the one of `period`. The operator's defaults apply again."""
        return await self.budgets.reset_limits(ContentTenant.from_caller(caller), key_id, query.to_periods(), expected=expected)

    async def get_usage(self, caller: Caller, query: ContentUsageQuery) -> ItemPage[NamedUsage]:
        """List requests, tokens and cost by day, key and model, newest day first. Days are in UTC."""
        return ItemPage(*await self.budgets.list_usage(query.to_filter(ContentTenant.from_caller(caller)), page=query.slice))


def _present(_: Caller, status: BudgetStatus) -> Output:
    return Output(body=serialize_budget(status), version=status.version)


def _present_usage(_: Caller, record: NamedUsage) -> ContentUsageResponse:
    return serialize_usage(record)
