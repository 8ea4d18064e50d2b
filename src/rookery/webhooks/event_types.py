"""The catalogue of the types of webhook events that all domains declare (D-80). No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rookery.access.event_sources import AnyEventSource, EventType
from rookery.kernel.suggestions import suggest

DISABLED_EVENT = EventType(
    name="webhook.disabled",
    description="Another webhook of the workspace was disabled; `disabled_reason` has the reason.",
    data="that webhook",
    scope="webhooks:read",
    resource="/api/v1/webhooks/{webhook_id}",
)
TEST_EVENT = EventType(
    name="webhook.test",
    description="A test was requested. It is sent only to that webhook, regardless of its events.",
    data="a sentence",
    scope="webhooks:read",
    in_wildcard=False,
)


class EventCatalogue:
    """All types of webhook events, in the order of lists, and what subscriptions to them need."""

    def __init__(self, sources: Iterable[AnyEventSource]) -> None:
        self.types: Sequence[EventType] = tuple(event_type for source in sources for event_type in source.types)
        self.by_name = {event_type.name: event_type for event_type in self.types}

    def list_scopes(self, patterns: Iterable[str]) -> list[str]:
        """Return the scopes that read the events that match *patterns*. Subscribing needs the same scopes."""
        pattern_list = list(patterns)
        return list(dict.fromkeys(event_type.scope for event_type in self.types if event_type.matches(pattern_list)))

    def find_pattern_error(self, pattern: str) -> str | None:
        """Return the error in a pattern, with a suggestion; None if the pattern matches at least one event."""
        if any(event_type.matches([pattern]) for event_type in self.types):
            return None
        groups = dict.fromkeys(event_type.group_pattern for event_type in self.types)
        suggestion = suggest(pattern, [*self.by_name, *groups])
        return f"{pattern[:100]!r} matches no event{suggestion or '.'} GET /api/v1/events lists all names."
