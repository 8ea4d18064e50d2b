"""
The Python client of Rookery. It speaks HTTP and imports nothing of the server.

    from rookery_client import Rookery

    with Rookery("http://127.0.0.1:8400", api_key="sk_live_…") as client:
        client.memory.remember(content="We deploy on Tuesdays.", type="decision")
        for memory in client.memory.recall(query="When do we deploy?").memories:
            print(memory.content)

`AsyncRookery` has the same methods for an event loop. Each operation of the API is a method with the operation's name, in the group of its
tag: `client.plans.create_plan`, `client.keys.create_agent_key`. Arguments are the fields of the request; the result is a model.
"""

from __future__ import annotations

from rookery_client.client import AsyncRookery, Rookery
from rookery_client.errors import ApiError, ConnectionFailed, RookeryClientError, UnexpectedResponse, WebhookRejected
from rookery_client.pages import AsyncPage, Page
from rookery_client.webhooks import WebhookEvent, verify_webhook

__all__ = [
    "ApiError",
    "AsyncPage",
    "AsyncRookery",
    "ConnectionFailed",
    "Page",
    "Rookery",
    "RookeryClientError",
    "UnexpectedResponse",
    "WebhookEvent",
    "WebhookRejected",
    "verify_webhook",
]
