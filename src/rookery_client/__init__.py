"""The Python client of Rookery. It knows the server by HTTP alone, and needs nothing but Python."""

from __future__ import annotations

from rookery_client.errors import RookeryClientError, WebhookRejected
from rookery_client.webhooks import WebhookEvent, verify_webhook

__all__ = ["RookeryClientError", "WebhookEvent", "WebhookRejected", "verify_webhook"]
