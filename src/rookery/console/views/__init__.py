"""The views of the console, one module for each section."""

from __future__ import annotations

from rookery.console.routing import View
from rookery.console.views import (
    audit,
    campaigns,
    keys,
    memories,
    memory_forms,
    memory_map,
    overview,
    plan_forms,
    plan_tasks,
    plans,
    playground,
    recall,
    scoring,
    session_stream,
    sessions,
    settings,
    subscribers,
    tool_calls,
    tool_servers,
    tools,
    webhooks,
)

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *memory_map.VIEWS,
    *recall.VIEWS,
    *memory_forms.VIEWS,
    *memories.VIEWS,
    *tool_calls.VIEWS,
    *tool_servers.VIEWS,
    *tools.VIEWS,
    *playground.VIEWS,
    *plan_forms.VIEWS,
    *plans.VIEWS,
    *plan_tasks.VIEWS,
    *sessions.VIEWS,
    *session_stream.VIEWS,
    *scoring.VIEWS,
    *campaigns.VIEWS,
    *subscribers.VIEWS,
    *webhooks.VIEWS,
    *keys.VIEWS,
    *audit.VIEWS,
    *settings.VIEWS,
)
