"""Fixtures of the tests of webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.kernel.db import Database
from tests.conftest import FakeClock
from tests.webhooks.receiver import Receiver, run_receiver
from tests.webhooks.rig import WebhookRig, run_webhooks


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver that accepts everything."""
    async with run_receiver() as receiver:
        yield receiver


@pytest.fixture
async def webhooks(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[WebhookRig]:
    """Running webhooks, on a store of each dialect in turn."""
    async with run_webhooks(database, data_dir, clock) as rig:
        yield rig
