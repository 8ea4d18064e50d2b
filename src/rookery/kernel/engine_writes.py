"""The engines that accept only reads: their last write was refused, although they answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

import structlog

from rookery.kernel.errors import EngineReadOnly, StorageFull

T = TypeVar("T")

READS_ONLY = "accepts only reads"

_log = structlog.stdlib.get_logger("rookery.engines")


class EngineWrites:
    """
    A record of the engines that refuse writes. A refusal is a state of an engine until a write of this process succeeds.

    Args:
        engines: The names of the engines on servers. Those in this process are not recorded: they write to the disk of the data folder,
            which is checked by itself.
    """

    def __init__(self, engines: Collection[str]) -> None:
        self._engines = frozenset(engines)
        self._reasons: dict[str, str] = {}

    def is_watched(self, engine: str) -> bool:
        """Return whether *engine* is on a server."""
        return engine in self._engines

    async def call(self, engine: str, write: Callable[[], Awaitable[T]]) -> T:
        """
        Return the result of *write*, and note whether *engine* refused it.

        Raises:
            EngineReadOnly: The engine accepts only reads.
            StorageFull: Its disk is full.
        """
        try:
            result = await write()
        except EngineReadOnly as error:
            if error.engine == engine:
                self._record_refusal(engine, error.reason)
            raise
        except StorageFull as error:
            self._record_refusal(engine, error.message)
            raise
        if self._reasons.pop(engine, None) is not None:
            _log.warning("engine.accepts_writes", engine=engine)
        return result

    def describe(self, engine: str) -> str | None:
        """Return the state of an engine that refused its last write; None if it accepted it."""
        reason = self._reasons.get(engine)
        return None if reason is None else f"{READS_ONLY}: {reason.rstrip(' ;.')}"

    def _record_refusal(self, engine: str, reason: str) -> None:
        if engine not in self._engines:
            return
        if engine not in self._reasons:
            _log.warning("engine.accepts_only_reads", engine=engine, reason=reason)
        self._reasons[engine] = reason
