"""The views of the console, one module for each section."""

from __future__ import annotations

from rookery.console.routing import View
from rookery.console.views import overview, settings

VIEWS: tuple[View, ...] = (*overview.VIEWS, *settings.VIEWS)
