"""
Daily and monthly budgets of workspaces and keys.

A call reserves its highest possible cost before it is sent, and settles what it used after it. The reservation and its check are one
conditional update in the record store, so that calls at the same time, also of several processes, cannot pass a budget together. A call
counts against each budget of its payers: of its key and of its workspace, for the day and for the month.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import NamedTuple

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.workspaces import require_workspace
from rookery.content.chat import TokenUsage
from rookery.content.errors import BudgetExhausted, ModelNotPriced
from rookery.content.models import (
    BUDGET_PERIODS,
    WORKSPACE_BUDGET,
    BudgetOverride,
    BudgetPeriod,
    BudgetStatus,
    CallReservation,
    ContentTenant,
    Generation,
    GenerationStatus,
    PeriodBudget,
    Spending,
    end_of_span,
    span_of,
)
from rookery.content.ports import FindKeyNames
from rookery.content.prices import PriceList, add_overrun, compute_cost, estimate_max_usage, extend_overrun
from rookery.content.store import budgets as store
from rookery.content.store import overruns
from rookery.content.store.tables import BUDGETS, OVERRUNS
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, RookeryError
from rookery.kernel.money import to_amount
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.usage.build import UsageServices
from rookery.usage.models import LedgerFilter, NamedUsage, UsageEntry, UsageKind, day_of

_MAX_LISTED_OVERRIDES = 2_000
_OVERRUN_MEMORY = timedelta(days=7)
"""Time for which reservations of a model are higher after a call that cost more than its estimate."""
_CONTENT_KINDS = (UsageKind.GENERATION, UsageKind.JUDGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultBudgets:
    """The budgets of the settings in billionths, by period; None or missing: no limit."""

    workspace_nanos: Mapping[BudgetPeriod, int | None] = field(default_factory=dict[BudgetPeriod, int | None])
    key_nanos: Mapping[BudgetPeriod, int | None] = field(default_factory=dict[BudgetPeriod, int | None])

    def get(self, holder: str, period: BudgetPeriod) -> int | None:
        """Return the default of a key, or of the workspace. The command line has no key and so no budget of one."""
        return (self.workspace_nanos if holder == WORKSPACE_BUDGET else self.key_nanos).get(period)


class _Limit(NamedTuple):
    """A budget that a call counts against; *limit_nanos* None: no limit, but the spending is counted."""

    holder: str
    period: BudgetPeriod
    limit_nanos: int | None


class Budgets:
    """Reserves and settles the cost of calls, and manages the limits."""

    def __init__(
        self,
        db: Database,
        audit: AuditLog,
        prices: PriceList,
        defaults: DefaultBudgets,
        find_key_names: FindKeyNames,
        *,
        usage: UsageServices,
        clock: Clock,
    ) -> None:
        self._db = db
        self._audit = audit
        self._prices = prices
        self._defaults = defaults
        self._find_key_names = find_key_names
        self._usage = usage
        self._clock = clock

    @property
    def prices(self) -> PriceList:
        return self._prices

    @property
    def currency(self) -> str:
        """The currency of all amounts."""
        return self._usage.ledger.currency

    def reserve(self, tx: Tx, generation: Generation, now: datetime) -> Generation:
        """
        Reserve the highest possible cost of a call; return the generation with its reservation.

        Raises:
            BudgetExhausted: Less is left of one of the budgets. The transaction must not be committed.
            ModelNotPriced: A budget applies, and the model has no price.
        """
        amount, limits = self._compute_amount(tx, generation, now)
        if amount == 0:
            return generation
        day = day_of(now)
        for number, (holder, period, limit) in enumerate(limits):
            if not store.reserve(tx, generation.workspace_id, holder, span_of(period, day), amount, limit=limit):
                self._require_covered(tx, generation, limits[number:], amount, now, is_first_exhausted=True)
        return replace(generation, reserved_nanos=amount, reserved_on=day)

    def require_left(self, tx: Tx, generation: Generation, now: datetime) -> None:
        """Raise as `reserve` does if a call would not be covered now, and reserve nothing."""
        amount, limits = self._compute_amount(tx, generation, now)
        if amount:
            self._require_covered(tx, generation, limits, amount, now)

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

    def settle(self, tx: Tx, generation: Generation, *, spent_nanos: int, now: datetime, usage: TokenUsage | None = None) -> None:
        """
        Release the reservation of a generation, if it has one, and add what its call cost.

        Args:
            usage: What the provider billed. If it is more than was estimated, later calls of the model reserve more.
        """
        released, day = generation.reserved_nanos, generation.reserved_on or day_of(now)
        if released or spent_nanos:
            for holder in _list_payers(generation.key_id):
                for period in BUDGET_PERIODS:
                    span = span_of(period, day)
                    if not released:  # the span may have no row yet
                        store.reserve(tx, generation.workspace_id, holder, span, 0, limit=None)
                    store.settle(tx, generation.workspace_id, holder, span, released=released, spent=spent_nanos)

        if usage is not None and spent_nanos:
            self._learn(tx, generation, usage, spent_nanos, now)

    def _learn(self, tx: Tx, generation: Generation, usage: TokenUsage, spent_nanos: int, now: datetime) -> None:
        """If a call cost more than its estimate, store the excess that it would have had with the longest answer."""
        price, estimated = self._prices.find(generation.model), _estimate_usage(generation)
        if price is None or usage.is_estimated or spent_nanos <= (estimate_nanos := compute_cost(price, estimated)):
            return
        longest = replace(usage, output_tokens=max(usage.output_tokens, estimated.output_tokens))
        earlier = overruns.find(tx, generation.workspace_id, generation.model, since=now - _OVERRUN_MEMORY)
        overrun = extend_overrun(
            earlier,
            workspace_id=generation.workspace_id,
            model=generation.model,
            estimate_nanos=estimate_nanos,
            cost_nanos=compute_cost(price, longest),
            now=now,
        )
        OVERRUNS.save(tx, overrun)

    def release(self, tx: Tx, reservation: CallReservation) -> None:
        """Release the reservation of a call of which nothing is known."""
        if reservation.amount_nanos:
            for holder in _list_payers(reservation.key_id):
                for period in BUDGET_PERIODS:
                    span = span_of(period, reservation.day)
                    store.settle(tx, reservation.workspace_id, holder, span, released=reservation.amount_nanos, spent=0)

    def add_usage(
        self,
        tx: Tx,
        generation: Generation,
        usage: TokenUsage,
        *,
        kind: UsageKind = UsageKind.GENERATION,
        cost_nanos: int,
        has_ended: bool,
        now: datetime,
    ) -> None:
        """
        Add a call to the ledger.

        Args:
            has_ended: The generation became final, so it counts as one request with its status.
        """
        has_tokens = usage.input_tokens + usage.output_tokens > 0
        is_unpriced = not generation.is_canned and has_tokens and self._prices.find(generation.model) is None
        entry = UsageEntry(
            workspace_id=generation.workspace_id,
            day=day_of(now),
            kind=kind,
            key_id=generation.key_id,
            model=generation.model,
            calls=int(has_ended),
            failed=int(has_ended and generation.status is GenerationStatus.FAILED),
            cancelled=int(has_ended and generation.status is GenerationStatus.CANCELLED),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            cached_input_tokens=usage.cached_tokens,
            estimated_calls=int(usage.is_estimated),
            unpriced_calls=int(is_unpriced),
            cost_nanos=cost_nanos,
        )
        self._usage.ledger.add(tx, entry)

    async def list_budgets(self, tenant: ContentTenant, *, text: str = "") -> Sequence[BudgetStatus]:
        """
        Return the budgets of the workspace, those of the tenant's key, and those of all keys with an override.

        Args:
            text: If not empty, only the budgets of keys with this part in their name, in upper or lower case.
        """
        now = self._clock()

        def read(tx: Tx) -> Sequence[BudgetStatus]:
            overrides = BUDGETS.find_all(tx, tenant.workspace_id)[:_MAX_LISTED_OVERRIDES]
            holders = list(dict.fromkeys((*_list_payers(tenant.key_id)[::-1], *(budget.holder for budget in overrides))))
            if text:
                names = self._find_key_names(tx, tenant.workspace_id, holders)
                holders = [holder for holder in holders if text.lower() in names.get(holder, "").lower()]
            return self._load_statuses(tx, tenant, holders, now) if holders else []

        return await self._db.read(read)

    async def set_limits(
        self, tenant: ContentTenant, key_id: str | None, limits: Mapping[BudgetPeriod, int | None], *, expected: ExpectedETags = None
    ) -> BudgetStatus:
        """
        Set budgets of a key, or of the workspace for *key_id* None. Periods that *limits* lacks stay as they are.

        Args:
            limits: The amounts in billionths; None for no limit.

        Raises:
            NotFound: The workspace has no such key.
            PreconditionFailed: The budgets have another version than *expected*.
        """
        now, holder = self._clock(), key_id or WORKSPACE_BUDGET

        def change(tx: Tx) -> None:
            for period, limit in limits.items():
                budget = BudgetOverride(workspace_id=tenant.workspace_id, holder=holder, period=period, limit_nanos=limit, updated_at=now)
                BUDGETS.save(tx, budget)

        return await self._change(tenant, key_id, change, now, expected)

    async def reset_limits(
        self, tenant: ContentTenant, key_id: str | None, periods: Sequence[BudgetPeriod] = BUDGET_PERIODS, *, expected: ExpectedETags = None
    ) -> BudgetStatus:
        """
        Remove overrides of a key, or of the workspace, so that the defaults of the settings apply.

        Raises:
            NotFound: The workspace has no such key.
            PreconditionFailed: The budgets have another version than *expected*.
        """

        def change(tx: Tx) -> None:
            for period in periods:
                BUDGETS.delete(tx, tenant.workspace_id, holder=key_id or WORKSPACE_BUDGET, period=period)

        return await self._change(tenant, key_id, change, self._clock(), expected)

    async def list_usage(self, filters: LedgerFilter, *, page: PageSlice) -> ListPage[NamedUsage]:
        """Return a page of the usage of generations and judge calls by day, key and model, newest day first, and the total."""
        content_filter = replace(filters, kinds=_CONTENT_KINDS)
        return (await self._usage.reports.load(content_filter, ("day", "key", "model"), page=page)).groups

    async def _change(
        self, tenant: ContentTenant, key_id: str | None, change: Callable[[Tx], None], now: datetime, expected: ExpectedETags
    ) -> BudgetStatus:
        """Run *change* of the budgets of a key or of the workspace, record it in the audit log, and return the budgets."""
        holder = key_id or WORKSPACE_BUDGET

        def work(tx: Tx) -> BudgetStatus:
            require_workspace(tx, tenant.public_workspace_id)
            name = self._require_key(tx, tenant, key_id)
            (before,) = self._load_statuses(tx, tenant, [holder], now)
            require_match("budget", before.version, expected)
            change(tx)
            (after,) = self._load_statuses(tx, tenant, [holder], now)
            self._record_audit(tx, tenant, name, before, after)
            return after

        return await self._db.write(work)

    def _compute_amount(self, tx: Tx, generation: Generation, now: datetime) -> tuple[int, Sequence[_Limit]]:
        """Return the amount to reserve, and the budgets that the call counts against, in the order in which their rows are locked."""
        if generation.is_canned:
            return 0, ()
        holders = _list_payers(generation.key_id)
        overrides = store.find_budgets(tx, generation.workspace_id, holders)
        limits = [_Limit(holder, period, self._get_limit(overrides, holder, period)) for holder in holders for period in BUDGET_PERIODS]
        price = self._prices.find(generation.model)
        if price is None:
            if any(limit.limit_nanos is not None for limit in limits):
                raise ModelNotPriced(generation.model)
            return 0, limits
        overrun = overruns.find(tx, generation.workspace_id, generation.model, since=now - _OVERRUN_MEMORY)
        return add_overrun(compute_cost(price, _estimate_usage(generation)), overrun), limits

    def _get_limit(self, overrides: Mapping[tuple[str, BudgetPeriod], BudgetOverride], holder: str, period: BudgetPeriod) -> int | None:
        override = overrides.get((holder, period))
        return self._defaults.get(holder, period) if override is None else override.limit_nanos

    def _require_covered(
        self, tx: Tx, generation: Generation, limits: Sequence[_Limit], amount: int, now: datetime, *, is_first_exhausted: bool = False
    ) -> None:
        """
        Raise BudgetExhausted if one of *limits* does not cover *amount*. Of several, it names the one that starts again last.

        Args:
            is_first_exhausted: The first of *limits* did not cover it a moment ago.
        """
        day = day_of(now)
        spans = [span_of(period, day) for period in BUDGET_PERIODS]
        rows = store.find_spending(tx, generation.workspace_id, spans, {limit.holder for limit in limits})
        errors = list[tuple[datetime, BudgetExhausted]]()
        for number, limit in enumerate(limits):
            if limit.limit_nanos is None:
                continue
            row = rows.get((limit.holder, span_of(limit.period, day)))
            left = limit.limit_nanos - (0 if row is None else row.total_nanos)
            if amount > left or (number == 0 and is_first_exhausted):
                resets_at = end_of_span(limit.period, now)
                error = BudgetExhausted(
                    budget="workspace" if limit.holder == WORKSPACE_BUDGET else "key",
                    period=limit.period,
                    limit=to_amount(limit.limit_nanos),
                    left=to_amount(max(0, left)),
                    needed=to_amount(amount),
                    currency=self.currency,
                    resets_at=format_iso(resets_at),
                    retry_after_s=int((resets_at - now).total_seconds()) + 1,
                )
                errors.append((resets_at, error))
        if errors:
            raise max(errors, key=itemgetter(0))[1]

    def _require_key(self, tx: Tx, tenant: ContentTenant, key_id: str | None) -> str:
        """Return the name of the key, or "workspace"."""
        if key_id is None:
            return "workspace"
        name = self._find_key_names(tx, tenant.workspace_id, [key_id]).get(key_id)
        if name is None:
            raise NotFound("key", key_id)
        return name

    def _load_statuses(self, tx: Tx, tenant: ContentTenant, holders: Sequence[str], now: datetime) -> list[BudgetStatus]:
        overrides = store.find_budgets(tx, tenant.workspace_id, holders)
        names = self._find_key_names(tx, tenant.workspace_id, holders)
        day = day_of(now)
        rows = store.find_spending(tx, tenant.workspace_id, [span_of(period, day) for period in BUDGET_PERIODS], holders)

        def load_period(holder: str, period: BudgetPeriod) -> PeriodBudget:
            span = span_of(period, day)
            row = rows.get((holder, span)) or Spending(workspace_id=tenant.workspace_id, holder=holder, span=span)
            return PeriodBudget(
                source="override" if (holder, period) in overrides else "setting",
                limit_nanos=self._get_limit(overrides, holder, period),
                spent_nanos=row.spent_nanos,
                reserved_nanos=row.reserved_nanos,
                resets_at=end_of_span(period, now),
            )

        return [
            BudgetStatus(
                key_id=holder or None,
                key_name=names.get(holder),
                currency=self.currency,
                periods={period: load_period(holder, period) for period in BUDGET_PERIODS},
            )
            for holder in holders
        ]

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


def _estimate_usage(generation: Generation) -> TokenUsage:
    """Return the usage for which a call reserves."""
    has_schema = generation.response_schema is not None
    return estimate_max_usage(generation.messages, max_tokens=generation.max_tokens, has_schema=has_schema)


def _list_payers(key_id: str) -> tuple[str, ...]:
    """
    Return the holders of the budgets that a call counts against, in the order in which their rows are locked.

    A further holder, such as a team of the key, is one more entry before the workspace.
    """
    return (WORKSPACE_BUDGET,) if key_id == WORKSPACE_BUDGET else (key_id, WORKSPACE_BUDGET)


def _to_audit_fields(status: BudgetStatus) -> dict[str, object]:
    day, month = status.periods["day"], status.periods["month"]
    return {
        "source": day.source,
        "daily": _to_optional_amount(day.limit_nanos),
        "monthly_source": month.source,
        "monthly": _to_optional_amount(month.limit_nanos),
        "currency": status.currency,
    }


def _to_optional_amount(nanos: int | None) -> float | None:
    return None if nanos is None else to_amount(nanos)
