"""Under which headings operations are listed, and what each heading is about."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.reference.downgrade import Schema

_TAG_DESCRIPTIONS = {
    "Memory": "Store, recall, search and manage what agents learn.",
    "Execution": "Call tools and read resources.",
    "Discovery": "List the tool servers, and the tools, resources and prompts of each.",
    "Plans": "Plans with their phases and tasks, and the claiming of tasks.",
    "Sessions": "The sessions of agents, their events and their hand-offs.",
    "Templates": "Templates that plans are created from.",
    "MCP": "The Model Context Protocol endpoint: every permitted tool for any MCP client.",
    "Tool servers": "Add, change, check and remove tool servers, and log in where they require it.",
    "Analytics": "Number, errors and duration of tool calls.",
    "Keys": "API keys and agent keys, their permissions, limits and usage.",
    "Webhooks": "Signed requests that tell other systems about events.",
    "Events": "The types of events.",
    "Workspaces": "Tenants, for operators.",
    "Audit": "Who changed what.",
    "Documentation": "This document and its viewers.",
    "Operation": "Health and metrics of the server.",
}
_TAG_GROUPS = {
    "Memory": ("Memory",),
    "Tools": ("Execution", "Discovery", "MCP", "Tool servers", "Analytics"),
    "Agent work": ("Plans", "Sessions", "Templates"),
    "Platform": ("Keys", "Webhooks", "Events", "Workspaces", "Audit", "Documentation", "Operation"),
}
"""For viewers that show headings in groups (`x-tagGroups`)."""


def build_tags(used: Iterable[str]) -> list[Schema]:
    """Return the headings that are *used*, in our order, those that nobody described last."""
    names = set(used)
    known = [name for name in _TAG_DESCRIPTIONS if name in names]
    return [
        {"name": name, "description": _TAG_DESCRIPTIONS.get(name, name)} for name in [*known, *sorted(names - _TAG_DESCRIPTIONS.keys())]
    ]


def build_tag_groups(used: Iterable[str]) -> list[Schema]:
    """Return the groups of the headings that are *used*; a heading of no group is in one with others of its kind."""
    names = set(used)
    grouped = {group: [name for name in inside if name in names] for group, inside in _TAG_GROUPS.items()}
    grouped["Other"] = sorted(names - _TAG_DESCRIPTIONS.keys())
    return [{"name": group, "tags": inside} for group, inside in grouped.items() if inside]
