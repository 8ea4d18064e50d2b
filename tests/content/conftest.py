"""Fixtures of the tests of content generation: a provider on the loopback interface, and a server that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import KEY, ChatService, run_chat_service
from tests.conftest import Instance, run_instance

GENERATIONS, BATCHES, TEMPLATES = "/api/agent/content/generations", "/api/agent/content/batches", "/api/agent/content/templates"

PRICES = (("*", 1_000, 2_000),)
"""1 per million input tokens and 2 per million output tokens, for any model."""


@pytest.fixture
def provider() -> Iterator[ChatService]:
    """A scripted provider that accepts only the operator's key."""
    with run_chat_service() as service:
        yield service


@pytest.fixture
def content_settings(settings: Settings, provider: ChatService) -> Settings:
    """Settings of a server with the provider and prices."""
    return replace(settings, generation=Secret(provider.url("ok", key=KEY)), generation_prices=PRICES)


@pytest.fixture
def noon_clock() -> Clock:
    """A clock that runs, and shows noon at first: budgets start again at midnight in UTC, when a test may run."""
    now = utc_now()
    offset = now.replace(hour=12) - now
    return lambda: utc_now() + offset


@pytest.fixture
async def content(content_settings: Settings, noon_clock: Clock) -> AsyncIterator[Instance]:
    """A running server with the provider, on each record store in turn."""
    async with run_instance(content_settings, noon_clock) as running:
        yield running
