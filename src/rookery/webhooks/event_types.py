"""The catalogue of the types of webhook events that all domains declare. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rookery.kernel.events import Event, EventType
from rookery.kernel.sentences import suggest


class EventCatalogue:
    """All types of webhook events, in the order of lists, and what subscriptions to them need."""

    def __init__(self, events: Iterable[type[Event]]) -> None:
        self.types: Sequence[EventType] = tuple(event_type for event in events for event_type in event.types)
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
