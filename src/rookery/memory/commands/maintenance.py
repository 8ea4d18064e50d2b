"""`brain clean`, `prune`, `consolidate`, `backfill-org` and `forget`: changes to the memories of a workspace (spec 4.4, D-52)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.batch_runs import RunObserver, RunReport
from rookery.memory.commands.command_context import (
    DryRun,
    Json,
    MaintenanceCommandContext,
    MaintenancePlatform,
    Org,
    Project,
    Resume,
    WorkspaceOption,
    Yes,
    confirm,
    fail_usage,
    get_platform,
    resolve_workspace,
)
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.maintenance import backfill, consolidation, pruning, scrubbing
from rookery.memory.maintenance.forgetting import ForgetRequest

_REINDEX_ADVICE = "Changed memories are stale: `rookery brain:reindex --stale` brings the indexes up to date."


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("clean")(clean)
    brain.command("prune")(prune)
    brain.command("consolidate")(consolidate)
    brain.command("backfill-org")(backfill_org)
    brain.command("forget")(forget)


def clean(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    strip_pii: Annotated[bool, typer.Option("--strip-pii", help=r"Replace personal data and secrets by marks such as \[email].")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="Normalise letters (NFC), white space and tags.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Clean the stored texts of a workspace, including archived ones. Run `brain:reindex --stale` afterwards."""
    if not (strip_pii or normalise):
        fail_usage("Nothing to clean was given; pass --strip-pii, --normalise, or both.")
    if strip_pii and not dry_run:
        confirm("This overwrites personal data and secrets in stored memories; the original texts cannot be restored.", yes=yes)
    request = scrubbing.CleanRequest(workspace_id=0, strip_pii=strip_pii, normalise=normalise, dry_run=dry_run, resume=resume)

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int, observer: RunObserver) -> RunReport:
        return await maintenance_platform.maintenance.scrubbing.run(replace(request, workspace_id=workspace_id), observer=observer)

    _run(
        get_platform(context),
        workspace,
        work,
        RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run),
        "Cleaning",
        advice=_REINDEX_ADVICE,
    )


def prune(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Archive memories whose base confidence is below this.", show_default=False)
    ] = None,
    min_effective_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Archive memories whose confidence, after decay, is below this.", show_default=False)
    ] = None,
    *,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Archive duplicates, except the one of highest confidence.")] = False,
    unused: Annotated[
        bool, typer.Option("--unused", help="Memories that no recall returned for 180 days and whose effective confidence is below 0.3.")
    ] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete permanently instead of archiving.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Archive the memories of a workspace that meet any of the criteria, and list those that were never recalled."""
    request = pruning.PruneRequest(
        workspace_id=0,
        min_confidence=min_confidence,
        min_effective_confidence=min_effective_confidence,
        deduplicate=deduplicate,
        unused=unused,
        delete=delete,
        dry_run=dry_run,
    )
    if not request.has_criteria:
        fail_usage("Nothing to prune was given; pass --min-confidence, --min-effective-confidence, --deduplicate or --unused.")
    if delete and not dry_run:
        confirm("This permanently deletes memories.", yes=yes)

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int, observer: RunObserver) -> RunReport:
        return await maintenance_platform.maintenance.pruning.run(replace(request, workspace_id=workspace_id), observer=observer)

    _run(get_platform(context), workspace, work, RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run), "Pruning")


def consolidate(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: WorkspaceOption = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Merge two memories if their cosine similarity is above this.")
    ] = consolidation.DEFAULT_THRESHOLD,
    *,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Merge similar memories of the same space, and archive the merged ones."""
    request = consolidation.ConsolidationRequest(
        workspace_id=0, org=org, project=project, threshold=threshold, dry_run=dry_run, resume=resume
    )

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int, observer: RunObserver) -> RunReport:
        return await maintenance_platform.maintenance.consolidation.run(replace(request, workspace_id=workspace_id), observer=observer)

    _run(get_platform(context), workspace, work, RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run), "Consolidating")


def backfill_org(context: typer.Context, workspace: WorkspaceOption = None, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Set the org of memories that have a project but no org, if the org of the project is known."""
    request = backfill.BackfillRequest(workspace_id=0, dry_run=dry_run)

    async def work(maintenance_platform: MaintenancePlatform, workspace_id: int, observer: RunObserver) -> RunReport:
        return await maintenance_platform.maintenance.backfill.run(replace(request, workspace_id=workspace_id), observer=observer)

    _run(
        get_platform(context),
        workspace,
        work,
        RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run),
        "Filling in",
        advice=_REINDEX_ADVICE,
    )


def forget(
    context: typer.Context,
    *,
    ids: Annotated[list[str] | None, typer.Argument(help="Only these memories.", show_default=False)] = None,
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="Only memories of this agent, of every scope.", show_default=False)] = None,
    session: Annotated[str | None, typer.Option(help="Only memories of this session.", show_default=False)] = None,
    traces: Annotated[
        bool, typer.Option("--traces", help="Erase all data deleted so far from all files. Without criteria, do only this.")
    ] = False,
    workspace: WorkspaceOption = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete memories for good, including archived and expired ones, and erase them from all files. All given criteria must match."""
    request = ForgetRequest(
        workspace_id=0,
        ids=tuple(ids or ()),
        org=org,
        project=project,
        agent_id=agent,
        session_id=session,
        erase_traces=traces,
        dry_run=dry_run,
    )
    if not (request.has_criteria or traces):
        fail_usage("Nothing to forget was given; pass ids, --agent, --session, --org, --project or --traces.")
    if request.has_criteria and not dry_run:
        confirm("This permanently deletes memories.", yes=yes)
    printer = RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run)
    printer.print_report(asyncio.run(_run_forget(get_platform(context), workspace, request, printer)))


def _run(
    platform: MaintenanceCommandContext,
    workspace: str | None,
    run_command: Callable[[MaintenancePlatform, int, RunObserver], Awaitable[RunReport]],
    printer: RunReportPrinter,
    title: str,
    *,
    advice: str | None = None,
) -> None:
    async def run() -> RunReport:
        async with platform.open() as maintenance_platform:
            workspace_id = await resolve_workspace(maintenance_platform, workspace)
            with printer.observe(title) as observer:
                return await run_command(maintenance_platform, workspace_id, observer)

    report = asyncio.run(run())
    printer.print_report(report, advice=advice if report.counts.get("changed") else None)


async def _run_forget(
    platform: MaintenanceCommandContext, workspace: str | None, request: ForgetRequest, printer: RunReportPrinter
) -> RunReport:
    async with platform.open() as maintenance_platform:
        workspace_id = await resolve_workspace(maintenance_platform, workspace) if request.has_criteria else 0
        with printer.observe("Forgetting") as observer:
            return await maintenance_platform.maintenance.forgetting.run(replace(request, workspace_id=workspace_id), observer=observer)
