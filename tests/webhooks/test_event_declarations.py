"""The declaration of events: a class in `events` of a domain is all that a webhook event of an existing resource needs."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from rookery.access.event_rendering import EventContext, EventData, find_renderer
from rookery.agents.events import AgentSessionEvent, AgentSessionStarted
from rookery.domains import load_events, load_renderers, load_state_renderers
from rookery.kernel.events import Event, EventType, StateEvent

_TYPE = EventType(name="session.renamed", description="A session was renamed.", data="the session", scope="sessions.read")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRenamed(AgentSessionEvent):
    """A new event of a resource that has events already."""

    types = (_TYPE,)

    session_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParcelSent(Event):
    """An event of a resource that no function renders."""

    types = (_TYPE,)


def _render_renamed(_: EventContext, event: SessionRenamed) -> EventData:
    return {"name": event.session_name}


def test_an_event_is_rendered_as_the_others_of_its_resource() -> None:
    """Architecture, webhooks: a class without a function of its own uses that of its nearest base."""
    renderers = load_renderers()

    assert find_renderer(renderers, SessionRenamed) is find_renderer(renderers, AgentSessionStarted)
    assert find_renderer({**renderers, SessionRenamed: _render_renamed}, SessionRenamed) is _render_renamed


def test_an_event_that_nothing_renders_is_an_error() -> None:
    """Architecture, webhooks: the start fails and names the class, not the first transaction that publishes it."""
    with pytest.raises(ValueError, match="ParcelSent"):
        find_renderer(load_renderers(), ParcelSent)


def test_events_about_the_state_of_a_process_have_renderers_of_their_own() -> None:
    """They have no transaction, so they are rendered from memory."""
    state_events = {event for event in load_events() if issubclass(event, StateEvent)}

    assert state_events == set(load_state_renderers())
