"""A receiver that is loaded when something is first sent: most starts send nothing, and should not wait for an HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rookery.kernel.imports import import_in_thread
from rookery.webhooks.models import ReceiverResponse
from rookery.webhooks.ports import WebhookClient


class LazyReceiver:
    """Stands for the receiver that *load* returns; see `WebhookClient`."""

    def __init__(self, load: Callable[[], WebhookClient]) -> None:
        self._load = load
        self._loading: asyncio.Future[WebhookClient] | None = None

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        """Post; the first ones wait for the import, in a thread, so that nothing else does."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(import_in_thread(self._load))
        loading = self._loading
        receiver = loading.result() if loading.done() else await asyncio.shield(loading)
        return await receiver.post(url, headers, body)

    async def close(self) -> None:
        """See `WebhookClient`."""
        loading, self._loading = self._loading, None
        if loading is not None:
            await (await loading).close()
