"""
The claims of processes that died: which of them are open again, which ended, and which are unknown.

A process that is killed leaves claims of three kinds. Its journal tells them apart: those that it had not begun are open again, those
whose result it had not stored yet get this result, and those that were being sent are unknown. Without a journal, all are unknown. This
holds for a process of another host too, whose claims are abandoned when their lease is over.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.db.leases import find_dead_workers, is_from_this_boot
from rookery.notifications.campaign_progress import CampaignProgress
from rookery.notifications.models import Campaign
from rookery.notifications.send_journal import JournalContent, SendJournal
from rookery.notifications.sending import SendAttempt, evaluate_attempt_result
from rookery.notifications.store import queue
from rookery.notifications.store.queue import AbandonedClaim, NotificationResult

_SEARCH_INTERVAL_S = 1.0
_MAX_CLAIMS_PER_ROUND = 500

_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(frozen=True, slots=True)
class DeadWorkers:
    """
    The dead workers of this host with claims or leases, each with its journal, or None.

    There may be claims of others whose lease ended, even if there are no dead workers.
    """

    journals: Mapping[str, JournalContent | None]

    @property
    def ids(self) -> list[str]:
        return list(self.journals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """
    The outcome of a transaction that settles claims.

    Attributes:
        results: The results that dead processes had not stored.
        has_more: There may be further claims.
    """

    results: Sequence[NotificationResult]
    has_more: bool


@dataclass(slots=True)
class CrashRecovery:
    """Finds and settles the claims of processes that died."""

    db: Database
    progress: CampaignProgress
    journal: SendJournal
    clock: Clock
    _next_search_s: float = 0.0

    async def find(self) -> DeadWorkers | None:
        """Look for abandoned claims, at most once a second."""
        now_s = time.monotonic()
        if now_s < self._next_search_s:
            return None
        self._next_search_s = now_s + _SEARCH_INTERVAL_S
        owners = await self.db.lookup(lambda tx: queue.find_abandoned_owners(tx, self.clock()))
        if owners is None:
            return None
        contents = await asyncio.gather(*(asyncio.to_thread(self.journal.read, owner) for owner in owners))
        return DeadWorkers(dict(zip(owners, contents, strict=True)))

    def settle(self, tx: Tx, dead: DeadWorkers, campaigns: dict[str, Campaign], now: datetime) -> RecoveryResult:
        """
        Settle abandoned claims, and end the leases of the campaigns of dead workers.

        Args:
            campaigns: The campaigns of `queue.find_abandoned_campaigns`, locked. One that is paused by a stored result is replaced.
        """
        queue.end_campaign_leases(tx, dead.ids, now)
        claims = queue.lock_abandoned(tx, dead.ids, now, limit=_MAX_CLAIMS_PER_ROUND)
        ended, unsent, unknown = _split(claims, dead.journals)
        results = [evaluate_attempt_result(attempt) for attempt in ended]
        self.progress.store_results(tx, ended, results, campaigns, now)
        for owner, unsent_claims in unsent.items():
            self.progress.release(tx, [(claim, now) for claim in unsent_claims], campaigns, worker_id=owner)
        queue.mark_unknown(tx, unknown, now)
        unknown_counts = Counter(claim.campaign_id for claim in unknown)
        tx.after_commit(lambda: _log_recovery(unknown_counts, stored=len(ended), released=sum(map(len, unsent.values()))))
        return RecoveryResult(results=results, has_more=len(claims) == _MAX_CLAIMS_PER_ROUND)

    async def close_round(self, dead: DeadWorkers, *, has_more: bool) -> None:
        """Delete the journals of workers without claims after `settle` has committed."""
        if has_more:
            self._next_search_s = 0.0
        else:
            await asyncio.to_thread(self.journal.delete, dead.ids)

    async def delete_old_journals(self) -> int:
        """Delete the journals of dead workers of this host that left nothing open, and those of earlier boots; return their number."""
        workers = await asyncio.to_thread(self.journal.list_workers)
        if not workers:
            return 0

        def find_needed(tx: Tx) -> set[str]:
            return set(workers) - set(find_dead_workers(tx, workers)) | set(queue.find_abandoned_owners(tx, self.clock()) or [])

        needed = await self.db.lookup(find_needed)
        old_workers = [worker for worker in workers if worker not in needed or not is_from_this_boot(worker)]
        await asyncio.to_thread(self.journal.delete, old_workers)
        return len(old_workers)


def _log_recovery(unknown_counts: Mapping[str, int], *, stored: int, released: int) -> None:
    """Log the settled claims, of which *unknown_counts* has those that may have been sent, by campaign."""
    for campaign_id, count in unknown_counts.items():
        _log.warning("notifications.deliveries_unknown", campaign=campaign_id, count=count)
    if stored or released:
        _log.info("notifications.deliveries_recovered", stored=stored, released=released)


def _split(
    claims: Iterable[AbandonedClaim], journals: Mapping[str, JournalContent | None]
) -> tuple[list[SendAttempt], dict[str, list[AbandonedClaim]], list[AbandonedClaim]]:
    """Return the attempts that ended, the claims that were not begun by their worker, and those that may have been sent."""
    ended, unsent, unknown = list[SendAttempt](), dict[str, list[AbandonedClaim]](), list[AbandonedClaim]()
    for abandoned in claims:
        journal = journals.get(abandoned.owner)
        result = None if journal is None else journal.results.get(abandoned.attempt_key)
        if result is not None and abandoned.claim is not None:
            ended.append(result.to_attempt(abandoned.claim))
        elif journal is not None and abandoned.attempt_key not in journal.begun:
            unsent.setdefault(abandoned.owner, []).append(abandoned)
        else:
            unknown.append(abandoned)
    return ended, unsent, unknown
