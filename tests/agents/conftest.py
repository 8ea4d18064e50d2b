"""What tests of agent work share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rookery.kernel.config import Settings
from tests.conftest import FakeClock, House, open_house


@pytest.fixture
async def timed(settings: Settings, clock: FakeClock) -> AsyncIterator[House]:
    """A running server whose clock is the test's."""
    async with open_house(settings, clock) as opened:
        yield opened
