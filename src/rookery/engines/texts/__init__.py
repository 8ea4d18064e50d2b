"""Engines of `memory.ports.TextIndex`, the full-text index of memories."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rookery.kernel.errors import WrongSettings
from rookery.kernel.urls import show_scheme
from rookery.memory.ports import ErasableStore, TextIndex


class TextEngine(TextIndex, ErasableStore, Protocol):
    """A full-text engine with its connections and threads."""

    async def start(self) -> None:
        """Connect now, so that errors appear at the start. Otherwise the first use connects."""
        ...

    async def close(self) -> None:
        """Finish pending writes and release connections and threads."""
        ...


def open(url: str, *, data_dir: Path, verify_ssl: bool = True) -> TextEngine:  # noqa: A001 - each engine folder has an `open`
    """
    Return the engine at *url*; it connects at first use.

    Args:
        data_dir: Folder of the embedded engine's file.
        verify_ssl: Verify the certificate of a server.

    Raises:
        WrongSettings: No engine has this address.
    """
    scheme = url.partition(":")[0]
    if scheme == "embedded":
        from rookery.engines.texts.embedded import EmbeddedTextIndex

        return EmbeddedTextIndex(data_dir / "texts.db")
    if scheme.removesuffix("+https") in {"elasticsearch", "opensearch"}:
        from rookery.engines.texts.elastic import ElasticTextIndex
        from rookery.engines.texts.elastic_connection import parse_address

        return ElasticTextIndex(parse_address(url), verify_ssl=verify_ssl)
    if scheme in {"postgresql", "postgres"}:
        from rookery.engines.texts.postgresql import PostgresTextIndex

        return PostgresTextIndex(url)
    raise WrongSettings(
        f"ROOKERY_TEXTS: unknown full-text engine{show_scheme(url)}; use embedded:, "
        "postgresql://user:password@host/database or elasticsearch://host:9200/index"
    )
