"""The services that the commands of notifications use, opened for one workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import typer

from rookery.access.models import Tenant
from rookery.access.operator import get_operator, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.notifications.campaigns import Campaigns
from rookery.notifications.deliveries_log import NotificationLog
from rookery.notifications.subscriber_import import SubscriberImport
from rookery.notifications.subscribers import Subscribers
from rookery.terminal.context import run

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationCommandServices:
    """Subscribers, campaigns and deliveries in the record store. Commands never send messages themselves."""

    workspaces: Workspaces
    subscribers: Subscribers
    subscriber_import: SubscriberImport
    campaigns: Campaigns
    log: NotificationLog


def run_with_notifications(
    context: typer.Context, workspace: str | None, work: Callable[[NotificationCommandServices, Tenant], Awaitable[T]]
) -> T:
    """Open notifications, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: NotificationCommandServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, Tenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part="notifications")
