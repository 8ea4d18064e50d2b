"""`brain clean`, `prune`, `consolidate` and `backfill-org`: what changes the memories of one workspace (spec 4.4, D-52)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.commands.opening import DryRun, Json, Opened, Opens, Org, Project, Resume, Where, Yes, confirm, one, opens, wrong
from rookery.memory.commands.showing import Screen
from rookery.memory.maintenance import backfill, consolidation, pruning, scrubbing
from rookery.memory.runs import Report, Watch

_STALE = "Changed memories are stale: `rookery brain:reindex --stale` brings the indexes up to date."


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("clean")(clean)
    brain.command("prune")(prune)
    brain.command("consolidate")(consolidate)
    brain.command("backfill-org")(backfill_org)


def clean(
    context: typer.Context,
    workspace: Where = None,
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
        wrong("Say what to clean: --strip-pii, --normalise, or both.")
    if strip_pii and not dry_run:
        confirm("This overwrites personal data and secrets in stored memories; the texts cannot be brought back.", yes=yes)
    wanted = scrubbing.Wanted(workspace_id=0, strip_pii=strip_pii, normalise=normalise, dry_run=dry_run, resume=resume)

    async def work(opened: Opened, workspace_id: int, watch: Watch) -> Report:
        return await opened.tidying.scrubbing.run(replace(wanted, workspace_id=workspace_id), watch=watch)

    _run(opens(context), workspace, work, Screen(as_json=as_json, lists=dry_run, dry_run=dry_run), "Cleaning", advice=_STALE)


def prune(
    context: typer.Context,
    workspace: Where = None,
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
    wanted = pruning.Wanted(
        workspace_id=0,
        min_confidence=min_confidence,
        min_effective_confidence=min_effective_confidence,
        deduplicate=deduplicate,
        unused=unused,
        delete=delete,
        dry_run=dry_run,
    )
    if not wanted.has_criteria:
        wrong("Say what to prune: --min-confidence, --min-effective-confidence, --deduplicate, --unused.")
    if delete and not dry_run:
        confirm("This deletes memories for good.", yes=yes)

    async def work(opened: Opened, workspace_id: int, watch: Watch) -> Report:
        return await opened.tidying.pruning.run(replace(wanted, workspace_id=workspace_id), watch=watch)

    _run(opens(context), workspace, work, Screen(as_json=as_json, lists=dry_run, dry_run=dry_run), "Pruning")


def consolidate(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: Where = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="The cosine similarity that a memory must exceed to be merged.")
    ] = consolidation.THRESHOLD,
    *,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Merge memories of the same space that say the same, and archive those that were merged."""
    wanted = consolidation.Wanted(workspace_id=0, org=org, project=project, threshold=threshold, dry_run=dry_run, resume=resume)

    async def work(opened: Opened, workspace_id: int, watch: Watch) -> Report:
        return await opened.tidying.consolidation.run(replace(wanted, workspace_id=workspace_id), watch=watch)

    _run(opens(context), workspace, work, Screen(as_json=as_json, lists=dry_run, dry_run=dry_run), "Consolidating")


def backfill_org(context: typer.Context, workspace: Where = None, *, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Give memories that have a project and no org the org that their project is known under."""
    wanted = backfill.Wanted(workspace_id=0, dry_run=dry_run)

    async def work(opened: Opened, workspace_id: int, watch: Watch) -> Report:
        return await opened.tidying.backfill.run(replace(wanted, workspace_id=workspace_id), watch=watch)

    _run(opens(context), workspace, work, Screen(as_json=as_json, lists=dry_run, dry_run=dry_run), "Filling in", advice=_STALE)


def _run(
    platform: Opens,
    where: str | None,
    work: Callable[[Opened, int, Watch], Awaitable[Report]],
    screen: Screen,
    what: str,
    *,
    advice: str | None = None,
) -> None:
    async def inside() -> Report:
        async with platform.open() as opened:
            workspace_id = await one(opened, where)
            with screen.watch(what) as watch:
                return await work(opened, workspace_id, watch)

    report = asyncio.run(inside())
    screen.close(report, advice=advice if report.counts.get("changed") else None)
