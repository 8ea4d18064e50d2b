"""The commands of notifications."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "notify",
        "Manage notifications: subscribers, campaigns and their deliveries.",
        "rookery.notifications.commands.campaigns:app",
        145,
        "Webhooks and notifications",
    ),
)
