"""Bodies and responses of links and of Web Push."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.kernel.schema import RequestModel, ResponseModel, Timestamp
from rookery.notifications.schemas.subscribers import ExpirationTime, PushKeysBody

MAX_LINK_HOURS = 24 * 30


class SubscribeLinkBody(RequestModel):
    """The body to create a link with which a browser subscribes."""

    expires_in_hours: Annotated[int, Field(ge=1, le=MAX_LINK_HOURS, description="Hours until the link expires.")] = 24


class SubscribeLinkResponse(ResponseModel):
    """A link to the page on which a browser subscribes. Anybody with it can add a browser to the channels of the subscriber."""

    url: str
    expires_at: Timestamp


class VapidKeyResponse(ResponseModel):
    """The public key of Web Push."""

    public_key: Annotated[str, Field(description="The `applicationServerKey` of browsers: an uncompressed P-256 point in base64url.")]


class BrowserSubscriptionBody(RequestModel):
    """A push subscription, as `PushSubscription.toJSON()` returns it."""

    endpoint: Annotated[str, Field(max_length=2048, description="The address of the browser's push service.")]
    expirationTime: ExpirationTime = None  # noqa: N815 - the name in the Push API
    keys: PushKeysBody


class SubscribedResponse(ResponseModel):
    """The result of a subscription."""

    subscribed: bool
