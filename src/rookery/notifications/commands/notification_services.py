"""The commands of notifications, in one workspace: those of operations, and others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import typer

from rookery.access.models import Tenant
from rookery.access.operator import get_operator, resolve_caller, resolve_workspace
from rookery.notifications.build import NotificationServices
from rookery.terminal.context import run
from rookery.terminal.operation_commands import add_operation_commands

T = TypeVar("T")

_PART = "notifications"
_API = "rookery.notifications.api"


add_notification_commands = partial(
    add_operation_commands,
    apis=(f"{_API}.campaigns:CampaignApi", f"{_API}.deliveries:NotificationLogApi", f"{_API}.subscribers:SubscriberApi"),
    part=_PART,
    resolve_caller=resolve_caller,
)
"""Adds commands of operations of notifications to a group."""


def run_with_notifications(
    context: typer.Context, workspace: str | None, work: Callable[[NotificationServices, Tenant], Awaitable[T]]
) -> T:
    """Open notifications, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: NotificationServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, Tenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part=_PART)
