"""The Python client of Rookery. It has no dependencies and imports nothing of the server."""

from __future__ import annotations

from rookery_client.errors import RookeryClientError, WebhookRejected
from rookery_client.webhooks import WebhookEvent, verify_webhook

__all__ = ["RookeryClientError", "WebhookEvent", "WebhookRejected", "verify_webhook"]
