"""The rendering of webhook events: what the functions in `event_payloads` of a domain receive and return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from rookery.access.models import Caller
from rookery.access.store import workspaces
from rookery.kernel.db import Tx
from rookery.kernel.events import Event, StateEvent
from rookery.kernel.runtime import Runtime

R = TypeVar("R")

EventData = Mapping[str, object]
"""The `data` of an event, ready for JSON."""


@dataclass(frozen=True, slots=True)
class EventContext:
    """
    The transaction of an event at its end, and the caller who sees the data that a function renders.

    Attributes:
        viewer: The caller who may see the data; see `make_viewer`.
        with_content: Whether the webhook wants the content of a memory.
    """

    runtime: Runtime
    tx: Tx
    viewer: Caller
    with_content: bool


Renderer = Callable[[EventContext, Any], EventData]
Renderers = Mapping[type[Event], Renderer]
"""The functions that render the data of events, by class. A subclass without its own function uses that of its nearest base."""

StateRenderer = Callable[[Runtime, Caller, Any], EventData | None]
StateRenderers = Mapping[type[StateEvent], StateRenderer]
"""The same for events about the state of this process. Called on the event loop; None: the viewer may not see the subject."""


def find_renderer(renderers: Mapping[type[Any], R], event: type[Event]) -> R:
    """Return the renderer of a class of events, or that of its nearest base. Raise ValueError if no base has one."""
    for base in event.__mro__:
        if base in renderers:
            return renderers[base]
    msg = f"no function in event_payloads renders {event.__name__}"
    raise ValueError(msg)


def make_viewer(tx: Tx, workspace_id: int) -> Caller:
    """
    Return a caller with every right in the tenant, for rendering the data of events. It has no key.

    Rendering needs a caller because the same code makes the responses of the API.
    """
    public_id = workspaces.get_public_id(tx, workspace_id)
    return Caller.without_limits("webhooks", workspace_id, public_workspace_id=public_id)
