"""The services that the webhook commands use, opened for one workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.operator import get_operator, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.kernel.events import EventType
from rookery.kernel.http import Operation
from rookery.terminal.context import run
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.models import WebhookTenant

T = TypeVar("T")

PART = "webhooks"
"""The part of the platform that the commands open."""

WebhookIdArgument = Annotated[str, typer.Argument(help="The endpoint's id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCommandServices:
    """The endpoints and deliveries in the record store. Commands never send deliveries themselves."""

    workspaces: Workspaces
    operations: Sequence[Operation]
    endpoints: WebhookEndpoints
    deliveries: Deliveries


class EventTypeLister(Protocol):
    """The context that the command line passes to every command as `typer.Context.obj`."""

    def list_event_types(self) -> Sequence[EventType]:
        """Return the types of events that the domains declare. Needs no data folder."""
        ...


def list_event_types(context: typer.Context) -> Sequence[EventType]:
    """Return the types of events."""
    return cast("EventTypeLister", context.obj).list_event_types()


def run_with_webhooks(
    context: typer.Context, workspace: str | None, work: Callable[[WebhookCommandServices, WebhookTenant], Awaitable[T]]
) -> T:
    """Open webhooks, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: WebhookCommandServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, WebhookTenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part=PART)
