"""Fixtures of the tests of agent work."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rookery.kernel.config import Settings
from tests.conftest import FakeClock, Instance, run_instance


@pytest.fixture
async def clocked_instance(settings: Settings, clock: FakeClock) -> AsyncIterator[Instance]:
    """A running server whose clock is the test's."""
    async with run_instance(settings, clock) as instance:
        yield instance
