"""The `list_changed` notifications of one client: at most one batch every 5 seconds, and only for changes that it can see."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ServerEvent, ToolsListChanged

from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.feature_lists import FeatureChange
from rookery.tools.models import JsonObject, Server, ServerFeatures

MIN_INTERVAL_S = 5.0
"""Minimum seconds between two notifications of one client. Each makes it list again, which costs a model its cached prompt."""

CanSeeTool = Callable[[Server, CatalogueTool], bool]
"""Returns whether the client sees a tool of a server."""

_NO_FEATURES = ServerFeatures()


class ListChanges:
    """
    The unsent changes of one client. Changes that cancel each other out within the interval are not sent.

    Attributes:
        can_see: Decides by the current rights of the client's key.
        send: Sends events to the client.
    """

    def __init__(self, can_see: CanSeeTool, send: Callable[[list[ServerEvent]], None]) -> None:
        self.can_see = can_see
        self.send = send
        self._pending: dict[str, FeatureChange] = {}
        self._sent_at = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, change: FeatureChange) -> None:
        """Add a change, and send it at once or at the end of the interval."""
        earlier = self._pending.get(change.server.key)
        if earlier is not None:
            change = replace(change, before=earlier.before, is_edit=earlier.is_edit or change.is_edit)
        self._pending[change.server.key] = change
        loop = asyncio.get_running_loop()
        remaining_s = self._sent_at + MIN_INTERVAL_S - loop.time()
        if remaining_s <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(remaining_s, self._flush)

    def close(self) -> None:
        """Send nothing more."""
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _flush(self) -> None:
        self._timer = None
        changes, self._pending = self._pending, {}
        events = dict.fromkeys(event for change in changes.values() for event in list_events(change, self.can_see))
        if events:
            self._sent_at = asyncio.get_running_loop().time()
            self.send(list(events))


def list_events(change: FeatureChange, can_see: CanSeeTool) -> list[ServerEvent]:
    """Return the events of a change that a client can see."""
    before, after = change.before or _NO_FEATURES, change.after or _NO_FEATURES
    events: list[ServerEvent] = []
    if (change.is_edit and before.tools) or _has_visible_change(change.server, before, after, can_see):
        events.append(ToolsListChanged())
    if (before.resources, before.templates) != (after.resources, after.templates):
        events.append(ResourcesListChanged())
    if before.prompts != after.prompts:
        events.append(PromptsListChanged())
    return events


def _has_visible_change(server: Server, before: ServerFeatures, after: ServerFeatures, can_see: CanSeeTool) -> bool:
    if before.tools == after.tools and before.required_scopes == after.required_scopes:
        return False
    old, new = _index(before), _index(after)
    changed = [
        CatalogueTool(definition, features.required_scopes.get(name))
        for tools, features, others in ((old, before, new), (new, after, old))
        for name, definition in tools.items()
        if others.get(name) != definition or before.required_scopes.get(name) != after.required_scopes.get(name)
    ]
    # A new order alone shows in the list too.
    return any(can_see(server, tool) for tool in changed) or (not changed and list(old) != list(new))


def _index(features: ServerFeatures) -> dict[str, JsonObject]:
    return {str(tool.get("name", "")): tool for tool in features.tools}
