"""The commands of tool servers."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "connect",
        "Show the configuration that connects a client to this server, or write it. The key stays in an environment variable.",
        "rookery.tools.commands.connect:connect",
        30,
        "Start here",
    ),
    CommandEntry(
        "servers",
        "Add, check and remove tool servers, and log in where they require it.",
        "rookery.tools.commands.servers:app",
        110,
        "Tools",
    ),
    CommandEntry("tools", "Stop tools at once, and start them again.", "rookery.tools.commands.stops:app", 120, "Tools"),
)
