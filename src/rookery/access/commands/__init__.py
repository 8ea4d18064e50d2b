"""The commands of keys, workspaces and the audit log."""

from __future__ import annotations

from rookery.terminal.entries import CommandEntry

COMMANDS = (
    CommandEntry(
        "workspace",
        "Manage workspaces, which separate the keys, memories and plans of tenants.",
        "rookery.access.commands.workspaces:app",
        70,
        "Keys and workspaces",
    ),
    CommandEntry(
        "keys", "Create, change and delete API keys, and show their usage.", "rookery.access.commands.keys:app", 80, "Keys and workspaces"
    ),
    CommandEntry(
        "agent-keys",
        "Create, change and revoke agent keys, and show their usage.",
        "rookery.access.commands.agent_keys:app",
        90,
        "Keys and workspaces",
    ),
    CommandEntry(
        "audit",
        "List, verify and export the audit log, which records every change to keys and workspaces.",
        "rookery.access.commands.audit:app",
        100,
        "Keys and workspaces",
    ),
)
