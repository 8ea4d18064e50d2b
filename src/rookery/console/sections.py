"""The sections of the console, in the order of its navigation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsoleSection:
    """
    A section of the console.

    Attributes:
        path: The path of its first page below `/console/`.
        other_paths: Paths of its other pages that do not begin with *path*.
        scope: The scope without which the section is not shown; None: every key.
    """

    path: str
    title: str
    icon: str
    scope: str | None
    other_paths: tuple[str, ...] = ()


SECTIONS = (
    ConsoleSection("", "Overview", "overview", None),
    ConsoleSection("memories", "Memories", "memories", "brain:read"),
    ConsoleSection("tools", "Tools", "tools", "mcp:read"),
    ConsoleSection("plans", "Plans", "plans", "plans.read"),
    ConsoleSection("sessions", "Sessions", "sessions", "sessions.read"),
    ConsoleSection("campaigns", "Campaigns", "campaigns", "notify:read", other_paths=("subscribers",)),
    ConsoleSection("content", "Content", "content", "content.read"),
    ConsoleSection("usage", "Usage", "usage", "usage:read"),
    ConsoleSection("scoring", "Scoring", "scoring", "score:read"),
    ConsoleSection("webhooks", "Webhooks", "webhooks", "webhooks:read"),
    ConsoleSection("keys", "Keys", "keys", "keys:read"),
    ConsoleSection("audit", "Audit", "audit", "audit:read"),
    ConsoleSection("settings", "Settings", "settings", None),
)
