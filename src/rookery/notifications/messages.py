"""A message for one channel of one subscriber, and the result of sending it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ChannelType(StrEnum):
    """The ways to reach a subscriber."""

    WEBHOOK = "webhook"
    EMAIL = "email"
    NTFY = "ntfy"
    WEBPUSH = "webpush"
    APPRISE = "apprise"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTarget:
    """
    The address of a channel.

    Attributes:
        address: The URL, the e-mail address, or the endpoint of a push subscription.
        p256dh: The public key of a push subscription, base64url. Empty for other channels.
        auth: The authentication secret of a push subscription, base64url. Empty for other channels.
    """

    type: ChannelType
    address: str
    p256dh: str = ""
    auth: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationMessage:
    """
    A rendered notification.

    Attributes:
        created_at: The start of the campaign; None: unknown.
        public_workspace_id: The workspace that answers show; None: *workspace_id*.
        delivery_id: The same for each attempt, so a receiver can recognise a repetition.
        ttl_s: Seconds after which the message is no longer worth showing.
        unsubscribe_url: The one-click address of RFC 8058; None: no public address is configured.
    """

    workspace_id: int
    campaign_id: str
    delivery_id: str
    target: ChannelTarget
    title: str
    body: str
    url: str | None
    ttl_s: int
    locale: str | None = None
    unsubscribe_url: str | None = None
    created_at: datetime | None = None
    public_workspace_id: int | None = None


class SendOutcome(StrEnum):
    """
    The outcome of one attempt.

    SENT: accepted. RETRY: certainly not accepted; it may be later. REJECTED: this message is never accepted.
    GONE: the address no longer exists. UNKNOWN: it may have been accepted. BLOCKED: the fault is ours and the same for
    all addresses of the channel, such as a refused login or VAPID key.
    """

    SENT = "sent"
    RETRY = "retry"
    REJECTED = "rejected"
    GONE = "gone"
    UNKNOWN = "unknown"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResult:
    """
    The result of one attempt.

    Attributes:
        status: The HTTP or SMTP status; None: no answer.
        reason: Why it was not sent, in one sentence without secrets. None if it was sent.
        retry_after_s: The delay that the service asks for.
        concerns_host: Only with RETRY: the service refuses everything for now, such as over a limit or a quota. The message is not at
            fault, so its host waits and no attempt is counted.
        resets_in_s: Seconds until the limit is certainly over, such as at midnight for a daily one.
        provider_id: The service's name for the accepted message, such as the Location of a push message.
    """

    outcome: SendOutcome
    status: int | None = None
    reason: str | None = None
    retry_after_s: float | None = None
    concerns_host: bool = False
    resets_in_s: float | None = None
    provider_id: str | None = None
