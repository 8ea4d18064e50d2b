"""Engines of `memory.ports.VectorIndex`, the vector index of memories."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rookery.kernel.errors import WrongSettings
from rookery.kernel.urls import show_scheme
from rookery.memory.ports import ErasableStore, VectorIndex


class VectorEngine(VectorIndex, ErasableStore, Protocol):
    """A vector engine, with what the embedded one can do beyond the port."""


def open(url: str, *, data_dir: Path, model: str, dimension: int, verify_ssl: bool = True) -> VectorEngine:  # noqa: A001 - each engine folder has an `open`
    """
    Return the engine at *url*; it connects at first use.

    Args:
        data_dir: Folder of the embedded engine's file.
        model: Model of the embedder. Queries use only its vectors.
        dimension: Dimension of the embedder's vectors.
        verify_ssl: Verify the certificate of a server of Qdrant.

    Raises:
        WrongSettings: No engine has this address.
    """
    scheme = url.partition(":")[0]
    if scheme == "embedded":
        from rookery.engines.vectors.embedded import EmbeddedVectorIndex

        return EmbeddedVectorIndex(data_dir / "vectors.db", model=model, dimension=dimension)
    if scheme in {"postgresql", "postgres"}:
        from rookery.engines.vectors.pgvector import PgvectorIndex

        return PgvectorIndex(url, model=model, dimension=dimension)
    if scheme in {"qdrant", "qdrants", "qdrant+https"}:
        from rookery.engines.vectors.qdrant import QdrantIndex
        from rookery.engines.vectors.qdrant_connection import parse_address

        return QdrantIndex(parse_address(url), model=model, dimension=dimension, verify_ssl=verify_ssl)
    addresses = "embedded:, postgresql://user:password@host/database or qdrant://:api-key@host:6333"
    raise WrongSettings(f"ROOKERY_VECTORS: unknown vector engine{show_scheme(url)}; use {addresses}")
