"""Templates of plans and workspaces, opened for one command without the other domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.access.wiring import AccessServices
from rookery.agents.commands.templates import TemplateServices
from rookery.agents.templates.library import Templates
from rookery.cli.records import build_runtime, open_runtime
from rookery.kernel.config import Settings


@asynccontextmanager
async def open_templates(settings: Settings) -> AsyncGenerator[TemplateServices]:
    """Open them."""
    runtime = build_runtime(settings)
    access = runtime.use(AccessServices)
    async with open_runtime(runtime):
        yield TemplateServices(workspaces=access.workspaces, templates=Templates(runtime.db, access.audit, runtime.clock))
