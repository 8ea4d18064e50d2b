"""`brain forget`: memories that are to be gone for good (D-04)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.batch_runs import RunReport
from rookery.memory.commands.command_context import (
    DryRun,
    Json,
    MaintenanceCommandContext,
    Org,
    Project,
    WorkspaceOption,
    Yes,
    confirm,
    fail_usage,
    get_platform,
    resolve_workspace,
)
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.maintenance.forgetting import ForgetRequest


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
    workspace: WorkspaceOption = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete memories for good, archived and expired ones too: those that meet all that is given; no file keeps a trace."""
    wanted = ForgetRequest(
        workspace_id=0,
        ids=tuple(ids or ()),
        org=org,
        project=project,
        agent_id=agent,
        session_id=session,
        erase_traces=traces,
        dry_run=dry_run,
    )
    if not (wanted.has_criteria or traces):
        fail_usage("Say what to forget: ids, --agent, --session, --org, --project; or --traces.")
    if wanted.has_criteria and not dry_run:
        confirm("This deletes memories for good.", yes=yes)
    screen = RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run)
    screen.print_report(asyncio.run(_forget(get_platform(context), workspace, wanted, screen)))


async def _forget(platform: MaintenanceCommandContext, where: str | None, request: ForgetRequest, printer: RunReportPrinter) -> RunReport:
    async with platform.open() as opened:
        workspace_id = await resolve_workspace(opened, where) if request.has_criteria else 0
        with printer.observe("Forgetting") as watch:
            return await opened.maintenance.forgetting.run(replace(request, workspace_id=workspace_id), observer=watch)
