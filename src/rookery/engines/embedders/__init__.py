"""Engines of `memory.ports.Embedder`, which computes vectors of texts. `open` selects one by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.engines.embedders import addresses
from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.embedders.model import EmbeddingModel

ADDRESSES = ("embedded:", "embedded:f32")
"""Addresses that need no server: the built-in model in 8-bit integers, and in full precision."""

DEFAULT_DIMENSION = 768
"""Default dimension of a service's vectors (spec 8, D-54)."""

VERSION = 1
"""Version of the built-in engine's vectors. Raise it when chunking or arithmetic changes: stored vectors then count as stale (D-54)."""

_EMBEDDED_DIMENSION = 384


class EmbedderEngine(Embedder, Protocol):
    """An opened embedder: the port, with start and close."""

    @property
    def is_starting(self) -> bool:
        """True during the first preparation, until it succeeds or fails."""
        ...

    async def check(self) -> None:
        """
        Check within seconds that the vectors have an allowed dimension.

        Raises:
            EngineUnavailable: The engine does not answer.
            WrongSettings: The dimension is wrong, so a retry cannot succeed.
        """
        ...

    async def warm(self) -> None:
        """Prepare for the first text. Can be called again after `EngineUnavailable`."""
        ...

    async def close(self) -> None:
        """Release threads, connections and memory. Pending texts fail with `EngineUnavailable`."""
        ...


def open(  # noqa: A001 - each engine folder has an `open`
    url: str, *, data_dir: Path, dimension: int = DEFAULT_DIMENSION, verify_ssl: bool = True, setting: str = "ROOKERY_EMBEDDER"
) -> EmbedderEngine:
    """
    Return the embedder at *url*.

    Fast: `warm` or the first text loads the model or contacts the service.

    Args:
        url: One of `ADDRESSES`, or the address of a service.
        data_dir: The engine may store its own files in a folder below it.
        dimension: Dimension of a service's vectors. The built-in engine has its own, which must not be larger.
        verify_ssl: Require a trusted certificate from a service.
        setting: Setting that contains *url*, for error messages.

    Raises:
        WrongSettings: No engine has this address, or its vectors are wider than *dimension*.
    """
    if addresses.is_remote(url):
        from rookery.engines.embedders.remote import RemoteEmbedder  # imports the HTTP client, which the built-in engine does not need

        return RemoteEmbedder(addresses.parse_url(url, dimension=dimension, setting=setting), verify_ssl=verify_ssl)
    if url not in ADDRESSES:
        scheme = url.partition(":")[0][:40]
        raise WrongSettings(f"{setting}: unknown embedder {scheme!r}; use one of {', '.join([*ADDRESSES, *addresses.URL_FORMS])}")
    if dimension < _EMBEDDED_DIMENSION:
        raise WrongSettings(
            f"ROOKERY_VECTOR_DIMENSION: must be at least {_EMBEDDED_DIMENSION}, the dimensions of the built-in model, not {dimension}"
        )

    from rookery.engines.embedders.embedded import EmbeddedEmbedder  # optional dependencies

    precision = "f32" if url == "embedded:f32" else "int8"

    def load() -> EmbeddingModel:
        from rookery.engines.embedders.model import load_model  # imported in the thread that loads the model

        return load_model(data_dir, precision)

    return EmbeddedEmbedder(model=f"all-MiniLM-L6-v2/{precision}-{VERSION}", load=load)


def open_for_model(
    model: str, dimension: int, *, urls: tuple[str | None, ...], data_dir: Path, verify_ssl: bool = True
) -> EmbedderEngine | None:
    """
    Return the embedder that computes vectors of *model* with *dimension*, or None.

    The candidates are the embedders at *urls* and the built-in ones. *dimension* is the one of the stored index, which can differ from the
    setting.

    Raises:
        WrongSettings: An address in *urls* is invalid.
    """
    for url in (*urls, *ADDRESSES):
        if url is None:
            continue
        is_built_in = url in ADDRESSES
        width = DEFAULT_DIMENSION if is_built_in else dimension
        engine = open(url, data_dir=data_dir, dimension=width, verify_ssl=verify_ssl, setting="ROOKERY_EMBEDDER_PREVIOUS")
        if (engine.model, engine.dimension) == (model, dimension):
            return engine
    return None
