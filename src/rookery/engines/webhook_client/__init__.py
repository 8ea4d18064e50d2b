"""How a delivery reaches its receiver: over HTTP, whose client is loaded with the first one."""

from __future__ import annotations

from rookery.engines.webhook_client.lazy import LazyReceiver
from rookery.kernel.egress import EgressGuard
from rookery.webhooks.ports import WebhookClient

__all__ = ["open"]


def open(egress: EgressGuard) -> WebhookClient:  # noqa: A001 - what every folder of engines calls it
    """Return what posts to the addresses that *egress* allows, judged anew at each connection (D-82)."""

    def load() -> WebhookClient:
        from rookery.engines.webhook_client.http import HttpReceiver

        return HttpReceiver(egress)

    return LazyReceiver(load)
