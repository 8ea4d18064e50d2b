"""Fixtures of the tests of usage: a server with a language model, an embedding service and prices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import KEY, ChatService, run_chat_service
from tests.conftest import Caller, FakeClock, Instance, run_instance
from tests.embedding_service import EmbeddingService, run_embedding_service

Json = dict[str, Any]

USAGE = "/api/agent/usage"
NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> FakeClock:
    """A clock that shows noon of 23 November 2026."""
    return FakeClock(NOON)


@pytest.fixture
def provider() -> Iterator[ChatService]:
    """A scripted provider of language models. Its answers have 11 input and 17 output tokens."""
    with run_chat_service() as service:
        yield service


@pytest.fixture
def embedding_service() -> Iterator[EmbeddingService]:
    """An embedding service that reports its tokens: one for each word."""
    with run_embedding_service(EmbeddingService(reports_tokens=True)) as service:
        yield service


@pytest.fixture
def usage_settings(settings: Settings, provider: ChatService, embedding_service: EmbeddingService) -> Settings:
    """Settings with both services: 1 EUR per million input tokens, 2 per million output tokens, 0.5 per million embedded ones."""
    return replace(
        settings,
        generation=Secret(provider.url("ok", key=KEY)),
        generation_prices=(("ok", 1_000, 2_000),),
        embedder=Secret(embedding_service.openai_url()),
        vector_dimension=32,
        embedding_prices=(("words", 500),),
        currency="EUR",
    )


@pytest.fixture
async def server(usage_settings: Settings, clock: FakeClock) -> AsyncIterator[Instance]:
    """A running server, on each record store in turn."""
    async with run_instance(usage_settings, clock) as running:
        yield running


async def read_report(caller: Caller, query: str = "") -> Json:
    """Return a report of usage."""
    response = await caller.get(f"{USAGE}{query}")
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def read_groups(caller: Caller, query: str = "", *fields: str) -> list[tuple[object, ...]]:
    """Return the given fields of the groups of a report."""
    return [tuple(group[field] for field in fields) for group in (await read_report(caller, query))["data"]]
