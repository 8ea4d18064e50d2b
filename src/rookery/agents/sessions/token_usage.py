"""The tokens that agents report for their sessions, in the ledger of usage."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.models.sessions import AgentSession, TokenReport
from rookery.agents.ports import PriceTokens
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.usage.ledger import UsageLedger
from rookery.usage.models import UsageEntry, UsageKind, day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTokenMeter:
    """Adds reported tokens to the ledger, at the cost that the agent reports, else at the price of the model."""

    ledger: UsageLedger
    price_tokens: PriceTokens

    def resolve(self, tokens: TokenReport) -> TokenReport:
        """
        Return *tokens* with the currency of their cost, if they have one.

        Raises:
            ValidationFailed: They have a cost in another currency than that of this server. Amounts are never converted.
        """
        currency = self.ledger.currency
        if tokens.currency not in {None, currency}:
            raise ValidationFailed({"tokens.currency": [f"must be {currency}, the currency of this server, not {tokens.currency}"]})
        return tokens if tokens.cost_nanos is None else replace(tokens, currency=currency)

    def record(self, tx: Tx, caller: Caller, session: AgentSession, tokens: TokenReport, at: datetime) -> None:
        """Add the tokens of an event, if it reports any."""
        if tokens == TokenReport():
            return
        cost = self.price_tokens(tokens) if tokens.cost_nanos is None else tokens.cost_nanos
        entry = UsageEntry(
            workspace_id=session.workspace_id,
            day=day_of(at),
            kind=UsageKind.SESSION,
            key_id=caller.key_id,
            agent_id=session.agent_id,
            model=tokens.model or "",
            calls=1,
            input_tokens=tokens.input,
            cached_input_tokens=tokens.cached_input,
            output_tokens=tokens.output,
            unpriced_calls=int(cost is None),
            cost_nanos=cost or 0,
        )
        self.ledger.add(tx, entry)
