"""Campaigns: creation, changes, and the verbs that change their status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from rookery.access.audit_log import AuditLog, AuditSubject
from rookery.access.models import Tenant
from rookery.access.workspaces import require_workspace
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.projections import copy_fields
from rookery.notifications import audiences
from rookery.notifications.campaign_states import CampaignAction, next_status, require_deletable, require_editable
from rookery.notifications.events import CampaignEvent
from rookery.notifications.models import (
    ALL_WORKSPACES,
    Audience,
    Campaign,
    CampaignChange,
    CampaignPreview,
    CampaignSchedule,
    CampaignSettings,
    CampaignStatistics,
    CampaignStatus,
    CampaignTest,
    CampaignView,
    CampaignWait,
    NotificationState,
)
from rookery.notifications.rendering import find_text_faults
from rookery.notifications.store import campaigns as store
from rookery.notifications.store import host_waits
from rookery.notifications.store.tables import CAMPAIGNS

CANCELLED_REASON = "The campaign was cancelled."
_BY_HAND_REASON = "Paused on request."
_TICK = timedelta(microseconds=1)


class Campaigns:
    """
    The campaigns of all tenants. Each method works on one tenant.

    Args:
        wake: Called after a change that the dispatcher of this process should see at once.
    """

    def __init__(self, db: Database, audit: AuditLog, *, bus: EventBus, clock: Clock, ids: IdFactory, wake: Callable[[], None]) -> None:
        self._db = db
        self._audit = audit
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._wake = wake

    async def list_page(
        self,
        tenant: Tenant,
        *,
        status: CampaignStatus | None,
        text: str | None,
        test_of: str | None,
        page: PageSlice,
    ) -> ListPage[CampaignView]:
        """Return a page of campaigns, newest first, and the total. Tests are listed only with *test_of*."""

        def read(tx: Tx) -> ListPage[CampaignView]:
            campaign_page = store.list_page(tx, tenant.workspace_id, status=status, text=text, test_of=test_of, page=page)
            return campaign_page.with_items(view_all(tx, campaign_page.items))

        return await self._db.read(read)

    async def get(self, tenant: Tenant, campaign_id: str) -> CampaignView:
        """Return a campaign, or raise NotFound."""
        return await self._db.read(lambda tx: view_all(tx, [require_campaign(tx, tenant, campaign_id)])[0])

    async def create(self, tenant: Tenant, settings: CampaignSettings) -> CampaignView:
        """
        Create a draft.

        Raises:
            ValidationFailed: A text has a malformed placeholder, or the URL is invalid.
        """
        _require_valid(settings)
        now = self._clock()
        campaign = _new_campaign(self._ids(), tenant, settings, now)

        def work(tx: Tx) -> CampaignView:
            require_workspace(tx, tenant.public_workspace_id)
            CAMPAIGNS.insert(tx, campaign)
            self._record_audit(tx, tenant, "created", campaign, (None, _audit_fields(campaign)))
            return CampaignView(campaign=campaign, statistics=_NO_STATISTICS)

        return await self._db.write(work)

    async def update(self, tenant: Tenant, campaign_id: str, change: CampaignChange, *, expected: ExpectedETags = None) -> CampaignView:
        """
        Change a draft, or a scheduled campaign, which returns to draft.

        Args:
            tenant: The owner of the campaign.
            campaign_id: The campaign.
            change: The fields to change.
            expected: The ETags of If-Match; None: any version.

        Raises:
            NotFound: The campaign does not exist.
            CampaignNotEditable: It has another status.
            PreconditionFailed: It has another version than *expected*.
            ValidationFailed: As for `create`.
        """
        now = self._clock()

        def work(tx: Tx) -> CampaignView:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_campaign(tx, tenant, campaign_id, lock=True)
            require_match("campaign", old.version, expected)
            require_editable(old)
            new = replace(change.apply_to(old), status=CampaignStatus.DRAFT)
            _require_valid(new)
            if new == old:
                return view_all(tx, [old])[0]
            new = replace(new, updated_at=_later(old, now))
            CAMPAIGNS.update(tx, new)
            self._record_audit(tx, tenant, "changed", new, (_audit_fields(old), _audit_fields(new)))
            return view_all(tx, [new])[0]

        return await self._db.write(work)

    async def delete(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> None:
        """
        Delete a campaign with its deliveries.

        Raises:
            NotFound: The campaign does not exist.
            WrongCampaignStatus: It is scheduled, sending or paused. Cancel it first.
            PreconditionFailed: It has another version than *expected*.
        """

        def work(tx: Tx) -> None:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_campaign(tx, tenant, campaign_id, lock=True)
            require_match("campaign", old.version, expected)
            require_deletable(old)
            store.remove(tx, [old.id])
            self._record_audit(tx, tenant, "deleted", old, (_audit_fields(old), None))

        await self._db.write(work)

    async def duplicate(self, tenant: Tenant, campaign_id: str, *, name: str | None = None) -> CampaignView:
        """Create a draft with the fields of a campaign and no schedule. Raises NotFound."""
        now = self._clock()

        def work(tx: Tx) -> CampaignView:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_campaign(tx, tenant, campaign_id)
            copy = _new_campaign(self._ids(), tenant, replace(old, name=name or old.name, schedule=None), now)
            CAMPAIGNS.insert(tx, copy)
            self._record_audit(tx, tenant, "created", copy, (None, _audit_fields(copy)))
            return CampaignView(campaign=copy, statistics=_NO_STATISTICS)

        return await self._db.write(work)

    async def preview(self, tenant: Tenant, campaign_id: str, *, subscriber: str | None = None) -> CampaignPreview:
        """
        Return the audience of a campaign at this moment, and its message for one member.

        Raises:
            NotFound: The campaign or *subscriber* does not exist.
        """
        return await self._db.read(
            lambda tx: audiences.preview(tx, tenant, require_campaign(tx, tenant, campaign_id), subscriber=subscriber)
        )

    async def send(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """
        Fix the audience of a campaign and start to send it. With an empty audience it is sent at once, with no delivery.

        Raises:
            NotFound: The campaign does not exist.
            CampaignAlreadySent: It was started before.
            WrongCampaignStatus: It was cancelled.
            ValidationFailed: A member of the audience has no value for a placeholder. Nothing was sent.
            PreconditionFailed: It has another version than *expected*.
        """

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            next_status(old, CampaignAction.SEND)
            host_waits.try_again(tx, old, now)
            return audiences.start(tx, old, now)

        return await self._act(tenant, campaign_id, change, "started", expected)

    async def test(self, tenant: Tenant, campaign_id: str, test: CampaignTest) -> CampaignView:
        """
        Send the message of a campaign to named subscribers, whatever its status.

        The test is a campaign of its own, whose deliveries show the result.

        Raises:
            NotFound: The campaign does not exist.
            ValidationFailed: A subscriber does not exist, or has no value for a placeholder.
        """
        now = self._clock()

        def work(tx: Tx) -> CampaignView:
            require_workspace(tx, tenant.public_workspace_id)
            original = require_campaign(tx, tenant, campaign_id)
            audiences.require_existing(tx, tenant, test.subscribers)
            settings = replace(
                original,
                name=f"Test of {original.name}"[:200],
                audience=Audience(subscribers=test.subscribers),
                channels=original.channels if test.channels is None else test.channels,
                schedule=None,
            )
            campaign = replace(_new_campaign(self._ids(), tenant, settings, now), test_of=original.test_of or original.id)
            CAMPAIGNS.insert(tx, campaign)
            started = audiences.start(tx, campaign, now)
            CAMPAIGNS.update(tx, started)
            subject = _audit_fields(started)
            self._record_audit(tx, tenant, "tested", original, ({}, {"test": started.id, "subscribers": list(test.subscribers), **subject}))
            tx.after_commit(self._wake)
            return view_all(tx, [started])[0]

        return await self._db.write(work)

    async def schedule(
        self, tenant: Tenant, campaign_id: str, schedule: CampaignSchedule | None, *, expected: ExpectedETags = None
    ) -> CampaignView:
        """
        Schedule a campaign for *schedule*; None: for its own.

        Raises:
            NotFound: The campaign does not exist.
            WrongCampaignStatus: Its status does not allow it.
            ValidationFailed: It has no schedule, or the time has passed; or a member of the audience has no value for a placeholder.
            PreconditionFailed: It has another version than *expected*.
        """

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            status = next_status(old, CampaignAction.SCHEDULE)
            planned = old if schedule is None else replace(old, schedule=schedule)
            if planned.schedule is None:
                raise ValidationFailed({"at": ["is required, because the campaign has no schedule"]})
            if planned.schedule.at_utc <= now:
                raise ValidationFailed({"at": [f"{planned.schedule.at} ({planned.schedule.time_zone}) is in the past"]})
            audiences.require_variables(tx, planned)
            return replace(planned, status=status, status_reason=None)

        return await self._act(tenant, campaign_id, change, "scheduled", expected)

    async def unschedule(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """Return a scheduled or missed campaign to draft. Raises as `schedule`."""
        return await self._act(tenant, campaign_id, _set(CampaignAction.UNSCHEDULE), "unscheduled", expected)

    async def pause(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """
        Pause a campaign, also one that a fault has paused and that would resume by itself. Messages that are being sent are finished.

        Raises as `schedule`.
        """

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            if old.is_probing:
                return replace(old, resume_at=None, status_reason=_BY_HAND_REASON)
            return _set(CampaignAction.PAUSE, _BY_HAND_REASON)(tx, old, now)

        return await self._act(tenant, campaign_id, change, "paused", expected)

    async def resume(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """Resume a paused campaign. One message is tried at once to each host that waits. Raises as `schedule`."""

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            new = _set(CampaignAction.RESUME)(tx, old, now)
            host_waits.try_again(tx, old, now)
            return new

        return await self._act(tenant, campaign_id, change, "resumed", expected)

    async def cancel(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """Cancel a campaign. Its pending deliveries are skipped. Raises as `schedule`."""

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            status = next_status(old, CampaignAction.CANCEL)
            store.skip_pending(tx, old.id, reason=CANCELLED_REASON, at=now)
            return replace(old, status=status, status_reason=None, resume_at=None, ended_at=now)

        return await self._act(tenant, campaign_id, change, "cancelled", expected)

    async def retry(self, tenant: Tenant, campaign_id: str, *, expected: ExpectedETags = None) -> CampaignView:
        """
        Send the failed deliveries of a finished campaign again, and no others.

        Raises:
            NotFound: The campaign does not exist.
            WrongCampaignStatus: It is not finished.
            Conflict: No delivery failed.
            PreconditionFailed: It has another version than *expected*.
        """

        def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
            status = next_status(old, CampaignAction.RETRY)
            if not store.retry_failed(tx, old.id, at=now, until=now + timedelta(seconds=old.ttl_s)):
                raise Conflict(f"The campaign {old.id!r} has no failed deliveries to send again.")
            host_waits.try_again(tx, old, now)
            return replace(old, status=status, status_reason=None, ended_at=None)

        return await self._act(tenant, campaign_id, change, "retried", expected)

    async def delete_old_deliveries(self, *, before: datetime, limit: int = 20) -> int:
        """Delete the deliveries of campaigns that ended before *before*, and old tests. Return the number of campaigns."""

        def work(tx: Tx) -> int:
            old = store.list_old(tx, before=before, limit=limit)
            statistics = store.count_by_state(tx, old)
            tests = [campaign.id for campaign in old if campaign.test_of is not None]
            if tests:
                store.remove(tx, tests)
            others = [campaign for campaign in old if campaign.test_of is None]
            for campaign in others:
                CAMPAIGNS.update(tx, replace(campaign, final_counts=statistics[campaign.id].by_channel))
            if others:
                store.remove_deliveries(tx, [campaign.id for campaign in others])
            return len(old)

        count = 0
        while deleted_count := await self._db.write(work):
            count += deleted_count
        return count

    async def _act(
        self,
        tenant: Tenant,
        campaign_id: str,
        change: Callable[[Tx, Campaign, datetime], Campaign],
        action: str,
        expected: ExpectedETags,
    ) -> CampaignView:
        now = self._clock()

        def work(tx: Tx) -> CampaignView:
            require_workspace(tx, tenant.public_workspace_id)
            old = require_campaign(tx, tenant, campaign_id, lock=True)
            require_match("campaign", old.version, expected)
            new = replace(change(tx, old, now), updated_at=_later(old, now))
            CAMPAIGNS.update(tx, new)
            self._record_audit(tx, tenant, action, new, (_audit_fields(old), _audit_fields(new)))
            publish_status(self._bus, tx, old, new, now)
            tx.after_commit(self._wake)
            return view_all(tx, [new])[0]

        return await self._db.write(work)

    def _record_audit(
        self,
        tx: Tx,
        tenant: Tenant,
        action: str,
        campaign: Campaign,
        changes: tuple[Mapping[str, object] | None, Mapping[str, object] | None],
    ) -> None:
        before, after = changes
        subject = AuditSubject(kind="campaign", id=campaign.id, name=campaign.name, environment=tenant.environment)
        self._audit.record(tx, tenant.by, tenant.public_workspace_id, f"campaign.{action}", subject, before=before, after=after)


def require_campaign(tx: Tx, tenant: Tenant, campaign_id: str, *, lock: bool = False) -> Campaign:
    """Return a campaign of the tenant, or raise NotFound."""
    campaign = CAMPAIGNS.find(tx, tenant.workspace_id, id=campaign_id, lock=lock)
    if campaign is None:
        raise NotFound("campaign", campaign_id)
    return campaign


def view_all(tx: Tx, campaigns: Sequence[Campaign]) -> list[CampaignView]:
    """Return campaigns with their statistics."""
    counts = store.count_by_state(tx, [campaign for campaign in campaigns if campaign.final_counts is None])
    waits = _find_waits(tx, [campaign for campaign in campaigns if campaign.status is CampaignStatus.SENDING or campaign.is_probing])
    return [
        CampaignView(
            campaign=campaign,
            statistics=counts.get(campaign.id) or CampaignStatistics(by_channel=campaign.final_counts or {}),
            waits=tuple(wait for wait in waits if wait.campaign_id == campaign.id),
        )
        for campaign in campaigns
    ]


def _find_waits(tx: Tx, campaigns: Sequence[Campaign]) -> list[CampaignWait]:
    """Return the hosts for which deliveries of campaigns wait."""
    scopes = host_waits.find_scopes(tx, {campaign.workspace_id for campaign in campaigns}) if campaigns else frozenset[int]()
    is_waiting = [campaign.id for campaign in campaigns if scopes & {ALL_WORKSPACES, campaign.workspace_id}]
    return host_waits.list_of_campaigns(tx, is_waiting)


def publish_status(bus: EventBus, tx: Tx, old: Campaign, new: Campaign, at: datetime) -> None:
    """Publish the events of a changed status. Tests have none."""
    if new.test_of is not None or (new.status is old.status and new.status is not CampaignStatus.SCHEDULED):
        return
    was_paused = old.status is CampaignStatus.PAUSED
    is_start = new.started_at != old.started_at and new.started_at is not None
    names = ["campaign.started"] if is_start else []
    if new.status is CampaignStatus.SENDING:
        names += ["campaign.resumed"] if was_paused else []
    elif new.status is not CampaignStatus.DRAFT:
        names.append(f"campaign.{new.status.value}")
    for name in names:
        bus.publish_on_commit(tx, CampaignEvent(name=name, workspace_id=new.workspace_id, campaign_id=new.id, at=at))


def finish_status(tx: Tx, campaign: Campaign) -> tuple[CampaignAction, str | None]:
    """Return the action that ends a campaign without open deliveries, with its reason: it failed if each delivery failed."""
    statistics = store.count_by_state(tx, [campaign])[campaign.id]
    failed = statistics.count(NotificationState.FAILED)
    if not failed:
        return CampaignAction.FINISH, None
    if failed != statistics.total:
        action, count = CampaignAction.FINISH, f"{failed:,} of its {statistics.total:,} deliveries"
    else:
        action, count = CampaignAction.FAIL, "Its only delivery" if failed == 1 else f"Each of its {failed:,} deliveries"
    reason = store.find_last_failure(tx, campaign.id)
    return action, f"{count} failed." if reason is None else f"{count} failed. The last reason: {reason}"


def _set(action: CampaignAction, reason: str | None = None) -> Callable[[Tx, Campaign, datetime], Campaign]:
    def change(tx: Tx, old: Campaign, now: datetime) -> Campaign:
        del tx, now
        return replace(old, status=next_status(old, action), status_reason=reason, resume_at=None)

    return change


_NO_STATISTICS = CampaignStatistics(by_channel={})


def _new_campaign(campaign_id: str, tenant: Tenant, settings: CampaignSettings, now: datetime) -> Campaign:
    """Return a draft with the settings, which may be those of another campaign."""
    values = copy_fields(CampaignSettings, settings)
    return Campaign(
        **values,
        id=campaign_id,
        workspace_id=tenant.workspace_id,
        public_workspace_id=tenant.public_workspace_id,
        created_at=now,
        updated_at=now,
    )


def _require_valid(settings: CampaignSettings) -> None:
    faults = find_text_faults(settings)
    if faults:
        raise ValidationFailed(faults)


def _later(old: Campaign, now: datetime) -> datetime:
    """Return *now*, or just after the last change if that is later, so that each change makes a new version."""
    return max(now, old.updated_at + _TICK)


def _audit_fields(campaign: Campaign) -> dict[str, object]:
    return {
        "name": campaign.name,
        "status": campaign.status.value,
        "title": campaign.title,
        "channels": None if campaign.channels is None else list(campaign.channels),
        "audience": asdict(campaign.audience),
        "rate_per_second": campaign.rate_per_second,
        "scheduled_at": None if campaign.schedule is None else format_iso(campaign.schedule.at_utc),
    }
