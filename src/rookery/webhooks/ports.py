"""The port of the HTTP client, which an engine implements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rookery.webhooks.models import ReceiverResponse


class WebhookClient(Protocol):
    """An HTTP client for receivers."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        """
        Post *body* unchanged and return the response, whatever its status. Redirects are not followed.

        The time limit is ten seconds, including reading the response, of which at most 10,000 characters are read.

        Raises:
            ReceiverUnreachable: No response. The message reveals neither our network nor a secret.
        """
        ...

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        ...
