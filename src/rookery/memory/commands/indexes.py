"""`brain reindex` and `brain elastic-setup`: what is derived from the records (spec 4.4)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Annotated

import typer

from rookery.memory.commands.opening import Anywhere, DryRun, Json, Opened, Opens, Org, Project, Resume, one_or_all, opens
from rookery.memory.commands.showing import Screen
from rookery.memory.maintenance.lifecycle import Wanted
from rookery.memory.runs import Report


def register(brain: typer.Typer) -> None:
    """Add the commands."""
    brain.command("reindex")(reindex)
    brain.command("elastic-setup")(elastic_setup)


def reindex(
    context: typer.Context,
    org: Org = None,
    project: Project = None,
    workspace: Anywhere = None,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only memories that are not indexed as they are now.")] = False,
    elastic_only: Annotated[bool, typer.Option("--elastic-only", help="Only the full-text index, without embedding.")] = False,
    dry_run: DryRun = False,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Embed and index matching memories again; safe while the server runs."""
    wanted = Wanted(org=org, project=project, is_stale=stale, words_only=elastic_only, resume=resume)
    screen = Screen(as_json=as_json, lists=dry_run, dry_run=dry_run)
    screen.close(asyncio.run(_reindex(opens(context), wanted, workspace, screen)))


def elastic_setup(
    context: typer.Context,
    workspace: Annotated[str | None, typer.Option(help="Taken for uniformity: one index serves all.", show_default=False)] = None,
    *,
    as_json: Json = False,
) -> None:
    """Create the full-text index; done again it changes nothing."""
    asyncio.run(_setup(opens(context), workspace))
    typer.echo(json.dumps({"ready": True}) if as_json else "The full-text index is ready.")


async def _setup(platform: Opens, workspace: str | None) -> None:
    async with platform.open() as opened:
        await one_or_all(opened, workspace)
        await opened.lifecycle.setup_texts()


async def _reindex(platform: Opens, wanted: Wanted, workspace: str | None, screen: Screen) -> Report:
    async with platform.open() as opened:
        wanted = replace(wanted, workspace_id=await one_or_all(opened, workspace))
        with screen.watch("Indexing") as watch:
            if screen.dry_run:
                return await _preview(opened, wanted, screen)
            return await opened.lifecycle.reindex(wanted, on_progress=watch.progress)


async def _preview(opened: Opened, wanted: Wanted, screen: Screen) -> Report:
    started_s = time.perf_counter()
    total = await opened.lifecycle.preview(wanted, screen.item)
    return Report(total=total, successes=0, failures=0, duration_s=time.perf_counter() - started_s)
