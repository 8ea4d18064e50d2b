"""Keys, workspaces and the audit log, opened for commands that change them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from rookery.access.commands.key_services import KeyServices
from rookery.cli.keys import open_keys
from rookery.event_mapping import EventMapper, key_event_mappings
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.memory.store.records import has_agent
from rookery.webhooks.outbox import Outbox


def open_keys_for_changes(settings: Settings) -> AbstractAsyncContextManager[KeyServices]:
    """Open them. Changes of keys are published to webhooks, as the whole platform does."""
    bus = EventBus()
    EventMapper(Outbox(utc_now, uuid7), key_event_mappings(utc_now)).subscribe(bus)
    return open_keys(settings, bus=bus, is_known_agent=has_agent)
