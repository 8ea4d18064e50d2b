"""Operations on campaigns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rookery.access.models import Caller, Tenant
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict
from rookery.kernel.http import ItemPage, Operation, Output
from rookery.kernel.preconditions import ExpectedETags
from rookery.kernel.schema import Page
from rookery.notifications import tool_declarations as tools
from rookery.notifications.campaigns import Campaigns
from rookery.notifications.errors import CampaignAlreadySent, CampaignNotEditable, WrongCampaignStatus
from rookery.notifications.models import CampaignPreview, CampaignView
from rookery.notifications.schemas.campaigns import (
    CampaignBody,
    CampaignChangeBody,
    CampaignPreviewBody,
    CampaignPreviewResponse,
    CampaignResponse,
    CampaignsQuery,
    CampaignTestBody,
    DuplicateBody,
    ScheduleCampaignBody,
    serialize_campaign,
)

READ_SCOPE, WRITE_SCOPE, SEND_SCOPE = "notify:read", "notify:write", "notify:send"

_operation = partial(Operation, tags=("Notifications",))


@dataclass(frozen=True, slots=True)
class CampaignApi:
    """The operations on campaigns. Each handler calls one service."""

    campaigns: Campaigns
    clock: Clock

    def operations(self) -> list[Operation]:
        """Return the operations."""
        base, one = "/notify/campaigns", "/notify/campaigns/{campaign}"
        single = partial(_operation, present=_present, response_model=CampaignResponse, etag=True)
        act = partial(single, method="POST", committed=CampaignView, idempotent=True, errors=(WrongCampaignStatus,))
        return [
            _operation(method="GET", path=base, handler=self.get_campaigns, present=_present, required_scope=READ_SCOPE,
                       response_model=Page[CampaignResponse], operation_id="list_campaigns", summary="List campaigns, newest first",
                       tools=(tools.CAMPAIGN_LIST,)),
            act(path=base, handler=self.post_campaign, required_scope=WRITE_SCOPE, status=201, errors=(),
                operation_id="create_campaign", summary="Create a campaign"),
            single(method="GET", path=one, handler=self.get_campaign, required_scope=READ_SCOPE, operation_id="get_campaign",
                   summary="Show a campaign with its statistics"),
            single(method="PATCH", path=one, handler=self.patch_campaign, required_scope=WRITE_SCOPE, errors=(CampaignNotEditable,),
                   operation_id="update_campaign", summary="Change a draft or a scheduled campaign"),
            _operation(method="DELETE", path=one, handler=self.delete_campaign, required_scope=WRITE_SCOPE, status=204,
                       errors=(WrongCampaignStatus,), operation_id="delete_campaign", summary="Delete a campaign"),
            act(path=f"{one}/duplicate", handler=self.post_duplicate, required_scope=WRITE_SCOPE, status=201, errors=(),
                operation_id="duplicate_campaign", summary="Copy a campaign to a new draft"),
            _operation(method="POST", path=f"{one}/preview", handler=self.post_preview, present=_present_preview,
                       required_scope=READ_SCOPE, response_model=CampaignPreviewResponse, allowed_on_full_disk=True,
                       operation_id="preview_campaign", summary="Show the audience and one message of a campaign", repeatable=True),
            act(path=f"{one}/test", handler=self.post_test, required_scope=SEND_SCOPE, status=202, errors=(),
                operation_id="test_campaign", summary="Send a campaign to named subscribers", tools=(tools.NOTIFICATION_TEST,)),
            act(path=f"{one}/send", handler=self.post_send, required_scope=SEND_SCOPE, status=202,
                errors=(CampaignAlreadySent, WrongCampaignStatus), operation_id="send_campaign", summary="Send a campaign"),
            act(path=f"{one}/schedule", handler=self.post_schedule, required_scope=SEND_SCOPE, operation_id="schedule_campaign",
                summary="Schedule a campaign"),
            act(path=f"{one}/unschedule", handler=self.post_unschedule, required_scope=WRITE_SCOPE,
                operation_id="unschedule_campaign", summary="Return a scheduled campaign to draft"),
            act(path=f"{one}/pause", handler=self.post_pause, required_scope=WRITE_SCOPE, operation_id="pause_campaign",
                summary="Pause a campaign"),
            act(path=f"{one}/resume", handler=self.post_resume, required_scope=SEND_SCOPE, operation_id="resume_campaign",
                summary="Resume a paused campaign"),
            act(path=f"{one}/cancel", handler=self.post_cancel, required_scope=WRITE_SCOPE, operation_id="cancel_campaign",
                summary="Cancel a campaign"),
            act(path=f"{one}/retry", handler=self.post_retry, required_scope=SEND_SCOPE, status=202,
                errors=(Conflict, WrongCampaignStatus), operation_id="retry_campaign", summary="Send failed deliveries again"),
        ]  # fmt: skip

    async def get_campaigns(self, caller: Caller, query: CampaignsQuery) -> ItemPage[CampaignView]:
        """List campaigns, newest first. Tests are left out, unless `test_of` names their campaign."""
        page = await self.campaigns.list_page(
            Tenant.from_caller(caller),
            status=query.status,
            text=query.q,
            test_of=query.test_of,
            page=query.slice,
        )
        return ItemPage(*page)

    async def post_campaign(self, caller: Caller, body: CampaignBody) -> CampaignView:
        """Create a campaign as a draft. Nothing is sent before `send` or `schedule`."""
        return await self.campaigns.create(Tenant.from_caller(caller), body.to_settings(self.clock()))

    async def get_campaign(self, caller: Caller, campaign: str) -> CampaignView:
        """Return a campaign. Its statistics are counts of its deliveries. The ETag changes with its fields and status."""
        return await self.campaigns.get(Tenant.from_caller(caller), campaign)

    async def patch_campaign(self, caller: Caller, campaign: str, body: CampaignChangeBody, expected: ExpectedETags) -> CampaignView:
        """Change a campaign. Fields that are left out keep their value. A scheduled campaign returns to draft."""
        change = body.to_change(self.clock())
        return await self.campaigns.update(Tenant.from_caller(caller), campaign, change, expected=expected)

    async def delete_campaign(self, caller: Caller, campaign: str, expected: ExpectedETags) -> None:
        """Delete a campaign with its deliveries. One that is scheduled, sending or paused must be cancelled first."""
        await self.campaigns.delete(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_duplicate(self, caller: Caller, campaign: str, body: DuplicateBody) -> CampaignView:
        """Create a draft with the fields of a campaign, without its schedule."""
        return await self.campaigns.duplicate(Tenant.from_caller(caller), campaign, name=body.name)

    async def post_preview(self, caller: Caller, campaign: str, body: CampaignPreviewBody) -> CampaignPreview:
        """Return the size of the audience at this moment, what prevents a send, and the message for one subscriber. Nothing is sent."""
        return await self.campaigns.preview(Tenant.from_caller(caller), campaign, subscriber=body.subscriber)

    async def post_test(self, caller: Caller, campaign: str, body: CampaignTestBody) -> CampaignView:
        """
        Send the message to named subscribers at once, whatever the status of the campaign.

        The response is a campaign of its own, with `test_of`; its deliveries show the result.
        """
        return await self.campaigns.test(Tenant.from_caller(caller), campaign, body.to_model())

    async def post_send(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """
        Fix the audience of a draft, a scheduled or a missed campaign, and start to send.

        If a member of the audience has no value for a placeholder, the response is 422 and nothing is sent.
        """
        return await self.campaigns.send(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_schedule(self, caller: Caller, campaign: str, body: ScheduleCampaignBody, expected: ExpectedETags) -> CampaignView:
        """Send a campaign at a time. If no server runs within an hour after it, the campaign is missed and not sent."""
        schedule = body.to_model(self.clock())
        return await self.campaigns.schedule(Tenant.from_caller(caller), campaign, schedule, expected=expected)

    async def post_unschedule(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """Return a scheduled or missed campaign to draft."""
        return await self.campaigns.unschedule(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_pause(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """Pause a campaign. Messages that are being sent are finished."""
        return await self.campaigns.pause(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_resume(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """Resume a paused campaign. Subscribers that it was sent to do not get it again."""
        return await self.campaigns.resume(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_cancel(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """Cancel a campaign. Its pending deliveries are skipped."""
        return await self.campaigns.cancel(Tenant.from_caller(caller), campaign, expected=expected)

    async def post_retry(self, caller: Caller, campaign: str, expected: ExpectedETags) -> CampaignView:
        """Send the failed deliveries of a finished campaign again. Sent and unknown ones are never repeated."""
        return await self.campaigns.retry(Tenant.from_caller(caller), campaign, expected=expected)


def _present(_: Caller, view: CampaignView) -> Output:
    return Output(body=serialize_campaign(view), version=view.campaign.version)


def _present_preview(_: Caller, preview: CampaignPreview) -> CampaignPreviewResponse:
    return CampaignPreviewResponse.from_parts(preview)
