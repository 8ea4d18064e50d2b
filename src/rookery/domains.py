"""The list of domains, which everything that concerns all of them reads: the platform, webhooks and the API description."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # the command line reads this list and imports no domain
    from rookery.access.event_rendering import Renderers, StateRenderers
    from rookery.kernel.domain import BuildDomain
    from rookery.kernel.events import Event
    from rookery.kernel.runtime import Runtime
    from rookery.terminal.entries import CommandEntry
    from rookery.webhooks.outbox import Outbox

DOMAINS = ("memory", "tools", "agents", "content", "usage", "access", "webhooks", "notifications", "scoring")
"""The packages of the domains, in the order of lists and documents."""


def load_builders(*, without: str = "") -> list[BuildDomain]:
    """Import every domain, except *without*, and return its `build.build`."""
    return [cast("BuildDomain", import_module(f"rookery.{name}.build").build) for name in DOMAINS if name != without]


def load_commands() -> list[CommandEntry]:
    """Return the commands of all domains: `commands.COMMANDS` of each domain that has commands."""
    return [entry for module in _import_all("commands") for entry in module.COMMANDS]


def load_events(domains: Iterable[str] = DOMAINS) -> list[type[Event]]:
    """Return the classes of events of *domains*: every class that their `events` defines."""
    return [
        value
        for module in _import_all("events", domains)
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def load_renderers(domains: Iterable[str] = DOMAINS) -> Renderers:
    """Return the functions that render the data of webhook events: `event_payloads.RENDERERS` of each domain."""
    return {event: render for module in _import_all("event_payloads", domains) for event, render in module.RENDERERS.items()}


def load_state_renderers() -> StateRenderers:
    """Return `event_payloads.STATE_RENDERERS` of each domain that has events about the state of a process."""
    modules = _import_all("event_payloads")
    return {event: render for module in modules for event, render in getattr(module, "STATE_RENDERERS", {}).items()}


def record_events(runtime: Runtime, outbox: Outbox | None = None, domains: Iterable[str] = DOMAINS) -> None:
    """Publish the events of *domains* to webhooks from now on. *outbox* None: a server or worker finds their deliveries by polling."""
    webhooks = import_module("rookery.webhooks.event_recorder")
    webhooks.EventRecorder(runtime, outbox or webhooks.Outbox(runtime.clock, runtime.ids), load_events(domains), load_renderers(domains))


def _import_all(part: str, domains: Iterable[str] = DOMAINS) -> list[ModuleType]:
    """Import the module *part* of each of *domains* that has it."""
    names = (f"rookery.{domain}.{part}" for domain in domains)
    return [import_module(name) for name in names if find_spec(name)]
