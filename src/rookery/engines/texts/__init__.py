"""Memories by words: the engines of `rookery.memory.ports.TextIndex`."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rookery.kernel.errors import WrongSettings
from rookery.memory.ports import ErasableStore, TextIndex


class TextEngine(TextIndex, ErasableStore, Protocol):
    """An engine with its connections and threads."""

    async def start(self) -> None:
        """Connect now, so that what is wrong is known at the start; the first use does it otherwise."""
        ...

    async def close(self) -> None:
        """Finish what is being written and let go of everything."""
        ...


def open(url: str, *, data_dir: Path) -> TextEngine:  # noqa: A001 - `texts.open(url)` is how it reads
    """
    Return the engine at *url*, opened at its first use.

    Args:
        data_dir: Where the embedded engine has its file.

    Raises:
        WrongSettings: There is no such engine.
    """
    scheme = url.partition(":")[0]
    if scheme == "embedded":
        from rookery.engines.texts.embedded import EmbeddedTextIndex

        return EmbeddedTextIndex(data_dir / "texts.db")
    raise WrongSettings(f"ROOKERY_TEXTS: there is no full-text engine for {scheme!r}; use embedded:")
