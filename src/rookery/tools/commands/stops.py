"""`rookery tools`: the brakes (D-33)."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated

import typer

from rookery.access.commands.command_context import JsonOption, WorkspaceOption, get_operator, resolve_workspace
from rookery.access.commands.options import raise_usage_error
from rookery.access.commands.output import print_json, print_list, print_notice, print_record
from rookery.kernel.clock import format_iso
from rookery.kernel.errors import RookeryError
from rookery.kernel.suggestions import find_nearest
from rookery.tools.commands.command_context import ToolPlatform, get_settings, run_with_platform
from rookery.tools.models import ALL_WORKSPACES, BUILTIN_IDS, ToolStop
from rookery.tools.servers.servers_file import InvalidServersFile, read_servers_file

app = typer.Typer(help="Stop tools at once, and let them go on.", no_args_is_help=True)

_UNSET_TIME = datetime.fromtimestamp(0, UTC)
_COLUMNS = ("workspace", "server", "tool", "reason", "stopped_at")


class UnknownServerStop(RookeryError):
    """A stop names a server that does not exist; nothing was stopped. A command's error, exit code 1."""

    def __init__(self, server_id: str, known: Collection[str]) -> None:
        near = find_nearest(server_id, known)
        hint = f"Did you mean {near!r}?" if near else "`rookery servers list` shows what there is."
        everything = " To stop all servers, leave the name out." if server_id.lower() in {"all", "*"} else ""
        super().__init__(f"There is no server {server_id!r}; nothing was stopped. {hint}{everything}")


StopTargetArgument = Annotated[str, typer.Argument(help="A server, or server/tool; all servers if left out.", show_default=False)]
AllWorkspacesOption = Annotated[bool, typer.Option("--all-workspaces", help="For every workspace.")]


@app.command()
def stop(
    context: typer.Context,
    target: StopTargetArgument = "",
    *,
    workspace: WorkspaceOption = None,
    everywhere: AllWorkspacesOption = False,
    reason: Annotated[str, typer.Option(help="Told to whoever calls meanwhile.", show_default=False)] = "",
    as_json: JsonOption = False,
) -> None:
    """Refuse the very next call, in every process; calls that run are not ended."""

    async def work(opened: ToolPlatform) -> ToolStop:
        what = await _parse_target(opened, target, workspace, everywhere=everywhere, reason=reason)
        known = await _list_known_servers(context, opened, what)
        if what.server_id and known is not None and what.server_id not in known:
            raise UnknownServerStop(what.server_id, known)
        return await opened.tools.kill_switch.stop(what, actor=get_operator())

    print_record(_to_fields(run_with_platform(context, work)), as_json=as_json)


@app.command()
def start(
    context: typer.Context,
    target: StopTargetArgument = "",
    *,
    workspace: WorkspaceOption = None,
    everywhere: AllWorkspacesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let go on what `stop` stopped by the same words; exit code 1 if it was not stopped."""

    async def work(opened: ToolPlatform) -> tuple[bool, list[ToolStop]]:
        what = await _parse_target(opened, target, workspace, everywhere=everywhere)
        was_stopped = await opened.tools.kill_switch.start(what, actor=get_operator())
        return was_stopped, [each for each in await opened.tools.kill_switch.list_stops() if _covers(each, what)]

    was_stopped, still = run_with_platform(context, work)
    shown = [_to_fields(each) for each in still]
    if as_json:
        print_json({"started": was_stopped, "still_stopped_by": shown})
    elif was_stopped:
        print("It goes on.")  # noqa: T201 - the command's answer
    else:
        print_notice("It was not stopped.")
    if still and not as_json:
        print_notice("But it is stopped as part of something else:")
        print_list(shown, _COLUMNS)
    if not was_stopped:
        raise typer.Exit(1)


@app.command()
def stops(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List all that is stopped."""

    async def work(opened: ToolPlatform) -> list[ToolStop]:
        return list(await opened.tools.kill_switch.list_stops())

    shown = [_to_fields(each) for each in run_with_platform(context, work)]
    if as_json:
        print_json(shown)
    elif shown:
        print_list(shown, _COLUMNS)
    else:
        print_notice("Nothing is stopped.")


async def _parse_target(opened: ToolPlatform, target: str, workspace: str | None, *, everywhere: bool, reason: str = "") -> ToolStop:
    server_id, slash, tool = target.partition("/")
    if slash and not (server_id and tool):
        raise_usage_error("Name a server, or server/tool.")
    if everywhere and workspace is not None:
        raise_usage_error("Say either --workspace or --all-workspaces.")
    workspace_id = ALL_WORKSPACES if everywhere else (await resolve_workspace(opened.access, workspace)).id
    return ToolStop(workspace_id=workspace_id, server_id=server_id, tool=tool, reason=reason, stopped_at=_UNSET_TIME)


async def _list_known_servers(context: typer.Context, opened: ToolPlatform, what: ToolStop) -> frozenset[str] | None:
    """Return the ids of the servers that a stop can name; None: servers.json cannot be read."""
    try:
        of_all = read_servers_file(get_settings(context).servers_file, os.environ).servers
    except InvalidServersFile:
        return None
    is_everywhere = what.workspace_id == ALL_WORKSPACES
    owners = [each.id for each in await opened.access.workspaces.list()] if is_everywhere else [what.workspace_id]
    owned = [each.server.id for owner in owners for each in await opened.tools.workspace_servers.list_for_workspace(owner)]
    return frozenset((*BUILTIN_IDS, *of_all, *owned))


def _covers(stop: ToolStop, what: ToolStop) -> bool:
    return (
        stop.workspace_id in {ALL_WORKSPACES, what.workspace_id}
        and stop.server_id in {"", what.server_id}
        and stop.tool in {"", what.tool}
        and (stop.workspace_id, stop.server_id, stop.tool) != (what.workspace_id, what.server_id, what.tool)
    )


def _quote_name(name: str) -> str:
    """Return the name of what is stopped; a server or tool that is called "all" is quoted, to be told from all of them."""
    return repr(name) if name == "all" else name or "all"


def _to_fields(stop: ToolStop) -> dict[str, object]:
    return {
        "workspace": "all" if stop.workspace_id == ALL_WORKSPACES else stop.workspace_id,
        "server": _quote_name(stop.server_id),
        "tool": _quote_name(stop.tool),
        "reason": stop.reason,
        "stopped_at": format_iso(stop.stopped_at),
    }
