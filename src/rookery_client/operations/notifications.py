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
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, tag: str | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET,
        status: Literal["active", "invalid", "unsubscribed"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Subscriber]:
        """
        List subscribers, newest first.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            tag: Only subscribers with this tag.
            channel: Only subscribers with a channel of this type.
            status: Only subscribers with a channel of this status, and of the type `channel` if both are given.
            q: A part of the external id or of an address.
        """
        return self._session.send_page(Call(
            operation="list_subscribers", method="GET", path="/api/agent/notify/subscribers", result=PageBody[models.Subscriber],
            query=given(cursor=cursor, page=page, per_page=per_page, tag=tag, channel=channel, status=status, q=q),
        ))

    def create_subscriber(
        self, *, external_id: str, tags: Sequence[str] | Unset = UNSET, attributes: Mapping[str, object] | Unset = UNSET,
        locale: str | Unset | None = UNSET, channels: Sequence[inputs.ChannelBody] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Subscriber:
        """
        Create a subscriber. URLs are checked by the same rules as each delivery.

        Requires the scope `notify:write`.

        Args:
            external_id: The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit.
            tags: Groups of subscribers, such as beta. A tag has no comma and no semicolon.
            attributes: Values for placeholders, by names such as first_name.
            locale: The language of the subscriber, such as de or de-AT.
            channels: A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and
                `keys`. The fields of `webpush` are those of the browser's `PushSubscription.toJSON()`. A subscription whose
                `expirationTime` has passed is `invalid`. A channel that is listed again keeps its status unless `status` is given.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_subscriber", method="POST", path="/api/agent/notify/subscribers", result=models.Subscriber,
            body=given(external_id=external_id, tags=tags, attributes=attributes, locale=locale, channels=channels), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def import_subscribers(self, *, content: bytes | str, content_type: str = "application/x-ndjson") -> models.ImportReport:
        """
        Create and change subscribers by their external ids, from JSON Lines or CSV of up to 10 MiB.

        Good lines are stored, and bad ones are reported with their number. A line changes the fields that it has. The command `rookery
        notify subscribers import` takes larger files.

        Requires the scope `notify:write`.
        """
        return self._session.send(Call(
            operation="import_subscribers", method="POST", path="/api/agent/notify/subscribers/import", result=models.ImportReport,
            content=content, content_type=content_type,
        ))

    def export_subscribers(self, *, format: Literal["jsonl", "csv"] | Unset = UNSET) -> str:
        """
        Export all subscribers, oldest first, in a form that can be imported.

        It contains tokens and logins of addresses, which lists hide, so it needs notify:write.

        Requires the scope `notify:write`.

        Args:
            format: jsonl: all fields; csv: active channels, for spreadsheets.
        """
        return self._session.send(Call(
            operation="export_subscribers", method="GET", path="/api/agent/notify/subscribers/export", result=str,
            query=given(format=format), reader="text", accept="application/x-ndjson",
        ))

    def get_subscriber(self, subscriber: str) -> models.Subscriber:
        """
        Return the subscriber with this id or external id.

        Requires the scope `notify:read`.

        Args:
            subscriber: The id or the external id of a subscriber.
        """
        return self._session.send(Call(
            operation="get_subscriber", method="GET", path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber),
            result=models.Subscriber,
        ))

    def update_subscriber(
        self, subscriber: str, *, if_match: str | Unset = UNSET, external_id: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
        channels: Sequence[inputs.ChannelBody] | Unset = UNSET,
    ) -> models.Subscriber:
        """
        Change a subscriber. Fields that are left out keep their value; `channels`, `tags` and `attributes` are replaced as a whole.

        A channel that is listed again keeps its id and its status. `status` sets another one, for example to activate it again.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            external_id: The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit.
            tags: Groups of subscribers, such as beta. A tag has no comma and no semicolon.
            attributes: Values for placeholders, by names such as first_name.
            locale: The language of the subscriber, such as de or de-AT.
            channels: A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and
                `keys`. The fields of `webpush` are those of the browser's `PushSubscription.toJSON()`. A subscription whose
                `expirationTime` has passed is `invalid`. A channel that is listed again keeps its status unless `status` is given.
        """
        return self._session.send(Call(
            operation="update_subscriber", method="PATCH",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=models.Subscriber,
            headers=given(**{"If-Match": if_match}),
            body=given(external_id=external_id, tags=tags, attributes=attributes, locale=locale, channels=channels),
        ))

    def delete_subscriber(self, subscriber: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a subscriber. Its pending deliveries are skipped, and its data is removed from the log of deliveries.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_subscriber", method="DELETE",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def list_campaigns(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed"] | Unset = UNSET,
        q: str | Unset = UNSET, test_of: str | Unset = UNSET,
    ) -> Page[models.Campaign]:
        """
        List campaigns, newest first. Tests are left out, unless `test_of` names their campaign.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only campaigns with this status.
            q: A part of the name.
            test_of: The tests of this campaign, which other lists leave out.
        """
        return self._session.send_page(Call(
            operation="list_campaigns", method="GET", path="/api/agent/notify/campaigns", result=PageBody[models.Campaign],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, q=q, test_of=test_of),
        ))

    def create_campaign(
        self, *, name: str, title: str, body: str, audience: inputs.AudienceBody, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Create a campaign as a draft. Nothing is sent before `send` or `schedule`.

        Requires the scope `notify:write`.

        Args:
            name: The name of the campaign, which is not sent.
            title: The title of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            body: The text of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            audience: The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty
                audience.
            url: The page that the message opens. Values of placeholders are percent-encoded.
            channels: The types of channels to use; null: all.
            variables: Values of placeholders. An attribute of the subscriber with the same name takes precedence.
            rate_per_second: Messages per second, over all processes; null: no limit.
            ttl_s: Seconds after the start; deliveries that are not sent by then fail. Default: `86400`.
            schedule: The time for the verb `schedule`. The campaign stays a draft.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_campaign", method="POST", path="/api/agent/notify/campaigns", result=models.Campaign,
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_campaign(self, campaign: str) -> models.Campaign:
        """
        Return a campaign. Its statistics are counts of its deliveries. The ETag changes with its fields and status.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
        """
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
        """
        Change a campaign. Fields that are left out keep their value. A scheduled campaign returns to draft.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name of the campaign, which is not sent.
            title: The title of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            body: The text of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            url: The page that the message opens. Values of placeholders are percent-encoded.
            channels: The types of channels to use; null: all.
            audience: The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty
                audience.
            variables: Values of placeholders. An attribute of the subscriber with the same name takes precedence.
            rate_per_second: Messages per second, over all processes; null: no limit.
            ttl_s: Seconds after the start; deliveries that are not sent by then fail.
            schedule: The time for the verb `schedule`; null removes it.
        """
        return self._session.send(Call(
            operation="update_campaign", method="PATCH", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
        ))

    def delete_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a campaign with its deliveries. One that is scheduled, sending or paused must be cancelled first.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_campaign", method="DELETE", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def duplicate_campaign(
        self, campaign: str, *, name: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Create a draft with the fields of a campaign, without its schedule.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            name: The name of the copy. Default: that of the campaign.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="duplicate_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/duplicate", campaign=campaign), result=models.Campaign,
            body=given(name=name), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def preview_campaign(self, campaign: str, *, subscriber: str | Unset | None = UNSET) -> models.CampaignPreview:
        """
        Return the size of the audience at this moment, what prevents a send, and the message for one subscriber. Nothing is sent.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            subscriber: The subscriber to render the message for. Default: the first one.
        """
        return self._session.send(Call(
            operation="preview_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/preview", campaign=campaign), result=models.CampaignPreview,
            body=given(subscriber=subscriber), repeatable=True,
        ))

    def test_campaign(
        self, campaign: str, *, subscribers: Sequence[str],
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send the message to named subscribers at once, whatever the status of the campaign.

        The response is a campaign of its own, with `test_of`; its deliveries show the result.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            subscribers: Ids or external ids.
            channels: The types of channels to use; null: all.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="test_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/test", campaign=campaign),
            result=models.Campaign, body=given(subscribers=subscribers, channels=channels), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def send_campaign(self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET) -> models.Campaign:
        """
        Fix the audience of a draft, a scheduled or a missed campaign, and start to send.

        If a member of the audience has no value for a placeholder, the response is 422 and nothing is sent.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="send_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/send", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def schedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, at: str | Unset | None = UNSET, time_zone: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send a campaign at a time. If no server runs within an hour after it, the campaign is missed and not sent.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            at: A local time in `time_zone`, or a time with an offset.
            time_zone: A name of the IANA database. Default: UTC.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="schedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/schedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), body=given(at=at, time_zone=time_zone), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def unschedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Return a scheduled or missed campaign to draft.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="unschedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/unschedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def pause_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Pause a campaign. Messages that are being sent are finished.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="pause_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/pause", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def resume_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Resume a paused campaign. Subscribers that it was sent to do not get it again.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="resume_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/resume", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def cancel_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Cancel a campaign. Its pending deliveries are skipped.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="cancel_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/cancel", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def retry_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send the failed deliveries of a finished campaign again. Sent and unknown ones are never repeated.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="retry_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/retry", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_notifications(
        self, campaign: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "sent", "failed", "unknown", "skipped"] | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET, subscriber: str | Unset = UNSET,
    ) -> Page[models.Notification]:
        """
        List the deliveries of a campaign: one for each channel of each subscriber of its audience.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: The state of the delivery.
            channel: Only deliveries through this channel.
            subscriber: The id or external id of a subscriber.
        """
        return self._session.send_page(Call(
            operation="list_notifications", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries", campaign=campaign), result=PageBody[models.Notification],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, channel=channel, subscriber=subscriber),
        ))

    def get_notification(self, campaign: str, delivery: str) -> models.NotificationDetail:
        """
        Return a delivery with every attempt.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            delivery: The id of a delivery: 32 hexadecimal digits.
        """
        return self._session.send(Call(
            operation="get_notification", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries/{delivery}", campaign=campaign, delivery=delivery),
            result=models.NotificationDetail,
        ))

    def list_outbox(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.OutboxMessage]:
        """
        List the messages of the sandbox, newest first.

        The messages of test keys are stored here and not sent. For a live key the list is empty.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_outbox", method="GET", path="/api/agent/notify/outbox", result=PageBody[models.OutboxMessage],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def clear_outbox(self) -> None:
        """
        Delete all messages of the outbox.

        Requires the scope `notify:write`.
        """
        return self._session.send(Call(
            operation="clear_outbox", method="DELETE", path="/api/agent/notify/outbox", result=type(None), reader="nothing",
        ))

    def rotate_notification_secret(
        self, *, grace_period_hours: int | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.SigningSecret:
        """
        Create or replace the secret that signs messages to webhook channels. It is returned only in this response.

        During the grace period, messages are signed with both secrets.

        Requires the scope `notify:write`.

        Args:
            grace_period_hours: Hours during which the old secret signs too. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="rotate_notification_secret", method="POST", path="/api/agent/notify/webhook-secret/rotate",
            result=models.SigningSecret, body=given(grace_period_hours=grace_period_hours), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def get_vapid_public_key(self) -> models.VapidKey:
        """
        Return the public key with which pages of your own subscribe browsers. It is the same for all workspaces.

        Requires the scope `notify:read`.
        """
        return self._session.send(Call(
            operation="get_vapid_public_key", method="GET", path="/api/agent/notify/vapid-public-key", result=models.VapidKey,
        ))

    def create_subscribe_link(self, subscriber: str, *, expires_in_hours: int | Unset = UNSET) -> models.SubscribeLink:
        """
        Return a link to a page on which a browser subscribes to Web Push for this subscriber.

        Anybody with the link can add a browser, so send it to the subscriber only.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            expires_in_hours: Hours until the link expires. Default: `24`.
        """
        return self._session.send(Call(
            operation="create_subscribe_link", method="POST",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}/subscribe-link", subscriber=subscriber),
            result=models.SubscribeLink, body=given(expires_in_hours=expires_in_hours),
        ))

    def add_browser(
        self, token: str, *, endpoint: str, keys: inputs.PushKeysBody, expiration_time: float | Unset | None = UNSET,
    ) -> models.Subscribed:
        """
        Add a browser to the channels of the subscriber that the link is for.

        No key is required. Does not count against the key's rate limit.

        Args:
            token: The signed token of a link.
            endpoint: The address of the browser's push service.
            keys: The keys of a browser's push subscription.
            expiration_time: When a push subscription ends, in milliseconds since 1970, as browsers give it. Default: it does not.
        """
        return self._session.send(Call(
            operation="add_browser", method="POST", path=fill_path("/notify/subscribe/{token}", token=token), result=models.Subscribed,
            body=given(endpoint=endpoint, keys=keys, **{"expirationTime": expiration_time}),
        ))


class AsyncNotificationsOperations:
    """Operations of `client.notifications`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_subscribers(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, tag: str | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET,
        status: Literal["active", "invalid", "unsubscribed"] | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Subscriber]:
        """
        List subscribers, newest first.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            tag: Only subscribers with this tag.
            channel: Only subscribers with a channel of this type.
            status: Only subscribers with a channel of this status, and of the type `channel` if both are given.
            q: A part of the external id or of an address.
        """
        return await self._session.send_page(Call(
            operation="list_subscribers", method="GET", path="/api/agent/notify/subscribers", result=PageBody[models.Subscriber],
            query=given(cursor=cursor, page=page, per_page=per_page, tag=tag, channel=channel, status=status, q=q),
        ))

    async def create_subscriber(
        self, *, external_id: str, tags: Sequence[str] | Unset = UNSET, attributes: Mapping[str, object] | Unset = UNSET,
        locale: str | Unset | None = UNSET, channels: Sequence[inputs.ChannelBody] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Subscriber:
        """
        Create a subscriber. URLs are checked by the same rules as each delivery.

        Requires the scope `notify:write`.

        Args:
            external_id: The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit.
            tags: Groups of subscribers, such as beta. A tag has no comma and no semicolon.
            attributes: Values for placeholders, by names such as first_name.
            locale: The language of the subscriber, such as de or de-AT.
            channels: A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and
                `keys`. The fields of `webpush` are those of the browser's `PushSubscription.toJSON()`. A subscription whose
                `expirationTime` has passed is `invalid`. A channel that is listed again keeps its status unless `status` is given.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_subscriber", method="POST", path="/api/agent/notify/subscribers", result=models.Subscriber,
            body=given(external_id=external_id, tags=tags, attributes=attributes, locale=locale, channels=channels), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def import_subscribers(self, *, content: bytes | str, content_type: str = "application/x-ndjson") -> models.ImportReport:
        """
        Create and change subscribers by their external ids, from JSON Lines or CSV of up to 10 MiB.

        Good lines are stored, and bad ones are reported with their number. A line changes the fields that it has. The command `rookery
        notify subscribers import` takes larger files.

        Requires the scope `notify:write`.
        """
        return await self._session.send(Call(
            operation="import_subscribers", method="POST", path="/api/agent/notify/subscribers/import", result=models.ImportReport,
            content=content, content_type=content_type,
        ))

    async def export_subscribers(self, *, format: Literal["jsonl", "csv"] | Unset = UNSET) -> str:
        """
        Export all subscribers, oldest first, in a form that can be imported.

        It contains tokens and logins of addresses, which lists hide, so it needs notify:write.

        Requires the scope `notify:write`.

        Args:
            format: jsonl: all fields; csv: active channels, for spreadsheets.
        """
        return await self._session.send(Call(
            operation="export_subscribers", method="GET", path="/api/agent/notify/subscribers/export", result=str,
            query=given(format=format), reader="text", accept="application/x-ndjson",
        ))

    async def get_subscriber(self, subscriber: str) -> models.Subscriber:
        """
        Return the subscriber with this id or external id.

        Requires the scope `notify:read`.

        Args:
            subscriber: The id or the external id of a subscriber.
        """
        return await self._session.send(Call(
            operation="get_subscriber", method="GET", path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber),
            result=models.Subscriber,
        ))

    async def update_subscriber(
        self, subscriber: str, *, if_match: str | Unset = UNSET, external_id: str | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET, attributes: Mapping[str, object] | Unset = UNSET, locale: str | Unset | None = UNSET,
        channels: Sequence[inputs.ChannelBody] | Unset = UNSET,
    ) -> models.Subscriber:
        """
        Change a subscriber. Fields that are left out keep their value; `channels`, `tags` and `attributes` are replaced as a whole.

        A channel that is listed again keeps its id and its status. `status` sets another one, for example to activate it again.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            external_id: The id in your own system: letters, digits and . _ @ : + = ~ -, beginning with a letter or a digit.
            tags: Groups of subscribers, such as beta. A tag has no comma and no semicolon.
            attributes: Values for placeholders, by names such as first_name.
            locale: The language of the subscriber, such as de or de-AT.
            channels: A channel: `webhook`, `ntfy` and `apprise` with `url`, `email` with `address`, `webpush` with `endpoint` and
                `keys`. The fields of `webpush` are those of the browser's `PushSubscription.toJSON()`. A subscription whose
                `expirationTime` has passed is `invalid`. A channel that is listed again keeps its status unless `status` is given.
        """
        return await self._session.send(Call(
            operation="update_subscriber", method="PATCH",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=models.Subscriber,
            headers=given(**{"If-Match": if_match}),
            body=given(external_id=external_id, tags=tags, attributes=attributes, locale=locale, channels=channels),
        ))

    async def delete_subscriber(self, subscriber: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a subscriber. Its pending deliveries are skipped, and its data is removed from the log of deliveries.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_subscriber", method="DELETE",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}", subscriber=subscriber), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def list_campaigns(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "scheduled", "sending", "paused", "sent", "cancelled", "failed", "missed"] | Unset = UNSET,
        q: str | Unset = UNSET, test_of: str | Unset = UNSET,
    ) -> AsyncPage[models.Campaign]:
        """
        List campaigns, newest first. Tests are left out, unless `test_of` names their campaign.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only campaigns with this status.
            q: A part of the name.
            test_of: The tests of this campaign, which other lists leave out.
        """
        return await self._session.send_page(Call(
            operation="list_campaigns", method="GET", path="/api/agent/notify/campaigns", result=PageBody[models.Campaign],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, q=q, test_of=test_of),
        ))

    async def create_campaign(
        self, *, name: str, title: str, body: str, audience: inputs.AudienceBody, url: str | Unset | None = UNSET,
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        variables: Mapping[str, object] | Unset = UNSET, rate_per_second: float | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        schedule: inputs.ScheduleBody | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Create a campaign as a draft. Nothing is sent before `send` or `schedule`.

        Requires the scope `notify:write`.

        Args:
            name: The name of the campaign, which is not sent.
            title: The title of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            body: The text of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            audience: The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty
                audience.
            url: The page that the message opens. Values of placeholders are percent-encoded.
            channels: The types of channels to use; null: all.
            variables: Values of placeholders. An attribute of the subscriber with the same name takes precedence.
            rate_per_second: Messages per second, over all processes; null: no limit.
            ttl_s: Seconds after the start; deliveries that are not sent by then fail. Default: `86400`.
            schedule: The time for the verb `schedule`. The campaign stays a draft.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_campaign", method="POST", path="/api/agent/notify/campaigns", result=models.Campaign,
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_campaign(self, campaign: str) -> models.Campaign:
        """
        Return a campaign. Its statistics are counts of its deliveries. The ETag changes with its fields and status.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
        """
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
        """
        Change a campaign. Fields that are left out keep their value. A scheduled campaign returns to draft.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name of the campaign, which is not sent.
            title: The title of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            body: The text of the message. Placeholders such as {{ first_name }} are variables of the campaign or attributes of the
                subscriber.
            url: The page that the message opens. Values of placeholders are percent-encoded.
            channels: The types of channels to use; null: all.
            audience: The receivers: `all`, or the subscribers with one of `tags` and the named ones. An empty object is an empty
                audience.
            variables: Values of placeholders. An attribute of the subscriber with the same name takes precedence.
            rate_per_second: Messages per second, over all processes; null: no limit.
            ttl_s: Seconds after the start; deliveries that are not sent by then fail.
            schedule: The time for the verb `schedule`; null removes it.
        """
        return await self._session.send(Call(
            operation="update_campaign", method="PATCH", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, title=title, body=body, url=url, channels=channels, audience=audience, variables=variables,
                rate_per_second=rate_per_second, ttl_s=ttl_s, schedule=schedule,
            ),
        ))

    async def delete_campaign(self, campaign: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Delete a campaign with its deliveries. One that is scheduled, sending or paused must be cancelled first.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_campaign", method="DELETE", path=fill_path("/api/agent/notify/campaigns/{campaign}", campaign=campaign),
            result=type(None), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def duplicate_campaign(
        self, campaign: str, *, name: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Create a draft with the fields of a campaign, without its schedule.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            name: The name of the copy. Default: that of the campaign.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="duplicate_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/duplicate", campaign=campaign), result=models.Campaign,
            body=given(name=name), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def preview_campaign(self, campaign: str, *, subscriber: str | Unset | None = UNSET) -> models.CampaignPreview:
        """
        Return the size of the audience at this moment, what prevents a send, and the message for one subscriber. Nothing is sent.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            subscriber: The subscriber to render the message for. Default: the first one.
        """
        return await self._session.send(Call(
            operation="preview_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/preview", campaign=campaign), result=models.CampaignPreview,
            body=given(subscriber=subscriber), repeatable=True,
        ))

    async def test_campaign(
        self, campaign: str, *, subscribers: Sequence[str],
        channels: Sequence[Literal["webhook", "email", "ntfy", "webpush", "apprise"]] | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send the message to named subscribers at once, whatever the status of the campaign.

        The response is a campaign of its own, with `test_of`; its deliveries show the result.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            subscribers: Ids or external ids.
            channels: The types of channels to use; null: all.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="test_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/test", campaign=campaign),
            result=models.Campaign, body=given(subscribers=subscribers, channels=channels), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def send_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Fix the audience of a draft, a scheduled or a missed campaign, and start to send.

        If a member of the audience has no value for a placeholder, the response is 422 and nothing is sent.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="send_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/send", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def schedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, at: str | Unset | None = UNSET, time_zone: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send a campaign at a time. If no server runs within an hour after it, the campaign is missed and not sent.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            at: A local time in `time_zone`, or a time with an offset.
            time_zone: A name of the IANA database. Default: UTC.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="schedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/schedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), body=given(at=at, time_zone=time_zone), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def unschedule_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Return a scheduled or missed campaign to draft.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="unschedule_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/unschedule", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def pause_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Pause a campaign. Messages that are being sent are finished.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="pause_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/pause", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def resume_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Resume a paused campaign. Subscribers that it was sent to do not get it again.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="resume_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/resume", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def cancel_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Cancel a campaign. Its pending deliveries are skipped.

        Requires the scope `notify:write`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="cancel_campaign", method="POST",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/cancel", campaign=campaign), result=models.Campaign,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def retry_campaign(
        self, campaign: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Campaign:
        """
        Send the failed deliveries of a finished campaign again. Sent and unknown ones are never repeated.

        Requires the scope `notify:send`.

        Args:
            campaign: The id of a campaign.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="retry_campaign", method="POST", path=fill_path("/api/agent/notify/campaigns/{campaign}/retry", campaign=campaign),
            result=models.Campaign, headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_notifications(
        self, campaign: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "sending", "sent", "failed", "unknown", "skipped"] | Unset = UNSET,
        channel: Literal["webhook", "email", "ntfy", "webpush", "apprise"] | Unset = UNSET, subscriber: str | Unset = UNSET,
    ) -> AsyncPage[models.Notification]:
        """
        List the deliveries of a campaign: one for each channel of each subscriber of its audience.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: The state of the delivery.
            channel: Only deliveries through this channel.
            subscriber: The id or external id of a subscriber.
        """
        return await self._session.send_page(Call(
            operation="list_notifications", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries", campaign=campaign), result=PageBody[models.Notification],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, channel=channel, subscriber=subscriber),
        ))

    async def get_notification(self, campaign: str, delivery: str) -> models.NotificationDetail:
        """
        Return a delivery with every attempt.

        Requires the scope `notify:read`.

        Args:
            campaign: The id of a campaign.
            delivery: The id of a delivery: 32 hexadecimal digits.
        """
        return await self._session.send(Call(
            operation="get_notification", method="GET",
            path=fill_path("/api/agent/notify/campaigns/{campaign}/deliveries/{delivery}", campaign=campaign, delivery=delivery),
            result=models.NotificationDetail,
        ))

    async def list_outbox(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.OutboxMessage]:
        """
        List the messages of the sandbox, newest first.

        The messages of test keys are stored here and not sent. For a live key the list is empty.

        Requires the scope `notify:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_outbox", method="GET", path="/api/agent/notify/outbox", result=PageBody[models.OutboxMessage],
            query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def clear_outbox(self) -> None:
        """
        Delete all messages of the outbox.

        Requires the scope `notify:write`.
        """
        return await self._session.send(Call(
            operation="clear_outbox", method="DELETE", path="/api/agent/notify/outbox", result=type(None), reader="nothing",
        ))

    async def rotate_notification_secret(
        self, *, grace_period_hours: int | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.SigningSecret:
        """
        Create or replace the secret that signs messages to webhook channels. It is returned only in this response.

        During the grace period, messages are signed with both secrets.

        Requires the scope `notify:write`.

        Args:
            grace_period_hours: Hours during which the old secret signs too. Default: `24`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="rotate_notification_secret", method="POST", path="/api/agent/notify/webhook-secret/rotate",
            result=models.SigningSecret, body=given(grace_period_hours=grace_period_hours), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def get_vapid_public_key(self) -> models.VapidKey:
        """
        Return the public key with which pages of your own subscribe browsers. It is the same for all workspaces.

        Requires the scope `notify:read`.
        """
        return await self._session.send(Call(
            operation="get_vapid_public_key", method="GET", path="/api/agent/notify/vapid-public-key", result=models.VapidKey,
        ))

    async def create_subscribe_link(self, subscriber: str, *, expires_in_hours: int | Unset = UNSET) -> models.SubscribeLink:
        """
        Return a link to a page on which a browser subscribes to Web Push for this subscriber.

        Anybody with the link can add a browser, so send it to the subscriber only.

        Requires the scope `notify:write`.

        Args:
            subscriber: The id or the external id of a subscriber.
            expires_in_hours: Hours until the link expires. Default: `24`.
        """
        return await self._session.send(Call(
            operation="create_subscribe_link", method="POST",
            path=fill_path("/api/agent/notify/subscribers/{subscriber}/subscribe-link", subscriber=subscriber),
            result=models.SubscribeLink, body=given(expires_in_hours=expires_in_hours),
        ))

    async def add_browser(
        self, token: str, *, endpoint: str, keys: inputs.PushKeysBody, expiration_time: float | Unset | None = UNSET,
    ) -> models.Subscribed:
        """
        Add a browser to the channels of the subscriber that the link is for.

        No key is required. Does not count against the key's rate limit.

        Args:
            token: The signed token of a link.
            endpoint: The address of the browser's push service.
            keys: The keys of a browser's push subscription.
            expiration_time: When a push subscription ends, in milliseconds since 1970, as browsers give it. Default: it does not.
        """
        return await self._session.send(Call(
            operation="add_browser", method="POST", path=fill_path("/notify/subscribe/{token}", token=token), result=models.Subscribed,
            body=given(endpoint=endpoint, keys=keys, **{"expirationTime": expiration_time}),
        ))
