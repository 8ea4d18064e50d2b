"""Memories by meaning: the engines of `rookery.memory.ports.VectorIndex`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import ErasableStore, ModelVersions, VectorComparer, VectorIndex


class VectorEngine(VectorIndex, ModelVersions, VectorComparer, ErasableStore, Protocol):
    """An engine with its connections and threads."""

    async def start(self) -> None:
        """Connect now, so that what is wrong is known at the start, and get ready in the background; the first use does it otherwise."""
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of everything."""
        ...


def open(url: str, *, data_dir: Path, model: str, dimension: int) -> VectorEngine:  # noqa: A001 - `vectors.open(url)` is how it reads
    """
    Return the engine at *url*, opened at its first use.

    Args:
        data_dir: Where the embedded engine has its file.
        model: Of the embedder: only vectors of it take part in a query (D-54).
        dimension: Of the embedder.

    Raises:
        WrongSettings: There is no such engine.
    """
    scheme = url.partition(":")[0]
    if scheme == "embedded":
        from rookery.engines.vectors.embedded import EmbeddedVectorIndex

        return EmbeddedVectorIndex(data_dir / "vectors.db", model=model, dimension=dimension)
    raise WrongSettings(f"ROOKERY_VECTORS: there is no vector engine for {scheme!r}; use embedded:")
