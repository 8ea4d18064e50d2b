"""
Engines of `content.ports.TextGenerator`, which answer conversations. `open` selects one by its address.

    openai+https://:KEY@host/v1?model=NAME     any provider with OpenAI's /v1/chat/completions; openai:// without TLS
    ollama://host:11434/NAME                   Ollama, which has the same protocol; ollama+https:// with TLS

The operator sets the address, so the egress guard does not check it: a provider may be on this host or in a private network.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from rookery.content.chat import ChatRequest, Completion, Delta
from rookery.content.ports import TextGenerator
from rookery.engines.text_generators.provider import parse_url
from rookery.kernel.imports import import_in_thread

__all__ = ["LazyTextGenerator", "open"]


class LazyTextGenerator:
    """A `TextGenerator` that creates the real one with *load* on its first use, in a thread."""

    def __init__(self, model: str, load: Callable[[], TextGenerator]) -> None:
        self.model = model
        self._load = load
        self._loading: asyncio.Future[TextGenerator] | None = None

    async def complete(self, request: ChatRequest) -> Completion:
        """Return the model's answer."""
        return await (await self._get()).complete(request)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | Completion]:
        """Yield the pieces of the answer and the completion."""
        generator = await self._get()
        async with aclosing(generator.stream(request)) as events:
            async for event in events:
                yield event

    async def probe(self) -> None:
        """Check that the provider answers."""
        await (await self._get()).probe()

    async def close(self) -> None:
        """Close all connections."""
        loading, self._loading = self._loading, None
        if loading is not None:
            await (await loading).close()

    async def _get(self) -> TextGenerator:
        if self._loading is None:
            self._loading = asyncio.ensure_future(import_in_thread(self._load))
        loading = self._loading
        return loading.result() if loading.done() else await asyncio.shield(loading)


def open(url: str, *, verify_ssl: bool = True, setting: str = "ROOKERY_GENERATION") -> TextGenerator:  # noqa: A001 - each engine folder has an `open`
    """
    Return the generator at *url*. It connects on its first use.

    Args:
        verify_ssl: Require a trusted certificate.
        setting: Setting that contains *url*, for error messages.

    Raises:
        WrongSettings: *url* is invalid.
    """
    provider = parse_url(url, setting=setting)

    def load() -> TextGenerator:
        from rookery.engines.text_generators.openai import OpenAiTextGenerator  # imports the HTTP client

        return OpenAiTextGenerator(provider, verify_ssl=verify_ssl)

    return LazyTextGenerator(provider.model, load)
