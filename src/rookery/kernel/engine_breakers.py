"""Circuit breakers between requests and engines, so that an engine that fails or hangs does not delay each request; refused writes."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import TypeVar

import structlog

from rookery.kernel.config import Settings
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, StorageFull

READS_ONLY = "accepts only reads"


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


T = TypeVar("T")

MAX_FAILURES = 3
"""Consecutive failures that open a breaker."""

OPEN_DURATION_S = 2.0
"""Time for which an open breaker rejects all calls. Then one call is tried."""

_EARLY_WRITE_TIMEOUT_S = 1.0
"""Time limit of a write to the full-text index beside a request that stores. The job of the memory writes it again."""

_log = structlog.stdlib.get_logger("rookery.engines")


class EngineBreaker:
    """
    A circuit breaker for one kind of call of an engine.

    It is closed at first. `MAX_FAILURES` failures in a row open it: then calls fail at once, with the last reason. After
    `OPEN_DURATION_S`, one call is tried while the others still fail. A call that succeeds closes it.

    A failure is an `EngineUnavailable` of this engine, or a call that takes longer than the time limit. Other exceptions do not count, nor
    does `EngineReadOnly`: the engine has answered, and reads go on.

    Args:
        engine: The name of the engine, as in `EngineUnavailable`.
        operation: The kind of call, such as `query`.
        timeout_s: The time limit of a call. None: no limit, for an engine in this process or one with its own limit.
        monotonic: A clock in seconds that never goes back; tests pass their own.
    """

    def __init__(
        self,
        engine: str,
        *,
        operation: str = "query",
        timeout_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.operation = operation
        self.failure_count = 0
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._consecutive_failures = 0
        self._open_until_s: float | None = None
        self._is_probing = False
        self._reason = ""

    @property
    def is_rejecting(self) -> bool:
        """True if a call would fail at once."""
        return self._open_until_s is not None and (self._is_probing or self._monotonic() < self._open_until_s)

    @property
    def rejection_reason(self) -> str | None:
        """The reason of the last failure if a call would fail at once; None otherwise."""
        return self._reason if self.is_rejecting else None

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """
        Return the result of *work*.

        Raises:
            EngineUnavailable: The breaker is open, or the engine failed or did not answer in time.
        """
        if self._open_until_s is None:
            return await self._run(work)
        if self.is_rejecting:
            remaining_s = self._open_until_s - self._monotonic()
            raise EngineUnavailable(self.engine, self._reason, retry_after_s=max(1, math.ceil(remaining_s)))
        self._is_probing = True
        try:
            return await self._run(work)
        finally:
            self._is_probing = False

    async def _run(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            if self._timeout_s is None:
                result = await work()
            else:
                result = await self._run_with_limit(work, self._timeout_s)
        except EngineUnavailable as error:
            if error.engine == self.engine and not isinstance(error, EngineReadOnly):
                self._record_failure(error.reason)
            raise
        if self._consecutive_failures:
            self._record_success()
        return result

    async def _run_with_limit(self, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        try:
            async with asyncio.timeout(timeout_s):
                return await work()
        except TimeoutError as error:
            raise EngineUnavailable(self.engine, f"no answer within {timeout_s:g} s") from error

    def _record_failure(self, reason: str) -> None:
        self.failure_count += 1
        self._consecutive_failures += 1
        self._reason = reason
        if self._open_until_s is None:
            if self._consecutive_failures < MAX_FAILURES:
                return
            _log.warning("engine.paused", engine=self.engine, operation=self.operation, reason=reason)
        elif not self._is_probing:
            return  # a call that began before the breaker opened
        self._open_until_s = self._monotonic() + OPEN_DURATION_S

    def _record_success(self) -> None:
        self._consecutive_failures = 0
        if self._open_until_s is not None:
            self._open_until_s = None
            _log.warning("engine.resumed", engine=self.engine, operation=self.operation)


class EngineBreakers:
    """
    The breakers of a process. Background jobs use only that of the record store: they wait and retry themselves.

    Attributes:
        previous_embedder: For the model before the current one, while the vectors are rebuilt.
        early_text_writes: For writes to the full-text index beside a request that stores.
        counters: For rate limits. A process counts on its own while it is open.
        database: For a record store on a server, which limits the time itself. None: the store is a file.
        writes: The indexes that refuse writes.
    """

    def __init__(self, settings: Settings, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        limit_s = settings.engine_timeout_ms / 1000
        embedder_limit_s = None if _is_embedded(settings.embedder.reveal()) else limit_s
        is_text_embedded = _is_embedded(settings.texts.reveal())
        make = partial(EngineBreaker, monotonic=monotonic)
        self.embedder = make("embedder", timeout_s=embedder_limit_s)
        self.previous_embedder = make("embedder", operation="query by the previous model", timeout_s=embedder_limit_s)
        self.vectors = make("vectors", timeout_s=None if _is_embedded(settings.vectors.reveal()) else limit_s)
        self.texts = make("texts", timeout_s=None if is_text_embedded else limit_s)
        write_limit_s = None if is_text_embedded else min(limit_s, _EARLY_WRITE_TIMEOUT_S)
        self.early_text_writes = make("texts", operation="write", timeout_s=write_limit_s)
        self.database = None if _is_embedded(settings.database_url.reveal()) else make("database")
        self.counters = make("counters", operation="count")
        addresses = {"vectors": settings.vectors, "texts": settings.texts}
        self.writes = EngineWrites([engine for engine, address in addresses.items() if not _is_embedded(address.reveal())])

    def __iter__(self) -> Iterator[EngineBreaker]:
        """Return all breakers, in a fixed order."""
        breakers = [self.embedder, self.previous_embedder, self.vectors, self.texts, self.early_text_writes, self.counters]
        return iter(breakers if self.database is None else [*breakers, self.database])

    def describe(self, engine: str, state: str) -> str:
        """Return *state*, what a probe of *engine* found, or what is wrong although it was `ok`."""
        if state == "ok" and (refusal := self.writes.describe(engine)) is not None:
            return refusal
        reasons = [breaker.rejection_reason for breaker in self if breaker.engine == engine]
        reason = next((reason for reason in reasons if reason is not None), None)
        return state if state != "ok" or reason is None else f"paused after failures: {reason}"


def _is_embedded(address: str) -> bool:
    return address.partition(":")[0] == "embedded"
