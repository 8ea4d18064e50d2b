"""The Web Push channel: encrypted messages to the push services of browsers (RFC 8030)."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import orjson

from rookery.engines.notification_channels.http_outcomes import evaluate_failure, evaluate_response
from rookery.engines.notification_channels.push_encryption import MAX_CONTENT_BYTES, encode_base64url, encrypt
from rookery.engines.notification_channels.vapid import VapidKey, find_subject_warning
from rookery.kernel.clock import Clock
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import REQUEST_TIMEOUT_S, GuardedHttpClient, PostFailed, PostResponse
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.safe_texts import redact
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelType, NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ports import BeginSend, begin_freely, shorten

LoadVapidKey = Callable[[], Awaitable[VapidKey]]

DECLARATIVE_VERSION = 8030
"""Marks the shape that browsers show without a service worker (Declarative Web Push)."""

_MAX_TTL_S = 28 * 24 * 3600
_TOPIC_CHARS = 32
_MAX_DETAIL_CHARS = 200
_MAX_TITLE_CHARS = 300
_TEMPORARY = frozenset({406})
"""Windows answers 406 to a sender or a channel over its limit."""

_MIN_REFUSALS = 3
_EVIDENCE_S = 3600.0
_MAX_HOSTS = 1_000


@dataclass(slots=True)
class _HostRecord:
    """The time at which a push service last accepted the key, and the subscriptions that it has refused since."""

    accepted_at: float | None = None
    refused: set[bytes] = field(default_factory=set[bytes])


class WebPushChannel:
    """
    Sends push messages, signed with the key of the installation.

    Args:
        subject: Contact of the operator for push services: mailto: or https:.
        default_url: Opened by messages without a URL.
    """

    def __init__(
        self,
        egress: EgressGuard,
        load_key: LoadVapidKey,
        clock: Clock,
        *,
        subject: str,
        default_url: str,
        max_concurrency: int,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self.max_concurrency = max_concurrency
        self._load_key = load_key
        self._clock = clock
        self._subject = subject
        self._default_url = default_url
        self._http = GuardedHttpClient(egress, timeout_s=timeout_s)
        self._hosts: OrderedDict[str, _HostRecord] = OrderedDict()

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        try:
            key = await self._load_key()
        except EngineUnavailable as error:
            return SendResult(outcome=SendOutcome.BLOCKED, reason=f"The VAPID key cannot be read: {error.reason}.")
        content = render_content(message, default_url=self._default_url)
        if content is None:
            return SendResult(outcome=SendOutcome.REJECTED, reason="The title and the URL are too long for a push message.")
        endpoint = message.target.address
        try:
            body = encrypt(content, p256dh=message.target.p256dh, auth=message.target.auth)
            authorization = key.authorize(endpoint, subject=self._subject, at=self._clock())
        except ValueError:
            return SendResult(outcome=SendOutcome.REJECTED, reason="The keys or the endpoint of the subscription are invalid.")
        headers = {
            "Authorization": authorization,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(max(0, min(message.ttl_s, _MAX_TTL_S))),
            "Urgency": "normal",
            "Topic": _compute_topic(message.delivery_id),
        }
        try:
            response = await self._http.post(endpoint, headers, body, begin)
        except PostFailed as failure:
            return evaluate_failure(failure)
        return self._evaluate(endpoint, response)

    async def check(self) -> None:
        try:
            key = await self._load_key()
        except EngineUnavailable as error:
            raise ChannelNotReady(ChannelType.WEBPUSH, f"the VAPID key cannot be read: {error.reason}") from None
        key.authorize("https://push.example.org/", subject=self._subject, at=self._clock())

    async def get_public_key(self) -> str:
        return (await self._load_key()).public_key

    async def find_subject_warning(self) -> str | None:
        return find_subject_warning(self._subject)

    async def close(self) -> None:
        await self._http.close()

    def _evaluate(self, endpoint: str, response: PostResponse) -> SendResult:
        host, now = urlsplit(endpoint).netloc, time.monotonic()
        result = evaluate_response(
            response, self._clock(), service="The push service", detail=_describe_error(response), temporary=_TEMPORARY
        )
        if result.outcome is SendOutcome.SENT and _is_dropped(response):
            reason = f"The push service answered {response.status}, but did not deliver the message ({_describe_error(response)})."
            return SendResult(outcome=SendOutcome.RETRY, status=response.status, reason=reason)
        if result.outcome is SendOutcome.SENT:
            record = self._get_record(host)
            record.accepted_at = now
            record.refused.clear()
            location = response.headers.get("location")
            return SendResult(outcome=SendOutcome.SENT, status=result.status, provider_id=location and location[:_MAX_DETAIL_CHARS])
        if response.status in {401, 403}:
            outcome = self._evaluate_refusal(host, endpoint, now)
            return SendResult(
                outcome=outcome, status=result.status, reason=f"{result.reason} It refuses the VAPID key of this installation."
            )
        return result

    def _evaluate_refusal(self, host: str, endpoint: str, now: float) -> SendOutcome:
        """
        Return the outcome of a refused key.

        A subscription that a browser made with another key is refused alone. A wrong key is refused for all subscriptions. So the first
        refusals are retried, and further ones block all messages unless some push service accepts the key.
        """
        record = self._get_record(host)
        if len(record.refused) < _MIN_REFUSALS:
            record.refused.add(hashlib.sha256(endpoint.encode()).digest())
        if record.accepted_at is not None and now - record.accepted_at < _EVIDENCE_S:
            return SendOutcome.REJECTED
        if len(record.refused) < _MIN_REFUSALS:
            return SendOutcome.RETRY
        is_accepted_elsewhere = any(
            other.accepted_at is not None and now - other.accepted_at < _EVIDENCE_S for other in self._hosts.values()
        )
        return SendOutcome.REJECTED if is_accepted_elsewhere else SendOutcome.BLOCKED

    def _get_record(self, host: str) -> _HostRecord:
        record = self._hosts.setdefault(host, _HostRecord())
        self._hosts.move_to_end(host)
        if len(self._hosts) > _MAX_HOSTS:
            self._hosts.popitem(last=False)
        return record


def render_content(message: NotificationMessage, *, default_url: str) -> bytes | None:
    """
    Return the content, in the shape that browsers show without a service worker; None if it cannot fit.

    A body that is too long ends with an ellipsis.
    """
    title = shorten(message.title, lambda text: len(text) <= _MAX_TITLE_CHARS)
    notification: dict[str, object] = {"title": title, "navigate": message.url or default_url, "tag": message.delivery_id}
    if message.locale is not None:
        notification["lang"] = message.locale
    body = shorten(message.body, lambda text: len(_encode(notification, text)) <= MAX_CONTENT_BYTES)
    return None if body is None else _encode(notification, body)


def _encode(notification: dict[str, object], body: str) -> bytes:
    return orjson.dumps({"web_push": DECLARATIVE_VERSION, "notification": {**notification, "body": body}})


def _compute_topic(delivery_id: str) -> str:
    """Return a topic. A repeated attempt replaces the message that the browser has not yet received."""
    return encode_base64url(hashlib.sha256(delivery_id.encode()).digest())[:_TOPIC_CHARS]


def _is_dropped(response: PostResponse) -> bool:
    """Return whether Windows accepted the request, but not the message: its channel is throttled, or it was dropped."""
    return _read_windows_status(response).lower() in {"channelthrottled", "dropped"}


def _read_windows_status(response: PostResponse) -> str:
    return response.headers.get("x-wns-status") or response.headers.get("x-wns-notificationstatus") or ""


def _describe_error(response: PostResponse) -> str:
    """
    Return the reason that the service gives, without the token that it may repeat.

    Windows sends no body. It explains itself in headers.
    """
    described = response.headers.get("x-wns-error-description") or _read_windows_status(response)
    text = " ".join((response.excerpt if response.status >= 400 else "").split()) or " ".join(described.split())
    return redact(text)[:_MAX_DETAIL_CHARS] if text.isprintable() and "vapid" not in text.lower()[:20] else ""
