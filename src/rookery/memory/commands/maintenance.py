"""The command group `rookery brain`, and its commands that repair, clean and forget the memories of a workspace."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from rookery.access.operator import get_operator
from rookery.memory.batch_runs import RunObserver, RunReport
from rookery.memory.commands import recall_log, training
from rookery.memory.commands.maintenance_services import DryRunOption, ResumeOption, run_in_workspace
from rookery.memory.commands.report_output import RunReportPrinter
from rookery.memory.maintenance import backfill, consolidation, pruning, scrubbing
from rookery.memory.maintenance.forgetting import ForgetRequest
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.terminal.options import JsonOption, WorkspaceOption, YesOption, confirm, raise_usage_error

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.memory.build import MemoryServices
    from rookery.memory.memory_audit import RunAction

_REINDEX_ADVICE = "Changed memories are stale: `rookery brain:reindex --stale` brings the indexes up to date."

Org = Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)]
AllWorkspacesOption = Annotated[
    str | None, typer.Option("--workspace", help="Only this workspace, by name or number; all by default.", show_default=False)
]


def reindex(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: AllWorkspacesOption = None,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only memories whose current version is not indexed.")] = False,
    elastic_only: Annotated[bool, typer.Option("--elastic-only", help="Only the full-text index, without embedding.")] = False,
    dry_run: DryRunOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Embed and index matching memories again. Safe while the server runs."""
    request = ReindexRequest(org=org, project=project, is_stale=stale, words_only=elastic_only, resume=resume)

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        of_workspace, started_s = replace(request, workspace_id=workspace_id or None), time.perf_counter()
        if not dry_run:
            return await memory.reindexer.reindex(of_workspace, on_progress=observer.on_progress)
        total = await memory.reindexer.preview(of_workspace, observer.on_item)
        return RunReport(total=total, successes=0, failures=0, duration_s=time.perf_counter() - started_s)

    _run(context, workspace, work, "Indexing", dry_run=dry_run, as_json=as_json, needs_workspace=False)


def elastic_setup(
    context: typer.Context,
    workspace: Annotated[str | None, typer.Option(help="Has no effect: one index serves all workspaces.", show_default=False)] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Create the full-text index. Running it again changes nothing."""

    async def work(memory: MemoryServices, _: int) -> None:
        await memory.reindexer.setup_text_index()

    run_in_workspace(context, workspace, work, needs_workspace=False)
    typer.echo(json.dumps({"ready": True}) if as_json else "The full-text index is ready.")


def clean(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    strip_pii: Annotated[bool, typer.Option("--strip-pii", help=r"Replace personal data and secrets by marks such as \[email].")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="Normalise letters (NFC), white space and tags.")] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Clean the stored texts of a workspace, including archived ones. Run `brain:reindex --stale` afterwards."""
    if not (strip_pii or normalise):
        raise_usage_error("Nothing to clean was given; pass --strip-pii, --normalise, or both.")
    if strip_pii and not dry_run:
        confirm(
            "This overwrites personal data and secrets in stored memories; the original texts cannot be restored.",
            yes=yes,
            can_preview=True,
        )
    request = scrubbing.CleanRequest(workspace_id=0, strip_pii=strip_pii, normalise=normalise, dry_run=dry_run, resume=resume)

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        return await memory.maintenance.scrubbing.run(replace(request, workspace_id=workspace_id, by=get_operator()), observer=observer)

    _run(
        context, workspace, work, "Cleaning", audit=("memories.cleaned", request), dry_run=dry_run, as_json=as_json, advice=_REINDEX_ADVICE
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
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
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
        raise_usage_error("Nothing to prune was given; pass --min-confidence, --min-effective-confidence, --deduplicate or --unused.")
    if delete and not dry_run:
        confirm("This permanently deletes memories.", yes=yes, can_preview=True)

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        return await memory.maintenance.pruning.run(replace(request, workspace_id=workspace_id, by=get_operator()), observer=observer)

    _run(context, workspace, work, "Pruning", audit=("memories.pruned", request), dry_run=dry_run, as_json=as_json)


def consolidate(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: WorkspaceOption = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Merge two memories if their cosine similarity is above this.")
    ] = consolidation.DEFAULT_THRESHOLD,
    *,
    dry_run: DryRunOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Merge similar memories of the same space, and archive the merged ones."""
    request = consolidation.ConsolidationRequest(
        workspace_id=0, org=org, project=project, threshold=threshold, dry_run=dry_run, resume=resume
    )

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        return await memory.maintenance.consolidation.run(replace(request, workspace_id=workspace_id, by=get_operator()), observer=observer)

    _run(context, workspace, work, "Consolidating", audit=("memories.consolidated", request), dry_run=dry_run, as_json=as_json)


def backfill_org(
    context: typer.Context, workspace: WorkspaceOption = None, *, dry_run: DryRunOption = False, as_json: JsonOption = False
) -> None:
    """Set the org of memories that have a project but no org, if the org of the project is known."""
    request = backfill.BackfillRequest(workspace_id=0, dry_run=dry_run)

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        return await memory.maintenance.backfill.run(replace(request, workspace_id=workspace_id, by=get_operator()), observer=observer)

    _run(
        context,
        workspace,
        work,
        "Filling in",
        audit=("memories.backfilled", request),
        dry_run=dry_run,
        as_json=as_json,
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
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
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
        raise_usage_error("Nothing to forget was given; pass ids, --agent, --session, --org, --project or --traces.")
    if request.has_criteria and not dry_run:
        confirm("This permanently deletes memories.", yes=yes, can_preview=True)

    async def work(memory: MemoryServices, workspace_id: int, observer: RunObserver) -> RunReport:
        return await memory.maintenance.forgetting.run(replace(request, workspace_id=workspace_id, by=get_operator()), observer=observer)

    _run(
        context,
        workspace,
        work,
        "Forgetting",
        audit=("memories.forgotten", request),
        dry_run=dry_run,
        as_json=as_json,
        needs_workspace=request.has_criteria,
    )


def _run(
    context: typer.Context,
    workspace: str | None,
    work: Callable[[MemoryServices, int, RunObserver], Awaitable[RunReport]],
    title: str,
    *,
    audit: tuple[RunAction, object] | None = None,
    dry_run: bool,
    as_json: bool,
    advice: str | None = None,
    needs_workspace: bool = True,
) -> None:
    """
    Run *work* with a progress bar and print its report, with *advice* if a memory was changed.

    Args:
        audit: The action and the request for the audit log. A dry run is not recorded.
    """
    printer = RunReportPrinter(as_json=as_json, lists_items=dry_run, dry_run=dry_run)

    async def work_observed(memory: MemoryServices, workspace_id: int) -> RunReport:
        with printer.observe(title) as observer:
            if audit is None or dry_run:
                return await work(memory, workspace_id, observer)
            action, request = audit
            return await memory.audit.run(
                get_operator(), workspace_id, action, _list_options(request), lambda: work(memory, workspace_id, observer)
            )

    report = run_in_workspace(context, workspace, work_observed, needs_workspace=needs_workspace)
    printer.print_report(report, advice=advice if report.counts.get("changed") else None)


def _list_options(request: object) -> Mapping[str, object]:
    """Return the options of *request* that differ between runs of one command in a workspace."""
    names = cast("Mapping[str, object]", vars(type(request))["__dataclass_fields__"])
    return {name: getattr(request, name) for name in names if name not in {"workspace_id", "by", "dry_run", "resume"}}


app = typer.Typer(no_args_is_help=True)
app.command("reindex")(reindex)
app.command("elastic-setup")(elastic_setup)
app.command("clean")(clean)
app.command("prune")(prune)
app.command("consolidate")(consolidate)
app.command("backfill-org")(backfill_org)
app.command("forget")(forget)
app.command("recalls")(recall_log.recalls)
app.command("recall-log")(recall_log.recall_log)
app.command("training")(training.training)
app.command("export-training")(training.export_training)
