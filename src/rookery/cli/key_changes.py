"""Keys, workspaces and the audit log, opened for a command that changes them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from rookery.announcing import Announcer, key_announcements
from rookery.cli.keys import KeyServices, open_keys
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.events import Bus
from rookery.kernel.ids import uuid7
from rookery.memory.store.records import knows_agent
from rookery.webhooks.recording import Recorder


def open_keys_for_changes(settings: Settings) -> AbstractAsyncContextManager[KeyServices]:
    """Open them; changes of keys are announced to webhooks as by the whole platform."""
    bus = Bus()
    Announcer(Recorder(utc_now, uuid7), key_announcements(utc_now)).connect(bus)
    return open_keys(settings, bus=bus, is_known_agent=knows_agent)
