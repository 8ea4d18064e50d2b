"""The services that commands on keys, workspaces and the audit log use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from rookery.terminal.context import run

if TYPE_CHECKING:  # commands that open nothing start faster without these imports
    from rookery.access.agent_keys import AgentKeys
    from rookery.access.api_keys import ApiKeys
    from rookery.access.audit_log import AuditLog
    from rookery.access.usage_log import UsageLog
    from rookery.access.workspaces import Workspaces

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyServices:
    """Keys, workspaces and the audit log. Workspaces cannot be deleted with these services."""

    workspaces: Workspaces
    api_keys: ApiKeys
    agent_keys: AgentKeys
    usage: UsageLog
    audit: AuditLog


def run_with_access(context: typer.Context, work: Callable[[KeyServices], Awaitable[T]], *, create: bool = False) -> T:
    """Open keys, workspaces and the audit log, run *work* and close them; *create* the store if it does not exist."""
    return run(context, work, part="keys", create=create)


def read(context: typer.Context, work: Callable[[KeyServices], Awaitable[T]]) -> T:
    """Open keys, workspaces and the audit log read-only, which starts faster, run *work* and close them."""
    return run(context, work, part="keys-read-only")
