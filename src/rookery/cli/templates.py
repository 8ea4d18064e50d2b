"""Templates of plans and workspaces, opened for one command without the other domains."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rookery.agents.templates.library import Templates
from rookery.cli.records import RecordServices, open_records
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTemplates:
    """The templates in the record store and those shipped with Rookery."""

    templates: Templates


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateStore:
    """The services for the commands of templates."""

    access: RecordServices
    agents: StoredTemplates


@asynccontextmanager
async def open_templates(settings: Settings) -> AsyncGenerator[TemplateStore]:
    """Open them."""
    async with open_records(settings) as records:
        yield TemplateStore(access=records, agents=StoredTemplates(templates=Templates(records.db, records.audit, utc_now)))
