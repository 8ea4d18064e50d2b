"""Changes that a subscriber makes with a signed link: a browser subscribes, or a channel is unsubscribed."""

from __future__ import annotations

from rookery.access.models import Actor, Tenant
from rookery.kernel.clock import Clock
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.preconditions import PreconditionFailed, format_etag
from rookery.notifications.addresses import find_address_error, find_push_key_errors
from rookery.notifications.links import LinkExpired, PublicLinks
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import ChannelDraft, ChannelStatus, SubscriberChange
from rookery.notifications.subscribers import Subscribers

MAX_PUSH_CHANNELS = 20
"""Maximum number of browsers of a subscriber that links can add."""

_MAX_TRIES = 5
_BY_SUBSCRIBER = Actor(kind="system", name="subscriber's link")
_UNSUBSCRIBE_REASON = "The subscriber followed the unsubscribe link."


class PublicSubscriptions:
    """Applies the changes of links. The token is verified with each call."""

    def __init__(self, subscribers: Subscribers, links: PublicLinks, clock: Clock) -> None:
        self._subscribers = subscribers
        self._links = links
        self._clock = clock

    async def subscribe_browser(self, token: str, *, endpoint: str, p256dh: str, auth: str, ends_at_ms: float | None = None) -> None:
        """
        Add a browser to the channels of the subscriber, or activate it again. Idempotent.

        Raises:
            LinkInvalid: The token is invalid.
            LinkExpired: The token has expired, or the subscriber no longer exists.
            ValidationFailed: The subscription is invalid, or its address is not allowed.
            Conflict: The subscriber has too many browsers.
        """
        errors = {name: [error] for name, error in find_push_key_errors(p256dh, auth).items()}
        if (error := find_address_error(ChannelType.WEBPUSH, endpoint)) is not None:
            errors["endpoint"] = [error]
        new = ChannelDraft(
            type=ChannelType.WEBPUSH, address=endpoint, p256dh=p256dh, auth=auth, status=ChannelStatus.ACTIVE, ends_at_ms=ends_at_ms
        )
        if new.has_ended(self._clock()):
            errors["expirationTime"] = ["has passed; let the browser subscribe again"]
        if errors:
            raise ValidationFailed(errors)
        grant = await self._links.read_subscribe_token(token)
        tenant = Tenant(workspace_id=grant.workspace_id, public_workspace_id=grant.public_workspace_id, by=_BY_SUBSCRIBER)
        for _ in range(_MAX_TRIES):
            try:
                view = await self._subscribers.get(tenant, grant.subscriber_id)
                others = [channel for channel in view.channels if (channel.type, channel.address) != (new.type, new.address)]
                if sum(channel.type is ChannelType.WEBPUSH for channel in others) >= MAX_PUSH_CHANNELS:
                    raise Conflict(f"This subscriber has {MAX_PUSH_CHANNELS} browsers, the maximum.")
                drafts = [
                    ChannelDraft(type=channel.type, address=channel.address, p256dh=channel.p256dh, auth=channel.auth) for channel in others
                ]
                change = SubscriberChange.of(channels=(*drafts, new))
                await self._subscribers.update(tenant, grant.subscriber_id, change, expected=frozenset({format_etag(view.version)}))
            except PreconditionFailed:
                continue  # changed meanwhile
            except ValidationFailed as error:  # the only address that is checked is the new one
                raise ValidationFailed({"endpoint": [text for texts in error.field_errors.values() for text in texts]}) from None
            except NotFound:
                raise LinkExpired("This link is no longer valid: the subscriber was deleted.") from None
            return
        raise Conflict("The subscriber is being changed by many requests. Try again.")

    async def require_subscribe_token(self, token: str) -> None:
        """Check a token without using it. Raises `LinkInvalid` or `LinkExpired`."""
        await self._links.read_subscribe_token(token)

    async def require_unsubscribe_token(self, token: str) -> None:
        """Check a token without using it, for a page that must not change anything. Raises `LinkInvalid`."""
        await self._links.read_unsubscribe_token(token)

    async def unsubscribe(self, token: str) -> None:
        """Unsubscribe the channel. Idempotent, also if the channel was deleted. Raises `LinkInvalid`."""
        channel_id = await self._links.read_unsubscribe_token(token)
        await self._subscribers.unsubscribe_channel(channel_id, by=_BY_SUBSCRIBER, reason=_UNSUBSCRIBE_REASON)
