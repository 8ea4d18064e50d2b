"""`brain forget`: memories that are to be gone for good (D-04)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.commands.opening import DryRun, Json, Opens, Org, Project, Where, Yes, confirm, one, opens, wrong
from rookery.memory.commands.showing import Screen
from rookery.memory.maintenance.forgetting import Wanted
from rookery.memory.runs import Report


def register(brain: typer.Typer) -> None:
    """Add the command."""
    brain.command("forget")(forget)


def forget(
    context: typer.Context,
    *,
    ids: Annotated[list[str] | None, typer.Argument(help="Only these memories.", show_default=False)] = None,
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="Only memories of this agent, of every scope.", show_default=False)] = None,
    session: Annotated[str | None, typer.Option(help="Only memories of this session.", show_default=False)] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="Leave no trace in files, also of what was deleted by others; alone, only this.")
    ] = False,
    workspace: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete memories for good, archived and expired ones too: those that meet all that is given; no file keeps a trace."""
    wanted = Wanted(
        workspace_id=0, ids=tuple(ids or ()), org=org, project=project, agent_id=agent, session_id=session, traces=traces, dry_run=dry_run
    )
    if not (wanted.has_criteria or traces):
        wrong("Say what to forget: ids, --agent, --session, --org, --project; or --traces.")
    if wanted.has_criteria and not dry_run:
        confirm("This deletes memories for good.", yes=yes)
    screen = Screen(as_json=as_json, lists=dry_run, dry_run=dry_run)
    screen.close(asyncio.run(_forget(opens(context), workspace, wanted, screen)))


async def _forget(platform: Opens, where: str | None, wanted: Wanted, screen: Screen) -> Report:
    async with platform.open() as opened:
        workspace_id = await one(opened, where) if wanted.has_criteria else 0
        with screen.watch("Forgetting") as watch:
            return await opened.tidying.forgetting.run(replace(wanted, workspace_id=workspace_id), watch=watch)
