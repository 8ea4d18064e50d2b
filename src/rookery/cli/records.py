"""The record store, opened for one command with the services that the command uses."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

import structlog

from rookery.access.ports import AccessPorts, IsAgentInUse
from rookery.access.wiring import AccessServices
from rookery.cli.store import prepare_store
from rookery.engines import counters
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.runtime import Runtime

_log = structlog.stdlib.get_logger("rookery.cli")


def _refuse_agent(_: Tx, workspace_id: int, agent_id: str) -> NoReturn:
    msg = f"memories of agent {agent_id} in workspace {workspace_id} cannot be checked: this command does not open memories"
    raise AssertionError(msg)


def build_runtime(settings: Settings, *, bus: EventBus | None = None, is_agent_in_use: IsAgentInUse = _refuse_agent) -> Runtime:
    """
    Return a runtime on which a command builds its services. Nothing is opened.

    Args:
        bus: The bus for changes; None: an empty one.
        is_agent_in_use: Returns whether a workspace has memories of an agent, for changes of agent keys.
    """
    settings.require_secret_key()
    db = open_database(settings.database_url.reveal(), data_dir=settings.data_dir)
    runtime = Runtime(settings, db=db, bus=bus or EventBus(), clock=utc_now, ids=uuid7)
    runtime.on_close(db.close)
    counter = counters.open(settings.counters.reveal(), data_dir=settings.data_dir, verify_ssl=settings.verify_ssl)
    runtime.provide(AccessPorts, lambda _: AccessPorts(counter=counter, is_agent_in_use=is_agent_in_use, purgers=[_refuse_deletion]))
    return runtime


def _refuse_deletion(_: Tx, workspace_id: int) -> NoReturn:
    msg = f"workspace {workspace_id} can be deleted only by the whole platform, which covers every table"
    raise AssertionError(msg)


@asynccontextmanager
async def open_runtime(runtime: Runtime) -> AsyncGenerator[None]:
    """Migrate the record store, and at the end close what was used."""
    prepare_store(runtime.settings)
    try:
        yield
    finally:
        try:
            await runtime.close()
        except OUTAGES as error:  # every step was tried; unwritten data is lost
            _log.error("stopped.not_all_written", reason=error.message)


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
