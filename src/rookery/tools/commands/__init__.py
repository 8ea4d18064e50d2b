"""The commands of tool servers."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "servers",
        "Add, check and remove tool servers, and log in where they require it.",
        "rookery.tools.commands.servers:app",
        110,
        "Tools",
    ),
    CommandEntry("tools", "Stop tools at once, and start them again.", "rookery.tools.commands.stops:app", 120, "Tools"),
)
