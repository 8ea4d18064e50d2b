"""Keys, workspaces and the audit log, opened for commands that change none of them, with a third of the imports of the platform."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

from rookery.access.wiring import AccessServices
from rookery.cli.records import build_runtime, open_runtime
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx
from rookery.kernel.events import EventBus


@asynccontextmanager
async def open_keys_for_reading(settings: Settings) -> AsyncGenerator[AccessServices]:
    """Open them without webhooks. A change of a key raises AssertionError."""
    runtime = build_runtime(settings, bus=_NoBus())
    async with open_runtime(runtime):
        yield runtime.use(AccessServices)


class _NoBus(EventBus):
    """A bus for commands that change nothing."""

    def publish_on_commit(self, tx: Tx, event: object) -> NoReturn:
        """Raise AssertionError, so that the transaction is rolled back."""
        del tx
        msg = f"{type(event).__name__} cannot be sent to webhooks: keys were opened for reading"
        raise AssertionError(msg)
