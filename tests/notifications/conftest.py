"""Fixtures of the tests of notifications."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Settings
from tests.notifications.rig import NotificationRig, run_notifications


@pytest.fixture
async def rig(settings: Settings) -> AsyncIterator[NotificationRig]:
    """A server and a receiver that accepts everything, on each record store in turn."""
    async with run_notifications(settings) as rig:
        yield rig
