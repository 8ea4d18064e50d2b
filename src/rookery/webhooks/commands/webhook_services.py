"""The services that the webhook commands use, opened for one workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import typer

from rookery.access.operator import get_operator, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.terminal.context import run
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.models import WebhookTenant

T = TypeVar("T")

WebhookIdArgument = Annotated[str, typer.Argument(help="The endpoint's id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCommandServices:
    """The endpoints and deliveries in the record store. Commands never send deliveries themselves."""

    workspaces: Workspaces
    endpoints: WebhookEndpoints
    deliveries: Deliveries


def run_with_webhooks(
    context: typer.Context, workspace: str | None, work: Callable[[WebhookCommandServices, WebhookTenant], Awaitable[T]]
) -> T:
    """Open webhooks, run *work* in the workspace, and close them."""

    async def run_in_workspace(services: WebhookCommandServices) -> T:
        owner = await resolve_workspace(services, workspace)
        return await work(services, WebhookTenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace, part="webhooks")
