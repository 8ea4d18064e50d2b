"""`rookery tools`: the kill switch."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated

import typer

from rookery.access.operator import get_operator, resolve_workspace
from rookery.kernel.clock import format_iso
from rookery.kernel.errors import RookeryError
from rookery.kernel.sentences import find_nearest
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption, WorkspaceOption, raise_usage_error
from rookery.terminal.output import print_json, print_list, print_notice, print_record
from rookery.tools.commands.tool_services import ToolPlatform, run_with_platform
from rookery.tools.models import ALL_WORKSPACES, BUILTIN_IDS, ToolStop
from rookery.tools.servers.servers_file import InvalidServersFile, read_servers_file

app = typer.Typer(no_args_is_help=True)

_UNSET_TIME = datetime.fromtimestamp(0, UTC)
_COLUMNS = ("workspace", "server", "tool", "reason", "stopped_at")


class UnknownServerStop(RookeryError):
    """The server of a stop does not exist, and nothing was stopped. A command error with exit code 1."""

    def __init__(self, server_id: str, known_ids: Collection[str]) -> None:
        nearest = find_nearest(server_id, known_ids)
        hint = f"Did you mean {nearest!r}?" if nearest else "`rookery servers list` shows all servers."
        all_hint = " To stop all servers, omit the name." if server_id.lower() in {"all", "*"} else ""
        super().__init__(f"The server {server_id!r} does not exist; nothing was stopped. {hint}{all_hint}")


StopTargetArgument = Annotated[str, typer.Argument(help="A server, or server/tool; default: all servers.", show_default=False)]
AllWorkspacesOption = Annotated[bool, typer.Option("--all-workspaces", help="Apply to every workspace.")]


@app.command()
def stop(
    context: typer.Context,
    target: StopTargetArgument = "",
    *,
    workspace: WorkspaceOption = None,
    everywhere: AllWorkspacesOption = False,
    reason: Annotated[str, typer.Option(help="The reason that callers see in the error.", show_default=False)] = "",
    as_json: JsonOption = False,
) -> None:
    """Stop a tool, a server or all servers: every process rejects new calls. Running calls continue."""

    async def work(platform: ToolPlatform) -> ToolStop:
        target_stop = await _parse_target(platform, target, workspace, everywhere=everywhere, reason=reason)
        known_ids = await _list_known_servers(context, platform, target_stop)
        if target_stop.server_id and known_ids is not None and target_stop.server_id not in known_ids:
            raise UnknownServerStop(target_stop.server_id, known_ids)
        return await platform.tools.kill_switch.stop(target_stop, actor=get_operator())

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
    """Allow calls again to a target that `tools stop` stopped. The exit code is 1 if it was not stopped."""

    async def work(platform: ToolPlatform) -> tuple[bool, list[ToolStop]]:
        target_stop = await _parse_target(platform, target, workspace, everywhere=everywhere)
        was_stopped = await platform.tools.kill_switch.start(target_stop, actor=get_operator())
        return was_stopped, [stop for stop in await platform.tools.kill_switch.list_stops() if _covers(stop, target_stop)]

    was_stopped, remaining = run_with_platform(context, work)
    rows = [_to_fields(stop) for stop in remaining]
    if as_json:
        print_json({"started": was_stopped, "still_stopped_by": rows})
    elif was_stopped:
        print("Started.")  # noqa: T201 - the command's output
    else:
        print_notice("It was not stopped.")
    if remaining and not as_json:
        print_notice("It is still stopped by:")
        print_list(rows, _COLUMNS)
    if not was_stopped:
        raise typer.Exit(1)


@app.command()
def stops(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List all stops."""

    async def work(platform: ToolPlatform) -> list[ToolStop]:
        return list(await platform.tools.kill_switch.list_stops())

    rows = [_to_fields(stop) for stop in run_with_platform(context, work)]
    if as_json:
        print_json(rows)
    elif rows:
        print_list(rows, _COLUMNS)
    else:
        print_notice("Nothing is stopped.")


async def _parse_target(platform: ToolPlatform, target: str, workspace: str | None, *, everywhere: bool, reason: str = "") -> ToolStop:
    server_id, slash, tool = target.partition("/")
    if slash and not (server_id and tool):
        raise_usage_error("Give a server, or server/tool.")
    if everywhere and workspace is not None:
        raise_usage_error("Use either --workspace or --all-workspaces.")
    workspace_id = ALL_WORKSPACES if everywhere else (await resolve_workspace(platform.access, workspace)).id
    return ToolStop(workspace_id=workspace_id, server_id=server_id, tool=tool, reason=reason, stopped_at=_UNSET_TIME)


async def _list_known_servers(context: typer.Context, platform: ToolPlatform, target_stop: ToolStop) -> frozenset[str] | None:
    """Return the ids of all servers that a stop can name. None: servers.json cannot be read."""
    try:
        file_servers = read_servers_file(get_settings(context).servers_file, os.environ).servers
    except InvalidServersFile:
        return None
    is_everywhere = target_stop.workspace_id == ALL_WORKSPACES
    owners = [owner.id for owner in await platform.access.workspaces.list()] if is_everywhere else [target_stop.workspace_id]
    workspace_servers = [
        server.server.id for owner in owners for server in await platform.tools.workspace_servers.list_for_workspace(owner)
    ]
    return frozenset((*BUILTIN_IDS, *file_servers, *workspace_servers))


def _covers(stop: ToolStop, target: ToolStop) -> bool:
    return (
        stop.workspace_id in {ALL_WORKSPACES, target.workspace_id}
        and stop.server_id in {"", target.server_id}
        and stop.tool in {"", target.tool}
        and (stop.workspace_id, stop.server_id, stop.tool) != (target.workspace_id, target.server_id, target.tool)
    )


def _quote_name(name: str) -> str:
    """Return the name of a stop's server or tool. One that is called "all" is quoted, to distinguish it from all of them."""
    return repr(name) if name == "all" else name or "all"


def _to_fields(stop: ToolStop) -> dict[str, object]:
    return {
        "workspace": "all" if stop.workspace_id == ALL_WORKSPACES else stop.workspace_id,
        "server": _quote_name(stop.server_id),
        "tool": _quote_name(stop.tool),
        "reason": stop.reason,
        "stopped_at": format_iso(stop.stopped_at),
    }
