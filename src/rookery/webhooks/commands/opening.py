"""What the commands of webhooks share: the platform opened on its store, and the workspace that is meant."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.commands.terminal import Services as AccessServices
from rookery.access.commands.terminal import operator, workspace_of
from rookery.webhooks.deliveries import Deliveries
from rookery.webhooks.endpoints import Endpoints
from rookery.webhooks.models import Tenant

T = TypeVar("T")

WebhookId = Annotated[str, typer.Argument(help="The endpoint's id.")]


class WebhookServices(Protocol):
    """Webhooks; nothing is sent by a command."""

    @property
    def endpoints(self) -> Endpoints: ...

    @property
    def deliveries(self) -> Deliveries: ...


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def webhooks(self) -> WebhookServices: ...


class Context(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Open the platform on its store."""
        ...


def run(context: typer.Context, workspace: str | None, work: Callable[[WebhookServices, Tenant], Awaitable[T]]) -> T:
    """Open the platform, do *work* in the workspace, close it."""

    async def inside() -> T:
        async with cast("Context", context.obj).open() as opened:
            owner = await workspace_of(opened.access, workspace)
            return await work(opened.webhooks, Tenant.operated(owner.id, operator()))

    return asyncio.run(inside())
