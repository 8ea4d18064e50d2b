"""Under which headings operations are listed, and what each heading is about."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.reference.downgrade import Schema

_TAGS = {
    "Discovery": "Which tool servers there are, and which tools, resources and prompts each of them offers.",
    "Execution": "Call a tool, read a resource.",
    "MCP": "Speak the Model Context Protocol: every permitted tool to any client of it.",
    "Tool servers": "Add, change, check and remove tool servers; log in where they ask for it.",
    "Analytics": "How often, how fast and how well tools were called.",
    "Memory": "Remember, recall, search and keep what agents learn.",
    "Plans": "Plans with their phases and tasks; claiming work.",
    "Templates": "What plans are made from.",
    "Sessions": "What an agent does in one sitting, and how another one takes over.",
    "Keys": "API keys and agent keys: what they may do, from where, how often; and how one's own key stands.",
    "Workspaces": "The tenants; for operators.",
    "Audit": "Who changed what.",
    "Webhooks": "Tell other systems what happens, by signed requests.",
    "Events": "What there is to be told of.",
    "Documentation": "This document and its viewers.",
    "Operation": "Whether the server is well.",
}
_GROUPS = {
    "Tools": ("Discovery", "Execution", "MCP", "Tool servers", "Analytics"),
    "Memory": ("Memory",),
    "Agent work": ("Plans", "Templates", "Sessions"),
    "Platform": ("Keys", "Workspaces", "Audit", "Webhooks", "Events", "Documentation", "Operation"),
}
"""For viewers that show headings in groups (`x-tagGroups`)."""


def tags(used: Iterable[str]) -> list[Schema]:
    """Return the headings that are *used*, in our order, those that nobody described last."""
    names = set(used)
    known = [name for name in _TAGS if name in names]
    return [{"name": name, "description": _TAGS.get(name, name)} for name in [*known, *sorted(names - _TAGS.keys())]]


def groups(used: Iterable[str]) -> list[Schema]:
    """Return the groups of the headings that are *used*; a heading of no group is in one with others of its kind."""
    names = set(used)
    grouped = {group: [name for name in inside if name in names] for group, inside in _GROUPS.items()}
    grouped["Other"] = sorted(names - _TAGS.keys())
    return [{"name": group, "tags": inside} for group, inside in grouped.items() if inside]
