"""
The usage of embedding services.

A service embeds texts of several memories, and of several workspaces, in one request. So who pays is not an argument of the embedder: the
memories that are embedded set it for the texts of a block (`charge_embeddings`), and without such a block it is the caller of the request.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.request_context import CURRENT_REQUEST
from rookery.kernel.write_buffer import WriteBuffer
from rookery.usage.ledger import UsageLedger
from rookery.usage.models import SERVER_TENANT, UsageEntry, UsageKind, day_of

ANY_MODEL = "*"
"""The name of the price for all models without a price of their own."""

_WRITE_DELAY_S = 0.5
_MAX_BUFFERED_ENTRIES = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingPayer:
    """The tenant, key and agent that texts are embedded for. Without a key or an agent, these are empty."""

    workspace_id: int
    key_id: str = ""
    agent_id: str = ""


SERVER_PAYER = EmbeddingPayer(workspace_id=SERVER_TENANT)
"""The payer of texts that serve all workspaces."""

_PAYERS: ContextVar[Mapping[EmbeddingPayer, int] | None] = ContextVar("rookery_embedding_payers", default=None)


@contextmanager
def charge_embeddings(payers: Sequence[tuple[EmbeddingPayer, int]]) -> Generator[None]:
    """
    Charge the tokens of texts that are embedded in this block, also by tasks that begin in it.

    Args:
        payers: The payer of each text, and the length of the text. Tokens of a request are split by the lengths.
    """
    weights: dict[EmbeddingPayer, int] = {}
    for payer, length in payers:
        weights[payer] = weights.get(payer, 0) + length + 1
    token = _PAYERS.set(weights)
    try:
        yield
    finally:
        _PAYERS.reset(token)


class EmbeddingMeter:
    """
    Counts the tokens of embedding services. They are written within half a second.

    Args:
        prices: The price in billionths per token, by model.
    """

    def __init__(self, db: Database, ledger: UsageLedger, prices: Mapping[str, int], *, clock: Clock) -> None:
        self._db = db
        self._ledger = ledger
        self._prices = prices
        self._clock = clock
        self._entries = WriteBuffer[UsageEntry](
            self._write, name="usage.embeddings", delay_s=_WRITE_DELAY_S, max_rows=_MAX_BUFFERED_ENTRIES
        )
        ledger.flush_before_reports(self._entries.flush)

    def record(self, model: str, tokens: int, *, is_estimated: bool) -> None:
        """
        Count the tokens of one answer of a service.

        Args:
            is_estimated: The service did not report the tokens.
        """
        day, price = day_of(self._clock()), self._prices.get(model, self._prices.get(ANY_MODEL))
        weights = _PAYERS.get() or {_find_caller(): 1}
        for payer, share in _split(tokens, weights):
            entry = UsageEntry(
                workspace_id=payer.workspace_id,
                day=day,
                kind=UsageKind.EMBEDDING,
                key_id=payer.key_id,
                agent_id=payer.agent_id,
                model=model,
                calls=1,
                input_tokens=share,
                estimated_calls=int(is_estimated),
                unpriced_calls=int(price is None),
                cost_nanos=share * (price or 0),
            )
            self._entries.add(entry)

    async def aclose(self) -> None:
        """Write the last entries."""
        await self._entries.aclose()

    async def _write(self, entries: Sequence[UsageEntry]) -> None:
        await self._db.write(lambda tx: self._ledger.add_late(tx, entries))


def _find_caller() -> EmbeddingPayer:
    request = CURRENT_REQUEST.get()
    caller = None if request is None else request.caller()
    if not isinstance(caller, Caller):
        return SERVER_PAYER
    return EmbeddingPayer(workspace_id=caller.workspace_id, key_id=caller.key_id, agent_id=caller.agent_id or "")


def _split(tokens: int, weights: Mapping[EmbeddingPayer, int]) -> list[tuple[EmbeddingPayer, int]]:
    """Return the share of each payer. The shares add up to *tokens*."""
    total, passed, shares = sum(weights.values()), 0, list[tuple[EmbeddingPayer, int]]()
    for payer, weight in weights.items():
        start, passed = tokens * passed // total, passed + weight
        shares.append((payer, tokens * passed // total - start))
    return shares
