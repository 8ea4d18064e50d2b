"""The webhook channel: a JSON message, signed like the events of webhooks."""

from __future__ import annotations

import orjson

from rookery.engines.notification_channels.http_outcomes import evaluate_failure, evaluate_response
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import REQUEST_TIMEOUT_S, GuardedHttpClient, PostFailed
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.signing import sign
from rookery.notifications.messages import NotificationMessage, SendOutcome, SendResult
from rookery.notifications.ports import BeginSend, ChannelKeys, begin_freely

MESSAGE_TYPE = "notification"
"""The `type` of the body. Events of webhooks have other types, so one receiver can take both."""

_LOST_SECRET_MESSAGE = "The signing secret of notifications cannot be decrypted. Set one: POST /api/agent/notify/webhook-secret/rotate."  # noqa: S105


class WebhookChannel:
    """Posts messages to the URLs of subscribers, signed with the secret of the workspace."""

    def __init__(
        self, egress: EgressGuard, keys: ChannelKeys, clock: Clock, *, max_concurrency: int, timeout_s: float = REQUEST_TIMEOUT_S
    ) -> None:
        self.max_concurrency = max_concurrency
        self._keys = keys
        self._clock = clock
        self._http = GuardedHttpClient(egress, timeout_s=timeout_s)

    async def send(self, message: NotificationMessage, begin: BeginSend = begin_freely) -> SendResult:
        try:
            secrets = await self._keys.get_signing_secrets(message.workspace_id)
        except EngineUnavailable:
            return SendResult(outcome=SendOutcome.BLOCKED, reason=_LOST_SECRET_MESSAGE)
        body = render_body(message)
        headers = sign(body, event_id=message.delivery_id, at=self._clock(), secrets=[secret.reveal() for secret in secrets])
        try:
            response = await self._http.post(message.target.address, {"Content-Type": "application/json", **headers}, body, begin)
        except PostFailed as failure:
            return evaluate_failure(failure)
        return evaluate_response(response, self._clock(), service="The receiver")

    async def check(self) -> None:
        """Do nothing: receivers have no configuration in common."""

    async def close(self) -> None:
        await self._http.close()


def render_body(message: NotificationMessage) -> bytes:
    """Return the body, which is the same at each attempt."""
    return orjson.dumps(
        {
            "id": message.delivery_id,
            "type": MESSAGE_TYPE,
            "created_at": None if message.created_at is None else format_iso(message.created_at),
            "workspace_id": message.public_workspace_id or message.workspace_id,
            "campaign_id": message.campaign_id,
            "title": message.title,
            "body": message.body,
            "url": message.url,
            "locale": message.locale,
            "unsubscribe_url": message.unsubscribe_url,
        }
    )
