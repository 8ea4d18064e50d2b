"""Templates of plans and workspaces, opened for one command without the other domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rookery.agents.commands.templates import TemplateServices
from rookery.agents.templates.library import Templates
from rookery.cli.store import open_records
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings


@asynccontextmanager
async def open_templates(settings: Settings) -> AsyncGenerator[TemplateServices]:
    """Open them."""
    async with open_records(settings) as records:
        yield TemplateServices(workspaces=records.workspaces, templates=Templates(records.db, records.audit, utc_now))
