"""Memories and workspaces, opened for one command without tool servers, the web framework and maintenance."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rookery.access.wiring import AccessServices
from rookery.access.workspaces import Workspaces
from rookery.cli.records import build_runtime, open_runtime
from rookery.domains import load_events, load_renderers
from rookery.kernel.config import Settings
from rookery.memory.core_wiring import MemoryCore
from rookery.memory_engines import provide_memory_ports
from rookery.webhooks.event_recorder import EventRecorder
from rookery.webhooks.outbox import Outbox


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """The services for the commands that store and find memories."""

    workspaces: Workspaces
    memory: MemoryCore


@asynccontextmanager
async def open_memory(settings: Settings) -> AsyncGenerator[MemoryStore]:
    """Open them. Changes are published to webhooks and queued for indexing. Raises `WrongSettings` before anything is created."""
    runtime = build_runtime(settings)
    provide_memory_ports(runtime)
    memory = runtime.use(MemoryCore)
    _ = memory.training  # from here on it collects what is stored and recalled
    EventRecorder(runtime, Outbox(runtime.clock, runtime.ids), load_events(["memory"]), load_renderers(["memory"]))
    async with open_runtime(runtime):
        yield MemoryStore(workspaces=runtime.use(AccessServices).workspaces, memory=memory)
