"""The HTTP client that delivers webhooks. It is imported with the first delivery, so that other starts do not wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rookery.kernel.egress import EgressGuard
from rookery.kernel.imports import import_in_thread
from rookery.webhooks.models import ReceiverResponse
from rookery.webhooks.ports import WebhookClient

__all__ = ["open"]


class LazyWebhookClient:
    """A `WebhookClient` that creates the real one with *load* when it posts for the first time."""

    def __init__(self, load: Callable[[], WebhookClient]) -> None:
        self._load = load
        self._loading: asyncio.Future[WebhookClient] | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        """Post a delivery. The first calls wait for the import, which runs in a thread and does not block the event loop."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(import_in_thread(self._load))
        loading = self._loading
        client = loading.result() if loading.done() else await asyncio.shield(loading)
        return await client.post(url, headers, body)

    async def close(self) -> None:
        loading, self._loading = self._loading, None
        if loading is not None:
            await (await loading).close()


def open(egress: EgressGuard) -> WebhookClient:  # noqa: A001 - each engine folder has an `open`
    """Return a client that posts to addresses that *egress* allows. Each new connection is checked again."""

    def load() -> WebhookClient:
        from rookery.engines.webhook_client.http import HttpWebhookClient

        return HttpWebhookClient(egress)

    return LazyWebhookClient(load)
