"""What webhooks need from an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rookery.webhooks.models import ReceiverResponse


class WebhookClient(Protocol):
    """Whoever is told, by HTTP."""

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        """
        Post *body* as it is and return the answer, whatever its status; redirects are answers.

        Within ten seconds in all, the reading of the answer included; of that at most 10,000 characters are read.

        Raises:
            ReceiverUnreachable: None came, in words that name neither our network nor a secret.
        """
        ...

    async def close(self) -> None:
        """Let go of every connection; twice does no harm."""
        ...
