"""
Operations of `client.notifications`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class NotificationsOperations:
    """Operations of `client.notifications`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_subscribers(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, tag: str | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET,
        status: Literal["active", "invalid", "unsubscribed"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Subscriber]:
        """List subscribers, newest first."""
        return self._session.send_page(Call(
            operation="list_subscribers", method="GET", path="/api/agent/notify/subscribers", result=PageBody[models.Subscriber],
            query=given(page=page, per_page=per_page, tag=tag, channel=channel, status=status, q=q),
        ))

    def create_subscriber(
        self, *, external_id: str, channels: Sequence[inputs.ChannelBody] | Unset = UNSET, tags: Sequence[str] | Unset = UNSET,
        attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
    ) -> models.Subscriber:
        """Create a subscriber."""
        return self._session.send(Call(
            operation="create_subscriber", method="POST", path="/api/agent/notify/subscribers", result=models.Subscriber,
            body=given(external_id=external_id, channels=channels, tags=tags, attributes=attributes, locale=locale), accepts_key=True,
        ))

    def import_subscribers(self, *, content: bytes | str, content_type: str = "application/x-ndjson") -> models.ImportReport:
        """Create and change many subscribers."""
        return self._session.send(Call(
            operation="import_subscribers", method="POST", path="/api/agent/notify/subscribers/import", result=models.ImportReport,
            content=content, content_type=content_type,
        ))

    def export_subscribers(self, *, format: Literal["jsonl", "csv"] | Unset = UNSET) -> str:
        """Export all subscribers."""
        return self._session.send(Call(
            operation="export_subscribers", method="GET", path="/api/agent/notify/subscribers/export", result=str,
            query=given(format=format), reader="text", accept="application/x-ndjson",
        ))

    def get_subscriber(self, subscriber: str) -> models.Subscriber:
        """Show a subscriber."""
        return self._session.send(Call(
            operation="get_subscriber", method="GET", path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber),
            result=models.Subscriber,
        ))

    def update_subscriber(
        self, subscriber: str, *, if_match: str | Unset = UNSET, external_id: str | Unset = UNSET,
        channels: Sequence[inputs.ChannelBody] | Unset = UNSET, tags: Sequence[str] | Unset = UNSET,
        attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
    ) -> models.Subscriber:
        """Change a subscriber."""
        return self._session.send(Call(
            operation="update_subscriber", method="PATCH",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=models.Subscriber,
            headers=given(**{"If-Match": if_match}),
            body=given(external_id=external_id, channels=channels, tags=tags, attributes=attributes, locale=locale),
        ))

    def delete_subscriber(self, subscriber: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a subscriber and its data."""
        return self._session.send(Call(
            operation="delete_subscriber", method="DELETE",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_campaigns(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed"] | Unset = UNSET,
        q: str | Unset = UNSET, test_of: str | Unset = UNSET,
    ) -> Page[models.Campaign]:
        """List campaigns, newest first."""
        return self._session.send_page(Call(
            operation="list_campaigns", method="GET", path="/api/agent/notify/campaigns", result=PageBody[models.Campaign],
            query=given(page=page, per_page=per_page, status=status, q=q, test_of=test_of),
        ))

    def create_campaign(
        self, *, name: str, title: str, body: str, audience: inputs.AudienceBody, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET,
    ) -> models.Campaign:
        """Create a campaign."""
        return self._session.send(Call(
            operation="create_campaign", method="POST", path="/api/agent/notify/campaigns", result=models.Campaign,
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
            accepts_key=True,
        ))

    def get_campaign(self, campaign: str) -> models.Campaign:
        """Show a campaign with its statistics."""
        return self._session.send(Call(
            operation="get_campaign", method="GET", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign,
        ))

    def update_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, title: str | Unset = UNSET,
        body: str | Unset = UNSET, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        audience: inputs.AudienceBody | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET,
    ) -> models.Campaign:
        """Change a draft or a scheduled campaign."""
        return self._session.send(Call(
            operation="update_campaign", method="PATCH", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
        ))

    def delete_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a campaign."""
        return self._session.send(Call(
            operation="delete_campaign", method="DELETE", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def duplicate_campaign(self, campaign: str, *, name: str | Unset | None = UNSET) -> models.Campaign:
        """Copy a campaign to a new draft."""
        return self._session.send(Call(
            operation="duplicate_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/duplicate", campaign=campaign), result=models.Campaign,
            body=given(name=name), accepts_key=True,
        ))

    def preview_campaign(self, campaign: str, *, subscriber: str | Unset | None = UNSET) -> models.CampaignPreview:
        """Show the audience and one message of a campaign."""
        return self._session.send(Call(
            operation="preview_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/preview", campaign=campaign), result=models.CampaignPreview,
            body=given(subscriber=subscriber),
        ))

    def test_campaign(
        self, campaign: str, *, subscribers: Sequence[str],
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
    ) -> models.Campaign:
        """Send a campaign to named subscribers."""
        return self._session.send(Call(
            operation="test_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/test", campaign=campaign),
            result=models.Campaign, body=given(subscribers=subscribers, channels=channels), accepts_key=True,
        ))

    def send_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Send a campaign."""
        return self._session.send(Call(
            operation="send_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/send", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def schedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, at: str | Unset | None = UNSET, time_zone: str | Unset | None = UNSET,
    ) -> models.Campaign:
        """Schedule a campaign."""
        return self._session.send(Call(
            operation="schedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/schedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), body=given(at=at, time_zone=time_zone), accepts_key=True,
        ))

    def unschedule_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Return a scheduled campaign to draft."""
        return self._session.send(Call(
            operation="unschedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/unschedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def pause_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Pause a campaign."""
        return self._session.send(Call(
            operation="pause_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/pause", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def resume_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Resume a paused campaign."""
        return self._session.send(Call(
            operation="resume_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/resume", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def cancel_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Cancel a campaign."""
        return self._session.send(Call(
            operation="cancel_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/cancel", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def retry_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Send failed deliveries again."""
        return self._session.send(Call(
            operation="retry_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/retry", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def list_notifications(
        self, campaign: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "sent", "failed", "unknown", "skipped"] | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET, subscriber: str | Unset = UNSET,
    ) -> Page[models.Notification]:
        """List the deliveries of a campaign."""
        return self._session.send_page(Call(
            operation="list_notifications", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries", campaign=campaign), result=PageBody[models.Notification],
            query=given(page=page, per_page=per_page, status=status, channel=channel, subscriber=subscriber),
        ))

    def get_notification(self, campaign: str, delivery: str) -> models.NotificationDetail:
        """Show a delivery with its attempts."""
        return self._session.send(Call(
            operation="get_notification", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries/{delivery}", campaign=campaign, delivery=delivery),
            result=models.NotificationDetail,
        ))

    def list_outbox(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> Page[models.OutboxMessage]:
        """List the messages that a test key would have sent."""
        return self._session.send_page(Call(
            operation="list_outbox", method="GET", path="/api/agent/notify/outbox", result=PageBody[models.OutboxMessage],
            query=given(page=page, per_page=per_page),
        ))

    def clear_outbox(self) -> None:
        """Clear the outbox of a test key."""
        return self._session.send(Call(
            operation="clear_outbox", method="DELETE", path="/api/agent/notify/outbox", result=type(None), reader="nothing",
        ))

    def rotate_notification_secret(self, *, grace_period_hours: int | Unset = UNSET) -> models.SigningSecret:
        """Replace the secret that signs webhook messages."""
        return self._session.send(Call(
            operation="rotate_notification_secret", method="POST", path="/api/agent/notify/webhook-secret/rotate",
            result=models.SigningSecret, body=given(grace_period_hours=grace_period_hours), accepts_key=True,
        ))

    def get_vapid_public_key(self) -> models.VapidKey:
        """Show the public key of Web Push."""
        return self._session.send(Call(
            operation="get_vapid_public_key", method="GET", path="/api/agent/notify/vapid-public-key", result=models.VapidKey,
        ))

    def create_subscribe_link(self, subscriber: str, *, expires_in_hours: int | Unset = UNSET) -> models.SubscribeLink:
        """Create a link with which a browser subscribes."""
        return self._session.send(Call(
            operation="create_subscribe_link", method="POST",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}/subscribe-link", subscriber=subscriber),
            result=models.SubscribeLink, body=given(expires_in_hours=expires_in_hours),
        ))

    def add_browser(
        self, token: str, *, endpoint: str, keys: inputs.PushKeysBody, expiration_time: float | Unset | None = UNSET,
    ) -> models.Subscribed:
        """Subscribe a browser."""
        return self._session.send(Call(
            operation="add_browser", method="POST", path=fill_path("/notify/subscribe/{token}", token=token), result=models.Subscribed,
            body=given(endpoint=endpoint, keys=keys, **{"expirationTime": expiration_time}),
        ))


class AsyncNotificationsOperations:
    """Operations of `client.notifications`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_subscribers(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, tag: str | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET,
        status: Literal["active", "invalid", "unsubscribed"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Subscriber]:
        """List subscribers, newest first."""
        return await self._session.send_page(Call(
            operation="list_subscribers", method="GET", path="/api/agent/notify/subscribers", result=PageBody[models.Subscriber],
            query=given(page=page, per_page=per_page, tag=tag, channel=channel, status=status, q=q),
        ))

    async def create_subscriber(
        self, *, external_id: str, channels: Sequence[inputs.ChannelBody] | Unset = UNSET, tags: Sequence[str] | Unset = UNSET,
        attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
    ) -> models.Subscriber:
        """Create a subscriber."""
        return await self._session.send(Call(
            operation="create_subscriber", method="POST", path="/api/agent/notify/subscribers", result=models.Subscriber,
            body=given(external_id=external_id, channels=channels, tags=tags, attributes=attributes, locale=locale), accepts_key=True,
        ))

    async def import_subscribers(self, *, content: bytes | str, content_type: str = "application/x-ndjson") -> models.ImportReport:
        """Create and change many subscribers."""
        return await self._session.send(Call(
            operation="import_subscribers", method="POST", path="/api/agent/notify/subscribers/import", result=models.ImportReport,
            content=content, content_type=content_type,
        ))

    async def export_subscribers(self, *, format: Literal["jsonl", "csv"] | Unset = UNSET) -> str:
        """Export all subscribers."""
        return await self._session.send(Call(
            operation="export_subscribers", method="GET", path="/api/agent/notify/subscribers/export", result=str,
            query=given(format=format), reader="text", accept="application/x-ndjson",
        ))

    async def get_subscriber(self, subscriber: str) -> models.Subscriber:
        """Show a subscriber."""
        return await self._session.send(Call(
            operation="get_subscriber", method="GET", path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber),
            result=models.Subscriber,
        ))

    async def update_subscriber(
        self, subscriber: str, *, if_match: str | Unset = UNSET, external_id: str | Unset = UNSET,
        channels: Sequence[inputs.ChannelBody] | Unset = UNSET, tags: Sequence[str] | Unset = UNSET,
        attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
    ) -> models.Subscriber:
        """Change a subscriber."""
        return await self._session.send(Call(
            operation="update_subscriber", method="PATCH",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=models.Subscriber,
            headers=given(**{"If-Match": if_match}),
            body=given(external_id=external_id, channels=channels, tags=tags, attributes=attributes, locale=locale),
        ))

    async def delete_subscriber(self, subscriber: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a subscriber and its data."""
        return await self._session.send(Call(
            operation="delete_subscriber", method="DELETE",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_campaigns(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed"] | Unset = UNSET,
        q: str | Unset = UNSET, test_of: str | Unset = UNSET,
    ) -> AsyncPage[models.Campaign]:
        """List campaigns, newest first."""
        return await self._session.send_page(Call(
            operation="list_campaigns", method="GET", path="/api/agent/notify/campaigns", result=PageBody[models.Campaign],
            query=given(page=page, per_page=per_page, status=status, q=q, test_of=test_of),
        ))

    async def create_campaign(
        self, *, name: str, title: str, body: str, audience: inputs.AudienceBody, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET,
    ) -> models.Campaign:
        """Create a campaign."""
        return await self._session.send(Call(
            operation="create_campaign", method="POST", path="/api/agent/notify/campaigns", result=models.Campaign,
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
            accepts_key=True,
        ))

    async def get_campaign(self, campaign: str) -> models.Campaign:
        """Show a campaign with its statistics."""
        return await self._session.send(Call(
            operation="get_campaign", method="GET", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign,
        ))

    async def update_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, title: str | Unset = UNSET,
        body: str | Unset = UNSET, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        audience: inputs.AudienceBody | Unset = UNSET, variables: Mapping[str, object] | Unset = UNSET,
        rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET,
    ) -> models.Campaign:
        """Change a draft or a scheduled campaign."""
        return await self._session.send(Call(
            operation="update_campaign", method="PATCH", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
        ))

    async def delete_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> None:
        """Delete a campaign."""
        return await self._session.send(Call(
            operation="delete_campaign", method="DELETE", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def duplicate_campaign(self, campaign: str, *, name: str | Unset | None = UNSET) -> models.Campaign:
        """Copy a campaign to a new draft."""
        return await self._session.send(Call(
            operation="duplicate_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/duplicate", campaign=campaign), result=models.Campaign,
            body=given(name=name), accepts_key=True,
        ))

    async def preview_campaign(self, campaign: str, *, subscriber: str | Unset | None = UNSET) -> models.CampaignPreview:
        """Show the audience and one message of a campaign."""
        return await self._session.send(Call(
            operation="preview_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/preview", campaign=campaign), result=models.CampaignPreview,
            body=given(subscriber=subscriber),
        ))

    async def test_campaign(
        self, campaign: str, *, subscribers: Sequence[str],
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
    ) -> models.Campaign:
        """Send a campaign to named subscribers."""
        return await self._session.send(Call(
            operation="test_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/test", campaign=campaign),
            result=models.Campaign, body=given(subscribers=subscribers, channels=channels), accepts_key=True,
        ))

    async def send_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Send a campaign."""
        return await self._session.send(Call(
            operation="send_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/send", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def schedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, at: str | Unset | None = UNSET, time_zone: str | Unset | None = UNSET,
    ) -> models.Campaign:
        """Schedule a campaign."""
        return await self._session.send(Call(
            operation="schedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/schedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), body=given(at=at, time_zone=time_zone), accepts_key=True,
        ))

    async def unschedule_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Return a scheduled campaign to draft."""
        return await self._session.send(Call(
            operation="unschedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/unschedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def pause_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Pause a campaign."""
        return await self._session.send(Call(
            operation="pause_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/pause", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def resume_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Resume a paused campaign."""
        return await self._session.send(Call(
            operation="resume_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/resume", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def cancel_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Cancel a campaign."""
        return await self._session.send(Call(
            operation="cancel_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/cancel", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def retry_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> models.Campaign:
        """Send failed deliveries again."""
        return await self._session.send(Call(
            operation="retry_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/retry", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def list_notifications(
        self, campaign: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "sent", "failed", "unknown", "skipped"] | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET, subscriber: str | Unset = UNSET,
    ) -> AsyncPage[models.Notification]:
        """List the deliveries of a campaign."""
        return await self._session.send_page(Call(
            operation="list_notifications", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries", campaign=campaign), result=PageBody[models.Notification],
            query=given(page=page, per_page=per_page, status=status, channel=channel, subscriber=subscriber),
        ))

    async def get_notification(self, campaign: str, delivery: str) -> models.NotificationDetail:
        """Show a delivery with its attempts."""
        return await self._session.send(Call(
            operation="get_notification", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries/{delivery}", campaign=campaign, delivery=delivery),
            result=models.NotificationDetail,
        ))

    async def list_outbox(self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> AsyncPage[models.OutboxMessage]:
        """List the messages that a test key would have sent."""
        return await self._session.send_page(Call(
            operation="list_outbox", method="GET", path="/api/agent/notify/outbox", result=PageBody[models.OutboxMessage],
            query=given(page=page, per_page=per_page),
        ))

    async def clear_outbox(self) -> None:
        """Clear the outbox of a test key."""
        return await self._session.send(Call(
            operation="clear_outbox", method="DELETE", path="/api/agent/notify/outbox", result=type(None), reader="nothing",
        ))

    async def rotate_notification_secret(self, *, grace_period_hours: int | Unset = UNSET) -> models.SigningSecret:
        """Replace the secret that signs webhook messages."""
        return await self._session.send(Call(
            operation="rotate_notification_secret", method="POST", path="/api/agent/notify/webhook-secret/rotate",
            result=models.SigningSecret, body=given(grace_period_hours=grace_period_hours), accepts_key=True,
        ))

    async def get_vapid_public_key(self) -> models.VapidKey:
        """Show the public key of Web Push."""
        return await self._session.send(Call(
            operation="get_vapid_public_key", method="GET", path="/api/agent/notify/vapid-public-key", result=models.VapidKey,
        ))

    async def create_subscribe_link(self, subscriber: str, *, expires_in_hours: int | Unset = UNSET) -> models.SubscribeLink:
        """Create a link with which a browser subscribes."""
        return await self._session.send(Call(
            operation="create_subscribe_link", method="POST",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}/subscribe-link", subscriber=subscriber),
            result=models.SubscribeLink, body=given(expires_in_hours=expires_in_hours),
        ))

    async def add_browser(
        self, token: str, *, endpoint: str, keys: inputs.PushKeysBody, expiration_time: float | Unset | None = UNSET,
    ) -> models.Subscribed:
        """Subscribe a browser."""
        return await self._session.send(Call(
            operation="add_browser", method="POST", path=fill_path("/notify/subscribe/{token}", token=token), result=models.Subscribed,
            body=given(endpoint=endpoint, keys=keys, **{"expirationTime": expiration_time}),
        ))
