"""The tags of operations and their descriptions."""

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
    "Content": "Generate content with a language model: single answers, streams, batches, prompt templates, budgets and usage.",
    "MCP": "The Model Context Protocol endpoint: every permitted tool for any MCP client.",
    "Tool servers": "Add, change, check and remove tool servers, and log in where they require it.",
    "Analytics": "Number, errors and duration of tool calls.",
    "Keys": "API keys and agent keys, their permissions, limits and usage.",
    "Scoring": "AI detection and sycophancy of texts, which are not stored.",
    "Usage": "Calls, tokens and cost by workspace, key, agent, model and tool.",
    "Webhooks": "Signed requests to other systems when events occur.",
    "Events": "The types of events.",
    "Notifications": "Subscribers, campaigns, and the delivery to each channel.",
    "Workspaces": "Tenants, for operators.",
    "Audit": "The log of changes to keys and workspaces.",
    "Documentation": "This document and its viewers.",
    "Operation": "Health and metrics of the server.",
}
_TAG_GROUPS = {
    "Memory": ("Memory",),
    "Tools": ("Execution", "Discovery", "MCP", "Tool servers", "Analytics"),
    "Agent work": ("Plans", "Sessions", "Templates"),
    "Notifications": ("Notifications",),
    "Content": ("Content",),
    "Scoring": ("Scoring",),
    "Platform": ("Keys", "Usage", "Webhooks", "Events", "Workspaces", "Audit", "Documentation", "Operation"),
}
"""Groups of tags, for viewers that support `x-tagGroups`."""


def build_tags(used_tags: Iterable[str]) -> list[Schema]:
    """Return *used_tags* in the order of `_TAG_DESCRIPTIONS`. Tags without a description come last."""
    names = set(used_tags)
    known_names = [name for name in _TAG_DESCRIPTIONS if name in names]
    return [
        {"name": name, "description": _TAG_DESCRIPTIONS.get(name, name)}
        for name in [*known_names, *sorted(names - _TAG_DESCRIPTIONS.keys())]
    ]


def build_tag_groups(used_tags: Iterable[str]) -> list[Schema]:
    """Return the groups of *used_tags*. Tags without a group are in the group Other."""
    names = set(used_tags)
    grouped = {group: [name for name in group_names if name in names] for group, group_names in _TAG_GROUPS.items()}
    grouped["Other"] = sorted(names - _TAG_DESCRIPTIONS.keys())
    return [{"name": group, "tags": group_names} for group, group_names in grouped.items() if group_names]
