"""Access on an empty store of each dialect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.engines.counters import open as open_counter
from rookery.kernel.db import Database
from tests.access.makers import Access, build_access
from tests.conftest import FakeClock


@pytest.fixture
async def access(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[Access]:
    """Access on an empty store of each dialect in turn."""
    counter = open_counter("embedded:", data_dir=data_dir)
    services = build_access(database, counter, clock)
    yield services
    await services.close()
    await counter.close()
