"""The commands of content generation."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "content",
        "Generate content, and show generations, prompt templates, usage and budgets.",
        "rookery.content.commands.content:app",
        135,
        "Plans, content and scores",
    ),
)
