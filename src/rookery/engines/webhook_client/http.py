"""The webhook client: posts over the guarded connections of the kernel."""

from __future__ import annotations

from collections.abc import Mapping

from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.http_client import IDLE_TIMEOUT_S, REQUEST_TIMEOUT_S, GuardedHttpClient, PostFailed
from rookery.webhooks.errors import ReceiverUnreachable
from rookery.webhooks.models import ReceiverResponse


class HttpWebhookClient:
    """
    An HTTP implementation of `webhooks.ports.WebhookClient`.

    A delivery that meets a stale connection is repeated at once: it must not count as an attempt. If the receiver has it already, it can
    recognise the repeated event id.
    """

    def __init__(self, egress: EgressGuard, *, timeout_s: float = REQUEST_TIMEOUT_S, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._http = GuardedHttpClient(egress, timeout_s=timeout_s, idle_timeout_s=idle_timeout_s, repeats_on_stale_connection=True)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        try:
            response = await self._http.post(url, {"Content-Type": "application/json", **headers}, body)
        except PostFailed as failure:
            raise ReceiverUnreachable(failure.message) from None
        return ReceiverResponse(status=response.status, headers=response.headers, excerpt=response.excerpt)

    async def close(self) -> None:
        await self._http.close()
