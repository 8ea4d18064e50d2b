"""The runtime: services built on first use, and closed in reverse order."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import open_database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.runtime import Runtime


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    """A runtime on a store that is not opened."""
    settings = Settings(data_dir=tmp_path)
    return Runtime(settings, db=open_database("embedded:", data_dir=tmp_path), bus=EventBus(), clock=utc_now, ids=uuid7)


class Nest:
    """A service whose constructor takes a runtime."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime


def test_a_service_is_built_on_first_use_and_then_shared(runtime: Runtime) -> None:
    """A command builds only what it uses."""
    built = list[str]()

    def lay(_: Runtime) -> list[str]:
        built.append("egg")
        return built

    assert built == []
    assert runtime.use(Nest) is runtime.use(Nest)
    assert runtime.use(lay) is runtime.use(lay)
    assert built == ["egg"]


def test_a_provider_replaces_the_constructor(runtime: Runtime) -> None:
    """The composition root provides what a domain needs from another."""
    other = Nest(runtime)
    runtime.provide(Nest, lambda _: other)

    assert runtime.use(Nest) is other


async def test_everything_is_closed_in_reverse_order_even_if_one_step_fails(runtime: Runtime) -> None:
    """Every resource is closed; the failure is raised at the end."""
    steps = list[str]()

    async def close_first() -> None:
        steps.append("first")

    def fail() -> None:
        steps.append("failing")
        msg = "the nest fell"
        raise RuntimeError(msg)

    runtime.on_close(close_first)
    runtime.on_close(fail)
    runtime.on_close(lambda: steps.append("last"))

    with pytest.raises(RuntimeError, match="the nest fell"):
        await runtime.close()
    assert steps == ["last", "failing", "first"]
