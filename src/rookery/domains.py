"""The list of domains, which everything that concerns all of them reads: the platform, webhooks and the API description."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:  # the command line reads this list and imports no domain
    from rookery.access.event_sources import AnyEventSource
    from rookery.kernel.domain import BuildDomain

DOMAINS = ("memory", "tools", "agents", "access", "webhooks")
"""The packages of the domains, in the order of lists and documents."""


def load_builders() -> list[BuildDomain]:
    """Import every domain and return its `domain.build`."""
    return [cast("BuildDomain", import_module(f"rookery.{name}.domain").build) for name in DOMAINS]


def load_event_sources() -> list[AnyEventSource]:
    """Import the declarations of all webhook events: `event_payloads.EVENTS` of each domain that has events."""
    modules = [f"rookery.{name}.event_payloads" for name in DOMAINS]
    return [source for name in modules if find_spec(name) for source in import_module(name).EVENTS]
