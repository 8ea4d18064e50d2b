"""The views of the console, one module for each section."""

from __future__ import annotations

from rookery.console.routing import View
from rookery.console.views import (
    audit,
    campaigns,
    keys,
    memories,
    memory_forms,
    overview,
    scoring,
    settings,
    subscribers,
    webhooks,
)

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *memory_forms.VIEWS,
    *memories.VIEWS,
    *scoring.VIEWS,
    *campaigns.VIEWS,
    *subscribers.VIEWS,
    *webhooks.VIEWS,
    *keys.VIEWS,
    *audit.VIEWS,
    *settings.VIEWS,
)
