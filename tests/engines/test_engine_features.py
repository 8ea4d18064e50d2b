"""The documentation lists what each engine lacks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from rookery.engines.counters.embedded import EmbeddedCounter
from rookery.engines.counters.valkey import ValkeyCounter
from rookery.engines.embedders.embedded import EmbeddedEmbedder
from rookery.engines.embedders.remote import RemoteEmbedder
from rookery.engines.texts.elastic import ElasticTextIndex
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.engines.texts.postgresql import PostgresTextIndex
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.pgvector import PgvectorIndex
from rookery.engines.vectors.qdrant import QdrantIndex

_PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.mark.parametrize(
    ("port", "engine", "lacks"),
    [
        ("TextIndex", "`embedded:`", EmbeddedTextIndex.lacks),
        ("TextIndex", "`elasticsearch:`, `opensearch:`", ElasticTextIndex.lacks),
        ("TextIndex", "`postgresql:`", PostgresTextIndex.lacks),
        ("VectorIndex", "`embedded:`", EmbeddedVectorIndex.lacks),
        ("VectorIndex", "`postgresql:`", PgvectorIndex.lacks),
        ("VectorIndex", "`qdrant:`", QdrantIndex.lacks),
        ("RateLimitCounter", "`embedded:`", EmbeddedCounter.lacks),
        ("RateLimitCounter", "`redis:`, `valkey:`", ValkeyCounter.lacks),
        ("Embedder", "`embedded:`, `embedded:f32`, `embedded:e5-small`, `embedded:/folder`", EmbeddedEmbedder.lacks),
        ("Embedder", "`openai:`, `ollama:`", RemoteEmbedder.lacks),
    ],
)
def test_the_documentation_shows_what_an_engine_lacks(port: str, engine: str, lacks: Iterable[str]) -> None:
    """Operators choose an engine by this table."""
    assert f"| `{port}` | {engine} | {', '.join(sorted(lacks)) or '–'} |" in _PAGE.read_text(encoding="utf-8").splitlines()
