"""The port `memory.ports.Embedder`: text into vectors. `open` picks the engine by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.embedders.model import Model

ADDRESSES = ("embedded:", "embedded:f32")
"""The addresses `open` knows: the built-in model in 8-bit integers, and in full precision."""

VERSION = 1
"""Of the built-in engine's vectors: raised when its chunks or its arithmetic change, which makes stored ones stale (D-54)."""


class Engine(Embedder, Protocol):
    """An opened embedder: the port, and its beginning and end."""

    async def warm(self) -> None:
        """Get ready ahead of the first text; raises `EngineUnavailable`, and may be called again."""
        ...

    def close(self) -> None:
        """Give back threads and memory; what is still being embedded fails with `EngineUnavailable`."""
        ...


def open(url: str, *, data_dir: Path) -> Engine:  # noqa: A001 - house.md 5.3: each engine folder's open(url) picks
    """
    Return the embedder at *url*; fast, since a model is loaded by `warm` or the first text.

    Args:
        url: One of `ADDRESSES`.
        data_dir: Where an engine may keep files of its own, in a folder below.

    Raises:
        WrongSettings: No engine has such an address.
    """
    if url not in ADDRESSES:
        scheme = url.partition(":")[0]
        raise WrongSettings(f"ROOKERY_EMBEDDER: there is no embedder for {scheme!r}; use {' or '.join(ADDRESSES)}")

    from rookery.engines.embedders.embedded import EmbeddedEmbedder  # vendor libraries stay optional

    precision = "f32" if url == "embedded:f32" else "int8"

    def load() -> Model:
        from rookery.engines.embedders.model import load  # and are imported in the thread that loads

        return load(data_dir, precision)

    return EmbeddedEmbedder(model=f"all-MiniLM-L6-v2/{precision}-{VERSION}", load=load)
