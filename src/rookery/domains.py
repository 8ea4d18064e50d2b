"""The list of domains, which everything that concerns all of them reads: the platform, webhooks and the API description."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # the command line reads this list and imports no domain
    from rookery.access.event_sources import AnyEventSource
    from rookery.kernel.domain import BuildDomain
    from rookery.terminal.entries import CommandEntry

DOMAINS = ("memory", "tools", "agents", "access", "webhooks")
"""The packages of the domains, in the order of lists and documents."""


def load_builders(*, without: str = "") -> list[BuildDomain]:
    """Import every domain, except *without*, and return its `domain.build`."""
    return [cast("BuildDomain", import_module(f"rookery.{name}.domain").build) for name in DOMAINS if name != without]


def load_commands() -> list[CommandEntry]:
    """Return the commands of all domains: `commands.COMMANDS` of each domain that has commands."""
    return [entry for module in _import_all("commands") for entry in module.COMMANDS]


def load_event_sources() -> list[AnyEventSource]:
    """Import the declarations of all webhook events: `event_payloads.EVENTS` of each domain that has events."""
    return [source for module in _import_all("event_payloads") for source in module.EVENTS]


def _import_all(part: str) -> list[ModuleType]:
    """Import the module *part* of each domain that has it."""
    names = (f"rookery.{domain}.{part}" for domain in DOMAINS)
    return [import_module(name) for name in names if find_spec(name)]
