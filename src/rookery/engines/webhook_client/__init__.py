"""The HTTP client that delivers webhooks."""

from __future__ import annotations

from rookery.kernel.egress import EgressGuard
from rookery.webhooks.ports import WebhookClient

__all__ = ["open"]


def open(egress: EgressGuard) -> WebhookClient:  # noqa: A001 - each engine folder has an `open`
    """Return a client that posts to addresses that *egress* allows. Each new connection is checked again."""
    from rookery.engines.webhook_client.http import HttpWebhookClient  # commands that send nothing do not need the HTTP library

    return HttpWebhookClient(egress)
