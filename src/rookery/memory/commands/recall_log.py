"""`brain recalls` and `brain recall-log`: the log of recalls of a workspace."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from rookery.access.operator import get_operator, make_operator_caller
from rookery.kernel.clock import format_iso
from rookery.kernel.pages import iter_items
from rookery.kernel.schema import parse_model, to_json
from rookery.kernel.sentences import format_count
from rookery.memory.commands.maintenance_services import run_in_workspace
from rookery.memory.schemas.recall_log import LoggedRecallResponse, RecallsQuery, serialize_logged
from rookery.terminal.options import JsonOption, WorkspaceOption, YesOption, confirm, raise_usage_error
from rookery.terminal.output import print_json, print_list, print_notice

if TYPE_CHECKING:  # help texts are shown faster without it
    from datetime import datetime

    from rookery.memory.build import MemoryServices

_PAGE_SIZE = 100


def recalls(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    key: Annotated[str | None, typer.Option(help="Only recalls of the key with this id.", show_default=False)] = None,
    agent: Annotated[str | None, typer.Option(help="Only recalls for this agent.", show_default=False)] = None,
    session: Annotated[str | None, typer.Option(help="Only recalls in this session.", show_default=False)] = None,
    project: Annotated[str | None, typer.Option(help="Only recalls in this project.", show_default=False)] = None,
    memory: Annotated[str | None, typer.Option(help="Only recalls that returned this memory.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of recalls.", min=1)] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the newest recalls of a workspace: time, key, question and number of memories."""
    options = {"key_id": key, "agent_id": agent, "session_id": session, "project": project, "memory_id": memory}
    query = parse_model(RecallsQuery, {name: value for name, value in options.items() if value is not None})

    async def work(services: MemoryServices, workspace_id: int) -> list[LoggedRecallResponse]:
        fetch = partial(services.recall_log.list_page, make_operator_caller(workspace_id), query.to_filter())
        return [serialize_logged(entry) async for entry in iter_items(fetch, limit=limit, page_size=_PAGE_SIZE)]

    entries = run_in_workspace(context, workspace, work)
    if as_json:
        print_json([to_json(entry) for entry in entries])
    elif entries:
        rows = [
            {"id": entry.id, "at": format_iso(entry.created_at), "key": entry.key_name, "query": " ".join(entry.query.split()),
             "memories": len(entry.memories)}
            for entry in entries
        ]  # fmt: skip
        print_list(rows, ["at", "key", "memories", "query", "id"])
    else:
        print_notice("No recalls found.")


def recall_log(
    context: typer.Context,
    workspace: WorkspaceOption = None,
    *,
    on: Annotated[bool, typer.Option("--on", help="Keep a log of recalls, which is the default.")] = False,
    off: Annotated[bool, typer.Option("--off", help="Keep no log of recalls, and delete the stored questions.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start or stop the log of recalls of a workspace. Without an option, print the status."""
    if on and off:
        raise_usage_error("--on and --off exclude each other; pass one of them.")
    if off:
        confirm("Delete the log of recalls of the workspace? It cannot be restored.", yes=yes)

    async def work(services: MemoryServices, workspace_id: int) -> tuple[datetime | None, int]:
        cleared = 0
        if on or off:
            cleared = await services.recall_log.set_enabled(workspace_id, is_enabled=on, by=get_operator())
        return await services.recall_log.get_disabled_since(workspace_id), cleared

    disabled_since, cleared = run_in_workspace(context, workspace, work)
    since = None if disabled_since is None else format_iso(disabled_since)
    if as_json:
        typer.echo(json.dumps({"on": since is None, "off_since": since, "deleted": cleared}))
        return
    state = "Recalls are logged" if since is None else f"Recalls are not logged since {since}"
    deleted = f" Deleted: {format_count(cleared, 'recall')}." if off else ""
    typer.echo(f"{state}.{deleted}")
