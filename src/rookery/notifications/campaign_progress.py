"""The progress of campaigns in the dispatcher: scheduled starts, stored results, pauses by faults, and the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import LIVE, SYSTEM_ACTOR, TEST
from rookery.access.workspaces import require_tenant
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.events import EventBus
from rookery.notifications import audiences
from rookery.notifications.campaign_states import CampaignAction, next_status
from rookery.notifications.campaigns import CANCELLED_REASON, finish_status, publish_status
from rookery.notifications.common_failures import CommonFailure
from rookery.notifications.events import ChannelChanged, SubscriberEvent
from rookery.notifications.host_waits import HostWaits
from rookery.notifications.messages import SendOutcome
from rookery.notifications.models import Campaign, CampaignStatus, ChannelStatus, HostKey, NotificationState
from rookery.notifications.outcomes import clean_reason
from rookery.notifications.schedules import MISSED_AFTER
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store import host_waits, queue, subscribers
from rookery.notifications.store.queue import AbandonedClaim, ClaimedNotification, NotificationResult
from rookery.notifications.store.tables import CAMPAIGNS, OUTBOX
from rookery.notifications.subscribers import describe_channels

_log = structlog.stdlib.get_logger("rookery.notifications")

_TICK = timedelta(microseconds=1)
_MIN_PROBE_DELAY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _StatusChange:
    workspace_id: int
    subject: AuditSubject
    before: Mapping[str, object]
    after: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChannelStatusChange:
    workspace_id: int
    subscriber_id: str
    channel_id: str
    old_status: ChannelStatus


class CampaignProgress:
    """The changes that the dispatcher makes to campaigns, in its transactions."""

    def __init__(self, db: Database, audit: AuditLog, *, bus: EventBus, clock: Clock) -> None:
        self._db = db
        self._audit = audit
        self._bus = bus
        self._clock = clock

    async def start_scheduled(self, *, limit: int) -> int:
        """
        Start the campaigns whose time has come. One that is too late is missed, and one that cannot start fails with the reason.

        Returns:
            The number of campaigns.
        """
        if not await self._db.lookup(lambda tx: queue.is_any_scheduled(tx, self._clock())):
            return 0
        count = 0
        while count < limit and await self._db.write(self._start_next):
            count += 1
        return count

    def _start_next(self, tx: Tx) -> bool:
        now = self._clock()
        due = queue.lock_scheduled(tx, now, limit=1)
        if not due:
            return False
        old = due[0]
        if old.schedule is not None and now - old.schedule.at_utc > MISSED_AFTER:
            reason = f"It was scheduled for {format_iso(old.schedule.at_utc)}, but no server was running. Send it to start it now."
            self._change(tx, old, replace(old, status=next_status(old, CampaignAction.MISS), status_reason=reason), now)
            return True
        try:
            new = audiences.start(tx, old, now)
        except ValidationFailed as error:
            new = replace(old, status=next_status(old, CampaignAction.FAIL), status_reason=clean_reason(error.message), ended_at=now)
        self._change(tx, old, new, now)
        return True

    def store_results(
        self,
        tx: Tx,
        attempts: Sequence[SendAttempt],
        results: Sequence[NotificationResult],
        campaigns: dict[str, Campaign],
        now: datetime,
        *,
        common_failures: Sequence[CommonFailure] = (),
    ) -> None:
        """
        Store results, update channels, and pause campaigns whose fault is common to all addresses. Update *campaigns*.

        A delivery of a cancelled campaign is not sent again. Results of deleted campaigns, which *campaigns* lacks, are dropped.

        Args:
            common_failures: Failures whose fault is not that of the subscribers. Their results are among *results* or stored already.
        """
        attempts = [attempt for attempt in attempts if attempt.claim.campaign_id in campaigns]
        existing_results = [result for result in results if result.claim.campaign_id in campaigns]
        if not existing_results:  # the campaigns or their workspace were deleted, and nothing of them may be left
            return
        waits = HostWaits.load(tx, attempts, common_failures, campaigns, now)
        final_results = [_stop_cancelled(waits.postpone(result), campaigns[result.claim.campaign_id]) for result in existing_results]
        queue.store_results(tx, final_results)
        OUTBOX.insert(tx, *(attempt.outbox_message for attempt in attempts if attempt.outbox_message is not None))
        confirmed_ids = [attempt.claim.channel.id for attempt in attempts if attempt.result.outcome is SendOutcome.SENT]
        subscribers.confirm_channels(tx, sorted(set(confirmed_ids)), at=now)
        excused_ids = {send.channel_id for failure in common_failures for send in failure.sends} | waits.excused_channel_ids
        for attempt in attempts:
            result, claim = attempt.result, attempt.claim
            if result.outcome is SendOutcome.GONE and claim.channel.id not in excused_ids:
                self._invalidate(tx, claim, clean_reason(result.reason) or "The address no longer exists.", now)
        waits.save(tx)
        for attempt in attempts:
            if attempt.result.outcome is SendOutcome.BLOCKED:
                campaign = campaigns[attempt.claim.campaign_id]
                resume_at = waits.get_until(attempt)
                campaigns[campaign.id] = self._pause(tx, campaign, attempt.result.reason, now, resume_at=resume_at)
        for failure in common_failures:
            self._excuse(tx, failure, campaigns, now, until=waits.get_until(failure.latest))
        for campaign_id in sorted(waits.recovered_campaign_ids):
            campaigns[campaign_id] = self._resume(tx, campaigns[campaign_id], now)

    def release(
        self,
        tx: Tx,
        claims: Sequence[tuple[ClaimedNotification | AbandonedClaim, datetime]],
        campaigns: Mapping[str, Campaign],
        *,
        worker_id: str,
    ) -> None:
        """Release claims of which nothing was sent. Those of cancelled campaigns are skipped."""
        cancelled = {
            claim.campaign_id
            for claim, _ in claims
            if claim.campaign_id not in campaigns or campaigns[claim.campaign_id].status is CampaignStatus.CANCELLED
        }
        queue.release_claims(tx, claims, worker_id=worker_id, skipped_campaigns=cancelled)
        released = [claim if isinstance(claim, ClaimedNotification) else claim.claim for claim, _ in claims]
        host_waits.cancel_probes(tx, {HostKey.of_channel(claim.channel) for claim in released if claim is not None})

    def finish(self, tx: Tx, campaign: Campaign, now: datetime) -> None:
        """End a campaign without open deliveries."""
        campaign = self._resume(tx, campaign, now)  # the deliveries of one that waited have expired
        action, reason = finish_status(tx, campaign)
        status = next_status(campaign, action)
        self._change(tx, campaign, replace(campaign, status=status, status_reason=clean_reason(reason), ended_at=now), now)

    def _change(self, tx: Tx, old: Campaign, new: Campaign, now: datetime) -> Campaign:
        new = replace(new, updated_at=max(now, old.updated_at + _TICK))
        CAMPAIGNS.update(tx, new)
        publish_status(self._bus, tx, old, new, now)
        if new.test_of is None:
            subject = AuditSubject(kind="campaign", id=new.id, name=new.name, environment=TEST if new.is_sandbox else LIVE)
            change = _StatusChange(new.public_workspace_id, subject, _audit_fields(old), _audit_fields(new))
            tx.before_commit(self._record_audit, change)
        return new

    def _record_audit(self, tx: Tx, entries: list[object]) -> None:
        """Add audit entries at the end of the transaction, after all other locks."""
        changes = [(f"campaign.{entry.after['status']}", entry) for entry in entries if isinstance(entry, _StatusChange)]
        changes += _describe_channel_changes(tx, [entry for entry in entries if isinstance(entry, _ChannelStatusChange)])
        for action, change in sorted(changes, key=lambda item: item[1].workspace_id):
            self._audit.record(tx, SYSTEM_ACTOR, change.workspace_id, action, change.subject, before=change.before, after=change.after)

    def _excuse(self, tx: Tx, failure: CommonFailure, campaigns: dict[str, Campaign], now: datetime, *, until: datetime | None) -> None:
        """Activate the channels of a common failure again, and open its deliveries again, but no unknown ones."""
        for send in failure.sends:
            if send.outcome is SendOutcome.GONE and queue.revalidate_channel(tx, send.channel_id):
                event = SubscriberEvent(
                    name="subscriber.updated",
                    workspace_id=send.workspace_id,
                    subscriber_id=send.subscriber_id,
                    external_id=send.external_id,
                    at=now,
                )
                self._bus.publish_on_commit(tx, event)
                change = _ChannelStatusChange(
                    workspace_id=send.workspace_id,
                    subscriber_id=send.subscriber_id,
                    channel_id=send.channel_id,
                    old_status=ChannelStatus.INVALID,
                )
                tx.before_commit(self._record_audit, change)
        campaign = campaigns.get(failure.sends[0].campaign_id)
        if campaign is None or until is None or campaign.status not in {CampaignStatus.SENDING, CampaignStatus.PAUSED}:
            return
        queue.reopen(tx, [send.delivery_id for send in failure.sends], until=until)

    def pause_if_only_faults_remain(self, tx: Tx, campaign: Campaign, now: datetime) -> Campaign:
        """Pause a campaign whose open deliveries are all to hosts with a fault, and return it; or set when a paused one is tried again."""
        if campaign.status is CampaignStatus.SENDING and host_waits.is_anything_else_open(tx, campaign.id):
            return campaign
        fault = host_waits.find_next_fault(tx, campaign.id)
        if fault is None:
            return self._resume(tx, campaign, now) if campaign.is_probing else campaign
        target = fault.channel_type.value + (f" to {fault.host}" if fault.host else "")
        reason = f"No more messages by {target} are sent for now, because they fail with the same error: {fault.reason}"
        return self._pause(tx, campaign, reason, now, resume_at=max(fault.until, now + _MIN_PROBE_DELAY))

    def _pause(self, tx: Tx, campaign: Campaign, reason: str | None, now: datetime, *, resume_at: datetime | None) -> Campaign:
        """
        Pause a campaign that is being sent, because of a fault that is common to all addresses; return it.

        One that is paused by such a fault already gets the new time and reason.
        """
        new = replace(campaign, status_reason=clean_reason(reason), resume_at=None if campaign.test_of is not None else resume_at)
        if campaign.is_probing:
            CAMPAIGNS.update(tx, new)
            return new
        if campaign.status is not CampaignStatus.SENDING:
            return campaign
        new = replace(new, status=next_status(campaign, CampaignAction.PAUSE))
        tx.after_commit(lambda: _log.warning("notifications.campaign_paused", campaign=campaign.id, reason=new.status_reason))
        return self._change(tx, campaign, new, now)

    def _resume(self, tx: Tx, campaign: Campaign, now: datetime) -> Campaign:
        """Resume a campaign that a fault has paused; return it."""
        if not campaign.is_probing:
            return campaign
        new = replace(campaign, status=next_status(campaign, CampaignAction.RESUME), status_reason=None, resume_at=None)
        tx.after_commit(lambda: _log.info("notifications.campaign_resumed", campaign=campaign.id))
        return self._change(tx, campaign, new, now)

    def _invalidate(self, tx: Tx, claim: ClaimedNotification, reason: str, now: datetime) -> None:
        if queue.invalidate_channels(tx, [claim.channel.id], reason=reason):
            event = ChannelChanged(
                name="subscriber.channel_invalid", workspace_id=claim.workspace_id, subscriber_id=claim.channel.subscriber_id, at=now
            )
            self._bus.publish_on_commit(tx, event)
            change = _ChannelStatusChange(
                workspace_id=claim.workspace_id,
                subscriber_id=claim.channel.subscriber_id,
                channel_id=claim.channel.id,
                old_status=ChannelStatus.ACTIVE,
            )
            tx.before_commit(self._record_audit, change)


def _describe_channel_changes(tx: Tx, changes: Sequence[_ChannelStatusChange]) -> list[tuple[str, _StatusChange]]:
    """Return the actions and audited changes of subscribers whose channels this transaction has changed, and so locked."""
    old_statuses = defaultdict[tuple[int, str], dict[str, ChannelStatus]](dict)
    for change in changes:
        old_statuses[change.workspace_id, change.subscriber_id].setdefault(change.channel_id, change.old_status)
    described = list[tuple[str, _StatusChange]]()
    for (workspace_id, subscriber_id), old_status_by_id in old_statuses.items():
        view = subscribers.find(tx, workspace_id, subscriber_id)
        if view is None:
            continue
        tenant = require_tenant(tx, workspace_id, SYSTEM_ACTOR, lock=False)
        old_channels = [replace(channel, status=old_status_by_id.get(channel.id, channel.status)) for channel in view.channels]
        subject = AuditSubject(kind="subscriber", id=subscriber_id, name=view.subscriber.external_id, environment=tenant.environment)
        before, after = ({"channels": describe_channels(channels)} for channels in (old_channels, view.channels))
        action = "channel_invalid" if ChannelStatus.ACTIVE in old_status_by_id.values() else "changed"
        described.append((f"subscriber.{action}", _StatusChange(tenant.public_workspace_id, subject, before, after)))
    return described


def _audit_fields(campaign: Campaign) -> dict[str, object]:
    return {"status": campaign.status.value, "status_reason": campaign.status_reason}


def _stop_cancelled(result: NotificationResult, campaign: Campaign) -> NotificationResult:
    if result.state is not NotificationState.PENDING or campaign.status is not CampaignStatus.CANCELLED:
        return result
    attempt = replace(result.attempt, reason=result.attempt.reason or CANCELLED_REASON)
    return replace(result, state=NotificationState.SKIPPED, next_at=None, attempt=attempt)
