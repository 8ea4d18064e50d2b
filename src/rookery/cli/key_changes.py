"""Keys, workspaces and the audit log, opened for commands that change them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.access.wiring import AccessServices
from rookery.cli.records import build_runtime, open_runtime
from rookery.domains import load_events, load_renderers
from rookery.kernel.config import Settings
from rookery.memory.store.records import has_agent
from rookery.webhooks.event_recorder import EventRecorder
from rookery.webhooks.outbox import Outbox


@asynccontextmanager
async def open_keys_for_changes(settings: Settings) -> AsyncGenerator[AccessServices]:
    """Open them. Changes of keys are published to webhooks, as the whole platform does."""
    runtime = build_runtime(settings, is_agent_in_use=has_agent)
    EventRecorder(runtime, Outbox(runtime.clock, runtime.ids), load_events(["access"]), load_renderers(["access"]))
    async with open_runtime(runtime):
        yield runtime.use(AccessServices)
