"""`rookery tools`: the brakes (D-33)."""

from __future__ import annotations

import os
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Annotated

import typer

from rookery.access.commands.printing import print_json, print_many, print_thing, say
from rookery.access.commands.reading import usage_error
from rookery.access.commands.terminal import Json, Where, operator, workspace_of
from rookery.kernel.clock import iso
from rookery.kernel.errors import RookeryError
from rookery.kernel.suggestions import nearest
from rookery.tools.commands.opening import Opened, run, settings_of
from rookery.tools.models import BUILTIN_IDS, Stop
from rookery.tools.servers.brakes import EVERYWHERE
from rookery.tools.servers.servers_file import FileBroken, read_file

app = typer.Typer(help="Stop tools at once, and let them go on.", no_args_is_help=True)

_AT = datetime.fromtimestamp(0, UTC)
_COLUMNS = ("workspace", "server", "tool", "reason", "stopped_at")


class UnknownServer(RookeryError):
    """A stop names a server that does not exist; nothing was stopped. A command's error, exit code 1."""

    def __init__(self, server_id: str, known: Collection[str]) -> None:
        near = nearest(server_id, known)
        hint = f"Did you mean {near!r}?" if near else "`rookery servers list` shows what there is."
        everything = " To stop all servers, leave the name out." if server_id.lower() in {"all", "*"} else ""
        super().__init__(f"There is no server {server_id!r}; nothing was stopped. {hint}{everything}")


Target = Annotated[str, typer.Argument(help="A server, or server/tool; all servers if left out.", show_default=False)]
Everywhere = Annotated[bool, typer.Option("--all-workspaces", help="For every workspace.")]


@app.command()
def stop(
    context: typer.Context,
    target: Target = "",
    *,
    workspace: Where = None,
    everywhere: Everywhere = False,
    reason: Annotated[str, typer.Option(help="Told to whoever calls meanwhile.", show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """Refuse the very next call, in every process; calls that run are not ended."""

    async def work(opened: Opened) -> Stop:
        what = await _what(opened, target, workspace, everywhere=everywhere, reason=reason)
        known = await _known(context, opened, what)
        if what.server_id and known is not None and what.server_id not in known:
            raise UnknownServer(what.server_id, known)
        return await opened.tools.brakes.stop(what, by=operator())

    print_thing(_shown(run(context, work)), as_json=as_json)


@app.command()
def start(
    context: typer.Context, target: Target = "", *, workspace: Where = None, everywhere: Everywhere = False, as_json: Json = False
) -> None:
    """Let go on what `stop` stopped by the same words; exit code 1 if it was not stopped."""

    async def work(opened: Opened) -> tuple[bool, list[Stop]]:
        what = await _what(opened, target, workspace, everywhere=everywhere)
        was_stopped = await opened.tools.brakes.start(what, by=operator())
        return was_stopped, [each for each in await opened.tools.brakes.stops() if _covers(each, what)]

    was_stopped, still = run(context, work)
    shown = [_shown(each) for each in still]
    if as_json:
        print_json({"started": was_stopped, "still_stopped_by": shown})
    elif was_stopped:
        print("It goes on.")  # noqa: T201 - the command's answer
    else:
        say("It was not stopped.")
    if still and not as_json:
        say("But it is stopped as part of something else:")
        print_many(shown, _COLUMNS)
    if not was_stopped:
        raise typer.Exit(1)


@app.command()
def stops(context: typer.Context, *, as_json: Json = False) -> None:
    """List all that is stopped."""

    async def work(opened: Opened) -> list[Stop]:
        return list(await opened.tools.brakes.stops())

    shown = [_shown(each) for each in run(context, work)]
    if as_json:
        print_json(shown)
    elif shown:
        print_many(shown, _COLUMNS)
    else:
        say("Nothing is stopped.")


async def _what(opened: Opened, target: str, workspace: str | None, *, everywhere: bool, reason: str = "") -> Stop:
    server_id, slash, tool = target.partition("/")
    if slash and not (server_id and tool):
        usage_error("Name a server, or server/tool.")
    if everywhere and workspace is not None:
        usage_error("Say either --workspace or --all-workspaces.")
    workspace_id = EVERYWHERE if everywhere else (await workspace_of(opened.access, workspace)).id
    return Stop(workspace_id=workspace_id, server_id=server_id, tool=tool, reason=reason, stopped_at=_AT)


async def _known(context: typer.Context, opened: Opened, what: Stop) -> frozenset[str] | None:
    """Return the ids of the servers that a stop can name; None: servers.json cannot be read."""
    try:
        of_all = read_file(settings_of(context).servers_file, os.environ).servers
    except FileBroken:
        return None
    is_everywhere = what.workspace_id == EVERYWHERE
    owners = [each.id for each in await opened.access.workspaces.list()] if is_everywhere else [what.workspace_id]
    owned = [each.server.id for owner in owners for each in await opened.tools.owned.all_of(owner)]
    return frozenset((*BUILTIN_IDS, *of_all, *owned))


def _covers(stop: Stop, what: Stop) -> bool:
    return (
        stop.workspace_id in {EVERYWHERE, what.workspace_id}
        and stop.server_id in {"", what.server_id}
        and stop.tool in {"", what.tool}
        and (stop.workspace_id, stop.server_id, stop.tool) != (what.workspace_id, what.server_id, what.tool)
    )


def _name(name: str) -> str:
    """Return the name of what is stopped; a server or tool that is called "all" is quoted, to be told from all of them."""
    return repr(name) if name == "all" else name or "all"


def _shown(stop: Stop) -> dict[str, object]:
    return {
        "workspace": "all" if stop.workspace_id == EVERYWHERE else stop.workspace_id,
        "server": _name(stop.server_id),
        "tool": _name(stop.tool),
        "reason": stop.reason,
        "stopped_at": iso(stop.stopped_at),
    }
