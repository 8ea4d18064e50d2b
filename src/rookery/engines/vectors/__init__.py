"""Engines of `memory.ports.VectorIndex`, the vector index of memories."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import ErasableStore, ModelVersions, VectorIndex


class VectorEngine(VectorIndex, ModelVersions, ErasableStore, Protocol):
    """A vector engine, with what the embedded one can do beyond the port."""


def open(url: str, *, data_dir: Path, model: str, dimension: int) -> VectorEngine:  # noqa: A001 - each engine folder has an `open`
    """
    Return the engine at *url*; it connects at first use.

    Args:
        data_dir: Folder of the embedded engine's file.
        model: Model of the embedder. Queries use only its vectors (D-54).
        dimension: Dimension of the embedder's vectors.

    Raises:
        WrongSettings: No engine has this address.
    """
    scheme = url.partition(":")[0]
    if scheme == "embedded":
        from rookery.engines.vectors.embedded import EmbeddedVectorIndex

        return EmbeddedVectorIndex(data_dir / "vectors.db", model=model, dimension=dimension)
    raise WrongSettings(f"ROOKERY_VECTORS: unknown vector engine {scheme!r}; use embedded:")
