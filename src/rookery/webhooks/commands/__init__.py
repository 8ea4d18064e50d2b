"""The commands of webhooks."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "webhooks",
        "Manage webhooks: the endpoints that receive events, and their deliveries.",
        "rookery.webhooks.commands.webhooks:app",
        140,
        "Webhooks and notifications",
    ),
)
