"""
The Python client of Rookery. It speaks HTTP and imports nothing of the server.

    from rookery_client import Rookery

    with Rookery("http://127.0.0.1:8400", api_key="sk_live_…") as client:
        client.memory.remember(content="We deploy on Tuesdays.", type="decision")
        for memory in client.memory.recall(query="When do we deploy?").memories:
            print(memory.content)

`AsyncRookery` has the same methods for an event loop. Each operation of the API is a method with the operation's name, in the group of its
tag: `client.plans.create_plan`, `client.keys.create_agent_key`. Arguments are the fields of the request; the result is a model.

The other modules for users: `rookery_client.errors` has a class for each code of the API, `rookery_client.models` the models of responses
and `rookery_client.inputs` the objects in arguments.
"""

from __future__ import annotations

from rookery_client.calls import UNSET, Unset
from rookery_client.client import AsyncRookery, Rookery
from rookery_client.client_errors import (
    ApiError,
    AuthenticationError,
    ClientError,
    ConflictError,
    ConnectionFailed,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    RateLimitError,
    ResponseTimeout,
    RookeryClientError,
    ServerError,
    UnexpectedResponse,
    WebhookRejected,
)
from rookery_client.pages import AsyncPage, Page
from rookery_client.webhooks import WebhookEvent, verify_webhook

__all__ = [
    "UNSET",
    "ApiError",
    "AsyncPage",
    "AsyncRookery",
    "AuthenticationError",
    "ClientError",
    "ConflictError",
    "ConnectionFailed",
    "ForbiddenError",
    "InvalidRequestError",
    "NotFoundError",
    "Page",
    "RateLimitError",
    "ResponseTimeout",
    "Rookery",
    "RookeryClientError",
    "ServerError",
    "UnexpectedResponse",
    "Unset",
    "WebhookEvent",
    "WebhookRejected",
    "verify_webhook",
]
