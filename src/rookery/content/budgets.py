"""
Daily budgets of workspaces and keys.

A call reserves its highest possible cost before it is sent, and settles what it used after it. The reservation and its check are one
conditional update in the record store, so that calls at the same time, also of several processes, cannot pass a budget together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NoReturn

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.workspaces import require_workspace
from rookery.content.chat import TokenUsage
from rookery.content.errors import BudgetExhausted, ModelNotPriced
from rookery.content.models import (
    WORKSPACE_BUDGET,
    BudgetOverride,
    BudgetStatus,
    CallReservation,
    ContentTenant,
    ContentUsageFilter,
    DailySpending,
    Generation,
    GenerationStatus,
    UsageRecord,
    UsageView,
    day_of,
    end_of_day,
)
from rookery.content.ports import FindKeyNames
from rookery.content.prices import PriceList, compute_max_cost, to_amount
from rookery.content.store import budgets as store
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match

_MAX_LISTED_KEYS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultBudgets:
    """The daily budgets of the settings, in billionths; None: no limit."""

    workspace_nanos: int | None
    key_nanos: int | None

    def for_key(self, key_id: str) -> int | None:
        """Return the default of a key, or of the workspace. The command line has no key and so no budget of one."""
        return self.workspace_nanos if key_id == WORKSPACE_BUDGET else self.key_nanos


class Budgets:
    """Reserves and settles the cost of calls, and manages the limits."""

    def __init__(
        self, db: Database, audit: AuditLog, prices: PriceList, defaults: DefaultBudgets, find_key_names: FindKeyNames, *, clock: Clock
    ) -> None:
        self._db = db
        self._audit = audit
        self._prices = prices
        self._defaults = defaults
        self._find_key_names = find_key_names
        self._clock = clock

    @property
    def prices(self) -> PriceList:
        """The prices of the models."""
        return self._prices

    def reserve(self, tx: Tx, generation: Generation, now: datetime) -> Generation:
        """
        Reserve the highest possible cost of a call; return the generation with its reservation.

        Raises:
            BudgetExhausted: Less is left of the key's or of the workspace's budget. Nothing is reserved.
            ModelNotPriced: A budget applies, and the model has no price.
        """
        amount, limits = self._compute_amount(tx, generation)
        if amount == 0:
            return generation
        day = day_of(now)
        for key_id, limit in limits.items():
            if not store.reserve(tx, generation.workspace_id, key_id, day, amount, limit=limit):
                self._raise_exhausted(tx, generation, key_id, (amount, limit or 0), now)
        return replace(generation, reserved_nanos=amount, reserved_on=day)

    def require_left(self, tx: Tx, generation: Generation, now: datetime) -> None:
        """Raise as `reserve` does if a call would not be covered now, and reserve nothing."""
        amount, limits = self._compute_amount(tx, generation)
        days = store.find_days(tx, generation.workspace_id, day_of(now), list(limits))
        for key_id, limit in limits.items():
            used = days.get(key_id, DailySpending(workspace_id=generation.workspace_id, key_id=key_id, day=day_of(now)))
            if limit is not None and amount and used.spent_nanos + used.reserved_nanos + amount > limit:
                self._raise_exhausted(tx, generation, key_id, (amount, limit), now)

    def require_left_for_any(self, tx: Tx, generations: Sequence[Generation], now: datetime) -> None:
        """
        Raise an error if the budget would not cover even one of *generations* now, and reserve nothing.

        Each of them reserves its own amount when it runs, so that a large batch fails only for the part that is not covered.

        Raises:
            BudgetExhausted, ModelNotPriced: As `reserve`.
        """
        first_error: RookeryError | None = None
        for generation in generations:
            try:
                self.require_left(tx, generation, now)
            except (BudgetExhausted, ModelNotPriced) as error:
                first_error = first_error or error
            else:
                return
        if first_error is not None:
            raise first_error

    def settle(self, tx: Tx, generation: Generation, *, spent_nanos: int, now: datetime) -> None:
        """Release the reservation of a generation, if it has one, and add what its call cost."""
        released, day = generation.reserved_nanos, generation.reserved_on or day_of(now)
        if released or spent_nanos:
            for key_id in _list_payers(generation.key_id):
                if not released:  # the day may have no row yet
                    store.reserve(tx, generation.workspace_id, key_id, day, 0, limit=None)
                store.settle(tx, generation.workspace_id, key_id, day, released=released, spent=spent_nanos)

    def release(self, tx: Tx, reservation: CallReservation) -> None:
        """Release the reservation of a call of which nothing is known."""
        if reservation.amount_nanos:
            for key_id in _list_payers(reservation.key_id):
                store.settle(tx, reservation.workspace_id, key_id, reservation.day, released=reservation.amount_nanos, spent=0)

    async def list_budgets(self, tenant: ContentTenant, *, text: str = "") -> Sequence[BudgetStatus]:
        """
        Return the budget of the workspace, that of the tenant's key, and those of all keys with an override.

        Args:
            text: If not empty, only the budgets of keys with this part in their name, in upper or lower case.
        """
        now = self._clock()

        def read(tx: Tx) -> Sequence[BudgetStatus]:
            overrides = {budget.key_id: budget for budget in store.list_budgets(tx, tenant.workspace_id)[:_MAX_LISTED_KEYS]}
            keys = list(dict.fromkeys((*_list_payers(tenant.key_id)[::-1], *overrides)))
            names = self._find_key_names(tx, tenant.workspace_id, keys)
            if text:
                keys = [key_id for key_id in keys if text.lower() in names.get(key_id, "").lower()]
            days = store.find_days(tx, tenant.workspace_id, day_of(now), keys) if keys else {}
            return [self._to_status(key_id, names.get(key_id), overrides.get(key_id), days.get(key_id), now) for key_id in keys]

        return await self._db.read(read)

    async def set_limit(
        self, tenant: ContentTenant, key_id: str | None, daily_nanos: int | None, *, expected: ExpectedETags = None
    ) -> BudgetStatus:
        """
        Set the daily budget of a key, or of the workspace for *key_id* None.

        Args:
            daily_nanos: None for no limit.

        Raises:
            NotFound: The workspace has no such key.
            PreconditionFailed: The budget has another version than *expected*.
        """
        now = self._clock()
        budget = BudgetOverride(
            workspace_id=tenant.workspace_id, key_id=key_id or WORKSPACE_BUDGET, daily_nanos=daily_nanos, updated_at=now
        )

        def work(tx: Tx) -> BudgetStatus:
            require_workspace(tx, tenant.public_workspace_id)
            name = self._require_key(tx, tenant, key_id)
            before = self._load_status(tx, tenant, budget.key_id, now)
            require_match("budget", before.version, expected)
            store.set_budget(tx, budget)
            after = self._load_status(tx, tenant, budget.key_id, now)
            self._record_audit(tx, tenant, name, before, after)
            return after

        return await self._db.write(work)

    async def reset_limit(self, tenant: ContentTenant, key_id: str | None, *, expected: ExpectedETags = None) -> BudgetStatus:
        """
        Remove the override of a key, or of the workspace, so that the default of the settings applies.

        Raises:
            NotFound: The workspace has no such key.
            PreconditionFailed: The budget has another version than *expected*.
        """
        now = self._clock()

        def work(tx: Tx) -> BudgetStatus:
            require_workspace(tx, tenant.public_workspace_id)
            name = self._require_key(tx, tenant, key_id)
            before = self._load_status(tx, tenant, key_id or WORKSPACE_BUDGET, now)
            require_match("budget", before.version, expected)
            store.delete_budget(tx, tenant.workspace_id, key_id or WORKSPACE_BUDGET)
            after = self._load_status(tx, tenant, key_id or WORKSPACE_BUDGET, now)
            self._record_audit(tx, tenant, name, before, after)
            return after

        return await self._db.write(work)

    async def list_usage(self, tenant: ContentTenant, filters: ContentUsageFilter, *, page: PageSlice) -> ListPage[UsageView]:
        """Return a page of usage by day, key and model, newest day first, and the total."""

        def read(tx: Tx) -> ListPage[UsageView]:
            usage_page = store.list_usage(tx, tenant.workspace_id, filters, page=page)
            names = self._find_key_names(tx, tenant.workspace_id, sorted({record.key_id for record in usage_page.items}))
            return usage_page.with_items([UsageView(record, names.get(record.key_id)) for record in usage_page.items])

        return await self._db.read_from_replica(read)

    def _compute_amount(self, tx: Tx, generation: Generation) -> tuple[int, Mapping[str, int | None]]:
        """Return the amount to reserve, and the limits of the key and of the workspace."""
        if generation.is_canned:
            return 0, {}
        keys = _list_payers(generation.key_id)
        overrides = store.find_budgets(tx, generation.workspace_id, keys)
        limits = {key_id: overrides[key_id].daily_nanos if key_id in overrides else self._defaults.for_key(key_id) for key_id in keys}
        price = self._prices.find(generation.model)
        if price is None:
            if any(limit is not None for limit in limits.values()):
                raise ModelNotPriced(generation.model)
            return 0, limits
        has_schema = generation.response_schema is not None
        return compute_max_cost(price, generation.messages, max_tokens=generation.max_tokens, has_schema=has_schema), limits

    @staticmethod
    def _raise_exhausted(tx: Tx, generation: Generation, key_id: str, amounts: tuple[int, int], now: datetime) -> NoReturn:
        """Raise BudgetExhausted; *amounts* are what the call needs and the limit."""
        amount, limit = amounts
        used = store.find_days(tx, generation.workspace_id, day_of(now), [key_id]).get(key_id)
        left = limit if used is None else max(0, limit - used.spent_nanos - used.reserved_nanos)
        resets_at = end_of_day(now)
        raise BudgetExhausted(
            budget="workspace" if key_id == WORKSPACE_BUDGET else "key",
            daily=to_amount(limit),
            left=to_amount(left),
            needed=to_amount(amount),
            resets_at=format_iso(resets_at),
            retry_after_s=int((resets_at - now).total_seconds()) + 1,
        )

    def _require_key(self, tx: Tx, tenant: ContentTenant, key_id: str | None) -> str:
        """Return the name of the key, or "workspace"."""
        if key_id is None:
            return "workspace"
        name = self._find_key_names(tx, tenant.workspace_id, [key_id]).get(key_id)
        if name is None:
            raise NotFound("key", key_id)
        return name

    def _load_status(self, tx: Tx, tenant: ContentTenant, key_id: str, now: datetime) -> BudgetStatus:
        override = store.find_budgets(tx, tenant.workspace_id, [key_id]).get(key_id)
        name = self._find_key_names(tx, tenant.workspace_id, [key_id]).get(key_id)
        day = store.find_days(tx, tenant.workspace_id, day_of(now), [key_id]).get(key_id)
        return self._to_status(key_id, name, override, day, now)

    def _to_status(
        self, key_id: str, name: str | None, override: BudgetOverride | None, day: DailySpending | None, now: datetime
    ) -> BudgetStatus:
        return BudgetStatus(
            key_id=None if key_id == WORKSPACE_BUDGET else key_id,
            key_name=name,
            source="setting" if override is None else "override",
            daily_nanos=self._defaults.for_key(key_id) if override is None else override.daily_nanos,
            spent_nanos=0 if day is None else day.spent_nanos,
            reserved_nanos=0 if day is None else day.reserved_nanos,
            resets_at=end_of_day(now),
        )

    def _record_audit(self, tx: Tx, tenant: ContentTenant, name: str, before: BudgetStatus, after: BudgetStatus) -> None:
        subject = AuditSubject(kind="content_budget", id=after.key_id or "workspace", name=name, environment=tenant.environment)
        self._audit.record(
            tx,
            tenant.by,
            tenant.public_workspace_id,
            "content_budget.changed",
            subject,
            before=_to_audit_fields(before),
            after=_to_audit_fields(after),
        )


def make_usage_record(generation: Generation, usage: TokenUsage, *, cost_nanos: int, has_ended: bool, now: datetime) -> UsageRecord:
    """
    Return the usage of a call.

    Args:
        has_ended: The generation became final, so it counts as one request with its status.
    """
    return UsageRecord(
        workspace_id=generation.workspace_id,
        day=day_of(now),
        key_id=generation.key_id,
        model=generation.model,
        requests=int(has_ended),
        succeeded=int(has_ended and generation.status is GenerationStatus.SUCCEEDED),
        failed=int(has_ended and generation.status is GenerationStatus.FAILED),
        cancelled=int(has_ended and generation.status is GenerationStatus.CANCELLED),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cached_tokens=usage.cached_tokens,
        cost_nanos=cost_nanos,
    )


def _list_payers(key_id: str) -> tuple[str, ...]:
    """Return the keys of the budgets that a call counts against, in the order in which their rows are locked."""
    return (WORKSPACE_BUDGET,) if key_id == WORKSPACE_BUDGET else (key_id, WORKSPACE_BUDGET)


def _to_audit_fields(status: BudgetStatus) -> dict[str, object]:
    return {"source": status.source, "daily": None if status.daily_nanos is None else to_amount(status.daily_nanos)}
