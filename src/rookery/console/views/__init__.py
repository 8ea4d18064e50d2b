"""The views of the console, one module for each section."""

from __future__ import annotations

from rookery.console.routing import View
from rookery.console.views import memories, memory_forms, overview, scoring, settings

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *memory_forms.VIEWS,
    *memories.VIEWS,
    *scoring.VIEWS,
    *settings.VIEWS,
)
