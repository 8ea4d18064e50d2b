"""The waits of hosts that follow from the results of attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

import structlog

from rookery.kernel.db import Tx
from rookery.notifications.common_failures import JUDGES_OF_ADDRESSES, CommonFailure
from rookery.notifications.messages import SendOutcome
from rookery.notifications.models import Campaign, HostKey, HostWait, NotificationState
from rookery.notifications.outcomes import clean_reason, get_host_wait_s
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store import host_waits as store
from rookery.notifications.store.queue import NotificationResult

_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(slots=True)
class HostWaits:
    """
    The waits of the hosts of some attempts, as they follow from the results.

    Attributes:
        excused_channel_ids: Channels that the host reported as gone while it had a fault.
        recovered_campaign_ids: Paused campaigns for which a host takes messages again.
    """

    now: datetime
    stored: Mapping[HostKey, HostWait]
    current: dict[HostKey, HostWait] = field(default_factory=dict[HostKey, HostWait])
    ended: dict[HostKey, HostWait] = field(default_factory=dict[HostKey, HostWait])
    excused_channel_ids: set[str] = field(default_factory=set[str])
    recovered_campaign_ids: set[str] = field(default_factory=set[str])
    _postponed: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    @classmethod
    def load(
        cls,
        tx: Tx,
        attempts: Sequence[SendAttempt],
        common_failures: Sequence[CommonFailure],
        campaigns: Mapping[str, Campaign],
        now: datetime,
    ) -> Self:
        """
        Return the waits after *attempts*, in their order.

        Tests of campaigns and messages of test keys are tried whatever the host, and change nothing.
        """
        counted = [attempt for attempt in attempts if _is_counted(campaigns[attempt.claim.campaign_id])]
        keys = {HostKey.of_channel(attempt.claim.channel) for attempt in counted} | {failure.host for failure in common_failures}
        waits = cls(now=now, stored=(stored := store.load(tx, keys)), current=dict(stored))
        common = {failure.latest.claim.attempt_key: failure for failure in common_failures}
        for attempt in counted:
            waits._record(attempt, common.pop(attempt.claim.attempt_key, None))
            if campaigns[attempt.claim.campaign_id].is_probing and HostKey.of_channel(attempt.claim.channel) in waits.ended:
                waits.recovered_campaign_ids.add(attempt.claim.campaign_id)
        for failure in common.values():  # their results were stored with an earlier round
            waits._refuse(failure.latest, is_fault=failure.is_fault)
        return waits

    def postpone(self, result: NotificationResult) -> NotificationResult:
        """Return the result of an attempt whose host waits: its delivery is open until then."""
        wait = self.current.get(HostKey.of_channel(result.claim.channel))
        if wait is None or result.claim.attempt_key not in self._postponed:
            return result
        until = min(wait.until, result.claim.expires_at)
        return replace(result, state=NotificationState.PENDING, used_attempts=result.claim.used_attempts, next_at=until)

    def get_until(self, attempt: SendAttempt) -> datetime | None:
        """Return the end of the wait of the host of *attempt*."""
        wait = self.current.get(HostKey.of_channel(attempt.claim.channel))
        return None if wait is None else min(wait.until, attempt.claim.expires_at)

    def save(self, tx: Tx) -> None:
        """Store the changed waits. The messages of hosts that accept again are due."""
        for key in sorted(self.ended, key=lambda key: (key.scope_id, key.channel_type.value, key.host)):
            if key not in self.current:
                store.end(tx, self.ended[key], self.now)
        changed = [wait for key, wait in self.current.items() if wait != self.stored.get(key)]
        if changed:
            store.store(tx, changed)
            tx.after_commit(lambda: self._log_waits(changed))

    def _log_waits(self, waits: Sequence[HostWait]) -> None:
        for wait in waits:
            _log.warning(
                "notifications.host_waits",
                channel=wait.channel_type.value,
                host=wait.host,
                refusals=wait.refusal_count,
                wait_s=round((wait.until - self.now).total_seconds()),
                reason=wait.reason,
            )

    def _record(self, attempt: SendAttempt, common: CommonFailure | None) -> None:
        key, result = HostKey.of_channel(attempt.claim.channel), attempt.result
        wait = self.current.get(key)
        if result.outcome is SendOutcome.RETRY:
            if result.concerns_host or wait is not None or common is not None:
                self._refuse(attempt, is_fault=False)
                self._postponed.add(attempt.claim.attempt_key)
        elif result.outcome is SendOutcome.BLOCKED or common is not None:
            self._refuse(attempt, is_fault=True)
            if result.outcome is not SendOutcome.UNKNOWN:
                self._postponed.add(attempt.claim.attempt_key)
        elif wait is None or attempt.started_at <= wait.refused_at:
            return  # without a wait, or on its way before it began, it says nothing new
        elif result.outcome is SendOutcome.UNKNOWN or (wait.is_fault and _is_same_fault(attempt)):
            self._refuse(attempt, is_fault=wait.is_fault)
            if result.outcome is not SendOutcome.UNKNOWN:
                self._postponed.add(attempt.claim.attempt_key)
                self.excused_channel_ids.add(attempt.claim.channel.id)
        else:
            self.ended[key] = self.current.pop(key)

    def _refuse(self, attempt: SendAttempt, *, is_fault: bool) -> None:
        key, result = HostKey.of_channel(attempt.claim.channel), attempt.result
        old = self.current.get(key)
        if old is not None and attempt.started_at < old.until:
            return  # it was on its way when the wait began
        count = 1 if old is None else old.refusal_count + 1
        name = f"{key.channel_type.value} {key.host}"
        wait_s = get_host_wait_s(result, refusal_count=count, name=name)
        self.current[key] = HostWait(
            scope_id=key.scope_id,
            channel_type=key.channel_type,
            host=key.host,
            until=max(attempt.ended_at, self.now) + timedelta(seconds=wait_s),
            probe_until=None,
            refusal_count=count,
            refused_at=attempt.ended_at,
            reason=clean_reason(result.reason),
            is_fault=is_fault,
        )


def _is_counted(campaign: Campaign) -> bool:
    return campaign.test_of is None and not campaign.is_sandbox


def _is_same_fault(attempt: SendAttempt) -> bool:
    """Return whether a message that was tried alone failed as those before it; a mail server or push service may judge one address."""
    is_judged = attempt.result.outcome is SendOutcome.GONE and attempt.claim.channel.type in JUDGES_OF_ADDRESSES
    return attempt.result.outcome in {SendOutcome.REJECTED, SendOutcome.GONE} and not is_judged
