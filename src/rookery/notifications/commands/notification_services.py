"""The services that the commands of notifications use, opened for one workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import typer

from rookery.access.models import Tenant
from rookery.access.operator import get_operator, resolve_caller, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.kernel.http import Operation
from rookery.notifications.campaigns import Campaigns
from rookery.notifications.deliveries_log import NotificationLog
from rookery.notifications.subscriber_import import SubscriberImport
from rookery.notifications.subscribers import Subscribers
from rookery.terminal.context import run
from rookery.terminal.operation_commands import add_operation_commands

T = TypeVar("T")

_PART = "notifications"
_API = "rookery.notifications.api"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationCommandServices:
    """Subscribers, campaigns and deliveries in the record store. Commands never send messages themselves."""

    workspaces: Workspaces
    operations: Sequence[Operation]
    subscribers: Subscribers
    subscriber_import: SubscriberImport
    campaigns: Campaigns
    log: NotificationLog


add_notification_commands = partial(
    add_operation_commands,
    apis=(f"{_API}.campaigns:CampaignApi", f"{_API}.deliveries:NotificationLogApi", f"{_API}.subscribers:SubscriberApi"),
    part=_PART,
    resolve_caller=resolve_caller,
)
"""Adds commands of operations of notifications to a group."""


def run_with_notifications(
    context: typer.Context, workspace: str | None, work: Callable[[NotificationCommandServices, Tenant], Awaitable[T]]
) -> T:
    """Open notifications, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: NotificationCommandServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, Tenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part=_PART)
