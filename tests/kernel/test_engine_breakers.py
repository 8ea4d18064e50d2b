"""The circuit breakers of engines: a failing or slow engine does not delay each request."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from rookery.kernel.config import Settings
from rookery.kernel.engine_breakers import MAX_FAILURES, OPEN_DURATION_S, EngineBreaker, EngineBreakers
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret


class _Engine:
    """An engine that answers, fails or hangs, and counts its calls."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.call_count = 0

    async def ask(self) -> str:
        self.call_count += 1
        error = self.error
        if self.gate is not None:
            await self.gate.wait()
        if error is not None:
            raise error
        return "answer"


class _Rig:
    """A breaker before an engine, with a clock of its own."""

    def __init__(self, *, timeout_s: float | None = None) -> None:
        self.now_s = 100.0
        self.engine = _Engine()
        self.breaker = EngineBreaker("texts", timeout_s=timeout_s, monotonic=lambda: self.now_s)

    async def ask(self) -> str:
        return await self.breaker.call(self.engine.ask)

    async def fail(self, times: int) -> None:
        """Fail *times* times."""
        self.engine.error = EngineUnavailable("texts", "it is switched off")
        for _ in range(times):
            with pytest.raises(EngineUnavailable):
                await self.ask()


async def test_repeated_failures_reject_calls_at_once_until_one_succeeds() -> None:
    """After three failures in a row the engine is left alone for 2 s, then one call is tried."""
    rig = _Rig()
    with capture_logs() as logs:
        await rig.fail(MAX_FAILURES + 5)
        assert (rig.engine.call_count, rig.breaker.failure_count) == (MAX_FAILURES, MAX_FAILURES)
        rig.now_s += OPEN_DURATION_S
        await rig.fail(3)
        assert rig.engine.call_count == MAX_FAILURES + 1, "one probe, which failed"
        rig.now_s += OPEN_DURATION_S
        rig.engine.error = None
        assert [await rig.ask() for _ in range(3)] == ["answer"] * 3

    assert [entry["event"] for entry in logs] == ["engine.paused", "engine.resumed"]
    await rig.fail(MAX_FAILURES - 1)
    assert not rig.breaker.is_rejecting, "failures are counted from zero again"


async def test_a_rejected_call_gets_the_reason_and_the_time_to_wait() -> None:
    """The error is that of the engine, with Retry-After."""
    rig = _Rig()
    await rig.fail(MAX_FAILURES)
    rig.now_s += 0.5
    with pytest.raises(EngineUnavailable) as rejection:
        await rig.ask()

    assert (rejection.value.engine, rejection.value.reason) == ("texts", "it is switched off")
    assert rejection.value.headers == {"Retry-After": "2"}
    assert rig.breaker.rejection_reason == "it is switched off"


async def test_only_one_call_probes_while_others_are_rejected() -> None:
    """Concurrent requests do not wait for a probe that hangs; a cancelled probe makes room for the next."""
    rig = _Rig()
    await rig.fail(MAX_FAILURES)
    rig.now_s += OPEN_DURATION_S
    rig.engine.error, rig.engine.gate = None, asyncio.Event()
    probe = asyncio.create_task(rig.ask())
    await asyncio.sleep(0)
    for _ in range(3):
        with pytest.raises(EngineUnavailable):
            await rig.ask()
    assert rig.engine.call_count == MAX_FAILURES + 1
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    rig.engine.gate = None

    assert await rig.ask() == "answer"


async def test_a_call_over_its_limit_is_a_failure() -> None:
    """A hanging engine is treated as one that fails."""
    rig = _Rig(timeout_s=0.01)
    rig.engine.gate = asyncio.Event()
    for _ in range(MAX_FAILURES):
        with pytest.raises(EngineUnavailable, match=r"no answer within 0\.01 s"):
            await rig.ask()

    assert rig.breaker.is_rejecting


async def test_calls_that_began_before_the_breaker_opened_do_not_prolong_it() -> None:
    """Many requests that wait for a lost engine fail late. The engine is tried 2 s after the first ones failed."""
    rig = _Rig()
    rig.engine.gate, rig.engine.error = asyncio.Event(), EngineUnavailable("texts", "late")
    late = asyncio.create_task(rig.ask())
    await asyncio.sleep(0)
    rig.engine.gate, gate = None, rig.engine.gate
    await rig.fail(MAX_FAILURES)
    rig.now_s += OPEN_DURATION_S
    gate.set()
    with pytest.raises(EngineUnavailable, match="late"):
        await late
    rig.engine.error = None

    assert await rig.ask() == "answer"


async def test_other_exceptions_do_not_count() -> None:
    """A bug, or an error of another engine such as the record store, says nothing about this one."""
    rig = _Rig()
    for error in (ValueError("a bug"), EngineUnavailable("database", "down")) * MAX_FAILURES:
        rig.engine.error = error
        with pytest.raises(type(error)):
            await rig.ask()

    assert (rig.breaker.is_rejecting, rig.breaker.failure_count) == (False, 0)


async def test_only_engines_on_servers_have_a_time_limit() -> None:
    """A slow host must not lose the results of its own embedded engines."""
    gate = asyncio.Event()

    async def wait() -> bool:
        return await gate.wait()

    settings = replace(Settings(), engine_timeout_ms=50, texts=Secret("opensearch://127.0.0.1:9200"))
    breakers = EngineBreakers(settings)
    waiting = asyncio.create_task(breakers.vectors.call(wait))
    with pytest.raises(EngineUnavailable, match=r"no answer within 0\.05 s"):
        await breakers.texts.call(wait)
    assert not waiting.done()
    gate.set()

    assert await waiting


async def test_a_probe_that_succeeds_does_not_hide_a_pause() -> None:
    """`/readyz` shows an engine that answers its probe but not the requests."""
    breakers = EngineBreakers(Settings())
    assert breakers.describe("texts", "ok") == "ok"
    for _ in range(MAX_FAILURES):
        with pytest.raises(EngineUnavailable):
            await breakers.texts.call(_fail)

    assert breakers.describe("texts", "ok") == "paused after failures: too slow"
    assert breakers.describe("texts", "damaged") == "damaged"
    assert breakers.describe("vectors", "ok") == "ok"


async def _fail() -> None:
    raise EngineUnavailable("texts", "too slow")
