"""`brain reindex` and `brain elastic-setup`: maintenance of the derived indexes (spec 4.4)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.batch_runs import RunReport
from rookery.memory.commands.command_context import (
    AllWorkspacesOption,
    DryRun,
    Json,
    MaintenanceCommandContext,
    MaintenancePlatform,
    Org,
    Project,
    Resume,
    get_platform,
    resolve_workspace_or_all,
)
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.maintenance.reindexing import ReindexRequest


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("reindex")(reindex)
    brain.command("elastic-setup")(elastic_setup)


def reindex(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: AllWorkspacesOption = None,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only memories whose current version is not indexed.")] = False,
    elastic_only: Annotated[bool, typer.Option("--elastic-only", help="Only the full-text index, without embedding.")] = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Embed and index matching memories again. Safe while the server runs."""
    request = ReindexRequest(org=org, project=project, is_stale=stale, words_only=elastic_only, resume=resume)
    printer = RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run)
    printer.print_report(asyncio.run(_reindex(get_platform(context), request, workspace, printer)))


def elastic_setup(
    context: typer.Context,
    workspace: Annotated[str | None, typer.Option(help="Has no effect: one index serves all workspaces.", show_default=False)] = None,
    *,
    as_json: Json = False,
) -> None:
    """Create the full-text index. Running it again changes nothing."""
    asyncio.run(_setup(get_platform(context), workspace))
    typer.echo(json.dumps({"ready": True}) if as_json else "The full-text index is ready.")


async def _setup(platform: MaintenanceCommandContext, workspace: str | None) -> None:
    async with platform.open() as maintenance_platform:
        await resolve_workspace_or_all(maintenance_platform, workspace)
        await maintenance_platform.reindexer.setup_text_index()


async def _reindex(
    platform: MaintenanceCommandContext, request: ReindexRequest, workspace: str | None, printer: RunReportPrinter
) -> RunReport:
    async with platform.open() as maintenance_platform:
        request = replace(request, workspace_id=await resolve_workspace_or_all(maintenance_platform, workspace))
        with printer.observe("Indexing") as observer:
            if printer.dry_run:
                return await _preview(maintenance_platform, request, printer)
            return await maintenance_platform.reindexer.reindex(request, on_progress=observer.on_progress)


async def _preview(command_context: MaintenancePlatform, request: ReindexRequest, printer: RunReportPrinter) -> RunReport:
    started_s = time.perf_counter()
    total = await command_context.reindexer.preview(request, printer.print_item)
    return RunReport(total=total, successes=0, failures=0, duration_s=time.perf_counter() - started_s)
