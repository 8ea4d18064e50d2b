"""Helpers of the webhook commands: the services, and opening them for one workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.commands.command_context import WorkspaceServices, get_operator, resolve_workspace
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import WebhookEndpoints
from rookery.webhooks.models import WebhookTenant

T = TypeVar("T")

WebhookIdArgument = Annotated[str, typer.Argument(help="The endpoint's id.")]


class WebhookCommandServices(Protocol):
    """The webhook services. Commands never send deliveries themselves."""

    @property
    def endpoints(self) -> WebhookEndpoints: ...

    @property
    def deliveries(self) -> Deliveries: ...


class WebhookPlatform(Protocol):
    """Webhooks and workspaces, opened for one command."""

    @property
    def access(self) -> WorkspaceServices: ...

    @property
    def webhooks(self) -> WebhookCommandServices: ...


class WebhookCommandContext(Protocol):
    """The context that the command line passes to every command as `typer.Context.obj`."""

    def open_webhooks(self) -> AbstractAsyncContextManager[WebhookPlatform]:
        """Open webhooks and workspaces."""
        ...


def run_with_webhooks(
    context: typer.Context, workspace: str | None, work: Callable[[WebhookCommandServices, WebhookTenant], Awaitable[T]]
) -> T:
    """Open webhooks, run *work* in the workspace, and close them."""

    async def open_and_run() -> T:
        async with cast("WebhookCommandContext", context.obj).open_webhooks() as platform:
            owner = await resolve_workspace(platform.access, workspace)
            return await work(platform.webhooks, WebhookTenant.for_operator(owner.id, get_operator()))

    return asyncio.run(open_and_run())
