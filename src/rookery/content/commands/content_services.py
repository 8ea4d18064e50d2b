"""The content services of the platform, opened for one command and one workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from rookery.access.operator import get_operator, resolve_caller, resolve_workspace
from rookery.content.models import ContentTenant
from rookery.terminal.context import run
from rookery.terminal.operation_commands import add_operation_commands

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.access.models import Caller
    from rookery.access.wiring import AccessServices
    from rookery.content.wiring import ContentServices

T = TypeVar("T")


class ContentPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def content(self) -> ContentServices: ...


async def _resolve_caller(platform: ContentPlatform, workspace: str | None) -> Caller:
    return await resolve_caller(platform.access, workspace)


add_content_commands = partial(
    add_operation_commands,
    apis=[
        f"rookery.content.api.{name}" for name in ("generations:GenerationApi", "prompt_templates:PromptTemplateApi", "budgets:BudgetApi")
    ],
    resolve_caller=_resolve_caller,
)
"""Adds commands of operations of content to a group."""


def run_with_content(context: typer.Context, workspace: str | None, work: Callable[[ContentServices, ContentTenant], Awaitable[T]]) -> T:
    """Open the platform, run *work* with its content services in the workspace, and close it."""

    async def run_in_workspace(platform: ContentPlatform) -> T:
        owner = await resolve_workspace(platform.access, workspace)
        return await work(platform.content, ContentTenant.for_operator(owner.id, get_operator()))

    return run(context, run_in_workspace)
