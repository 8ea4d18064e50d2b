"""`brain clean`, `prune`, `consolidate` and `backfill-org`: what changes the memories of one workspace (spec 4.4, D-52)."""

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

_REINDEX_ADVICE = "Changed memories are stale: `rookery brain:reindex --stale` brings the indexes up to date."


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("clean")(clean)
    brain.command("prune")(prune)
    brain.command("consolidate")(consolidate)
    brain.command("backfill-org")(backfill_org)


def clean(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    strip_pii: Annotated[bool, typer.Option("--strip-pii", help=r"Put marks such as \[email] for personal data and secrets.")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="One form for letters (NFC), white space and tags.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Clean the stored texts of a workspace, archived ones too; a stale re-index then brings it to the vectors."""
    if not (strip_pii or normalise):
        fail_usage("Say what to clean: --strip-pii, --normalise, or both.")
    if strip_pii and not dry_run:
        confirm("This overwrites personal data and secrets in stored memories; the texts cannot be brought back.", yes=yes)
    wanted = scrubbing.CleanRequest(workspace_id=0, strip_pii=strip_pii, normalise=normalise, dry_run=dry_run, resume=resume)

    async def work(opened: MaintenancePlatform, workspace_id: int, watch: RunObserver) -> RunReport:
        return await opened.maintenance.scrubbing.run(replace(wanted, workspace_id=workspace_id), observer=watch)

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
        float | None, typer.Option(min=0, max=1, help="Those whose base confidence is under this.", show_default=False)
    ] = None,
    min_effective_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Those whose confidence, after its decay, is under this.", show_default=False)
    ] = None,
    *,
    deduplicate: Annotated[bool, typer.Option("--deduplicate", help="Duplicates but for the one of highest confidence.")] = False,
    unused: Annotated[bool, typer.Option("--unused", help="Those that no recall returned for 180 days, effective under 0.3.")] = False,
    delete: Annotated[bool, typer.Option("--delete", help="Delete for good instead of archive.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Archive the memories of a workspace that meet any of the criteria; name those that nobody ever asked for."""
    wanted = pruning.PruneRequest(
        workspace_id=0,
        min_confidence=min_confidence,
        min_effective_confidence=min_effective_confidence,
        deduplicate=deduplicate,
        unused=unused,
        delete=delete,
        dry_run=dry_run,
    )
    if not wanted.has_criteria:
        fail_usage("Say what to prune: --min-confidence, --min-effective-confidence, --deduplicate, --unused.")
    if delete and not dry_run:
        confirm("This deletes memories for good.", yes=yes)

    async def work(opened: MaintenancePlatform, workspace_id: int, watch: RunObserver) -> RunReport:
        return await opened.maintenance.pruning.run(replace(wanted, workspace_id=workspace_id), observer=watch)

    _run(get_platform(context), workspace, work, RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run), "Pruning")


def consolidate(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: WorkspaceOption = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="The cosine similarity that a memory must exceed to be merged.")
    ] = consolidation.DEFAULT_THRESHOLD,
    *,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Merge memories of the same space that say the same, and archive those that were merged."""
    wanted = consolidation.ConsolidationRequest(
        workspace_id=0, org=org, project=project, threshold=threshold, dry_run=dry_run, resume=resume
    )

    async def work(opened: MaintenancePlatform, workspace_id: int, watch: RunObserver) -> RunReport:
        return await opened.maintenance.consolidation.run(replace(wanted, workspace_id=workspace_id), observer=watch)

    _run(get_platform(context), workspace, work, RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run), "Consolidating")


def backfill_org(context: typer.Context, workspace: WorkspaceOption = None, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Give memories that have a project and no org the org that their project is known under."""
    wanted = backfill.BackfillRequest(workspace_id=0, dry_run=dry_run)

    async def work(opened: MaintenancePlatform, workspace_id: int, watch: RunObserver) -> RunReport:
        return await opened.maintenance.backfill.run(replace(wanted, workspace_id=workspace_id), observer=watch)

    _run(
        get_platform(context),
        workspace,
        work,
        RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run),
        "Filling in",
        advice=_REINDEX_ADVICE,
    )


def _run(
    platform: MaintenanceCommandContext,
    where: str | None,
    run_command: Callable[[MaintenancePlatform, int, RunObserver], Awaitable[RunReport]],
    printer: RunReportPrinter,
    title: str,
    *,
    advice: str | None = None,
) -> None:
    async def inside() -> RunReport:
        async with platform.open() as opened:
            workspace_id = await resolve_workspace(opened, where)
            with printer.observe(title) as watch:
                return await run_command(opened, workspace_id, watch)

    report = asyncio.run(inside())
    printer.print_report(report, advice=advice if report.counts.get("changed") else None)
