"""The port `memory.ports.Embedder`: text into vectors. `open` picks the engine by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.engines.embedders import addresses
from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.embedders.model import EmbeddingModel

ADDRESSES = ("embedded:", "embedded:f32")
"""The addresses that need no server: the built-in model in 8-bit integers, and in full precision."""

DEFAULT_DIMENSION = 768
"""Of the vectors of a service, unless the operator says otherwise (spec 8, D-54)."""

VERSION = 1
"""Of the built-in engine's vectors: raised when its chunks or its arithmetic change, which makes stored ones stale (D-54)."""

_EMBEDDED_DIMENSION = 384


class EmbedderEngine(Embedder, Protocol):
    """An opened embedder: the port, and its beginning and end."""

    @property
    def is_starting(self) -> bool:
        """Whether it is being made ready for the first time, and has neither succeeded nor failed yet."""
        ...

    async def check(self) -> None:
        """
        Find out, within seconds, whether its vectors are as wide as they must be; raises `EngineUnavailable`, too.

        Raises:
            WrongSettings: They are not, and no waiting will mend that.
        """
        ...

    async def warm(self) -> None:
        """Get ready ahead of the first text; raises `EngineUnavailable`, and may be called again."""
        ...

    async def close(self) -> None:
        """Give back threads, connections and memory; what is still being embedded fails with `EngineUnavailable`."""
        ...


def open(  # noqa: A001 - house.md 5.3: each engine folder's open(url) picks
    url: str, *, data_dir: Path, dimension: int = DEFAULT_DIMENSION, verify_ssl: bool = True, setting: str = "ROOKERY_EMBEDDER"
) -> EmbedderEngine:
    """
    Return the embedder at *url*; fast, since a model is loaded, and a service asked, by `warm` or the first text.

    Args:
        url: One of `ADDRESSES`, or a service's.
        data_dir: Where an engine may keep files of its own, in a folder below.
        dimension: Of the vectors of a service; the built-in engine has its own, which must not be more.
        verify_ssl: Whether a service must show a certificate that we trust.
        setting: The variable that *url* is from, to be told when it is wrong.

    Raises:
        WrongSettings: No engine has such an address, or its vectors are wider than *dimension*.
    """
    if addresses.is_remote(url):
        from rookery.engines.embedders.remote import RemoteEmbedder  # brings the HTTP client, which the built-in engine needs not

        return RemoteEmbedder(addresses.parse_url(url, dimension=dimension, setting=setting), verify_ssl=verify_ssl)
    if url not in ADDRESSES:
        scheme = url.partition(":")[0][:40]
        raise WrongSettings(f"{setting}: there is no embedder for {scheme!r}; use {', '.join([*ADDRESSES, *addresses.URL_FORMS])}")
    if dimension < _EMBEDDED_DIMENSION:
        raise WrongSettings(f"ROOKERY_VECTOR_DIMENSION: the built-in model has {_EMBEDDED_DIMENSION} dimensions, more than {dimension}")

    from rookery.engines.embedders.embedded import EmbeddedEmbedder  # vendor libraries stay optional

    precision = "f32" if url == "embedded:f32" else "int8"

    def load() -> EmbeddingModel:
        from rookery.engines.embedders.model import load_model  # and are imported in the thread that loads

        return load_model(data_dir, precision)

    return EmbeddedEmbedder(model=f"all-MiniLM-L6-v2/{precision}-{VERSION}", load=load)


def open_for_model(
    model: str, dimension: int, *, urls: tuple[str | None, ...], data_dir: Path, verify_ssl: bool = True
) -> EmbedderEngine | None:
    """
    Return the embedder whose vectors are of *model* with *dimension*, of those at *urls* and the built-in ones; None: none is.

    The dimension that an index was written with counts here, not the one that is set now.

    Raises:
        WrongSettings: A candidate's address cannot be.
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
