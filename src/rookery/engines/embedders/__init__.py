"""The port `memory.ports.Embedder`: text into vectors. `open` picks the engine by its address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rookery.engines.embedders import addresses
from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import Embedder

if TYPE_CHECKING:
    from rookery.engines.embedders.model import Model

ADDRESSES = ("embedded:", "embedded:f32")
"""The addresses that need no server: the built-in model in 8-bit integers, and in full precision."""

WIDTH = 768
"""Of the vectors of a service, unless the operator says otherwise (spec 8, D-54)."""

VERSION = 1
"""Of the built-in engine's vectors: raised when its chunks or its arithmetic change, which makes stored ones stale (D-54)."""

_EMBEDDED_WIDTH = 384


class Engine(Embedder, Protocol):
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
    url: str, *, data_dir: Path, width: int = WIDTH, verify_ssl: bool = True, setting: str = "ROOKERY_EMBEDDER"
) -> Engine:
    """
    Return the embedder at *url*; fast, since a model is loaded, and a service asked, by `warm` or the first text.

    Args:
        url: One of `ADDRESSES`, or a service's.
        data_dir: Where an engine may keep files of its own, in a folder below.
        width: Of the vectors of a service; the built-in engine has its own, which must not be more.
        verify_ssl: Whether a service must show a certificate that we trust.
        setting: The variable that *url* is from, to be told when it is wrong.

    Raises:
        WrongSettings: No engine has such an address, or its vectors are wider than *width*.
    """
    if addresses.is_remote(url):
        from rookery.engines.embedders.remote import RemoteEmbedder  # brings the HTTP client, which the built-in engine needs not

        return RemoteEmbedder(addresses.read(url, width=width, setting=setting), verify_ssl=verify_ssl)
    if url not in ADDRESSES:
        scheme = url.partition(":")[0][:40]
        raise WrongSettings(f"{setting}: there is no embedder for {scheme!r}; use {', '.join([*ADDRESSES, *addresses.FORMS])}")
    if width < _EMBEDDED_WIDTH:
        raise WrongSettings(f"ROOKERY_VECTOR_DIMENSION: the built-in model has {_EMBEDDED_WIDTH} dimensions, more than {width}")

    from rookery.engines.embedders.embedded import EmbeddedEmbedder  # vendor libraries stay optional

    precision = "f32" if url == "embedded:f32" else "int8"

    def load() -> Model:
        from rookery.engines.embedders.model import load  # and are imported in the thread that loads

        return load(data_dir, precision)

    return EmbeddedEmbedder(model=f"all-MiniLM-L6-v2/{precision}-{VERSION}", load=load)


def of_model(model: str, dimension: int, *, candidates: tuple[str | None, ...], data_dir: Path, verify_ssl: bool = True) -> Engine | None:
    """
    Return the embedder whose vectors are of *model* with *dimension*, of those at *candidates* and the built-in ones; None: none is.

    The dimension that an index was written with counts here, not the one that is set now.

    Raises:
        WrongSettings: A candidate's address cannot be.
    """
    for url in (*candidates, *ADDRESSES):
        if url is None:
            continue
        is_built_in = url in ADDRESSES
        width = WIDTH if is_built_in else dimension
        engine = open(url, data_dir=data_dir, width=width, verify_ssl=verify_ssl, setting="ROOKERY_EMBEDDER_PREVIOUS")
        if (engine.model, engine.dimension) == (model, dimension):
            return engine
    return None
