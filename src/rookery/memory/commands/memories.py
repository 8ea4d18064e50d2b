"""`rookery remember`, `recall` and `search`: memories by hand, on the same data as the server (D-04)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Literal, Protocol, cast

import typer
from rich.console import Console
from rich.text import Text

from rookery.access.commands.command_context import AccessCommandServices as AccessServices
from rookery.access.commands.command_context import JsonOption, WorkspaceOption, get_settings, make_operator_caller, resolve_workspace
from rookery.access.commands.options import split_names
from rookery.access.commands.output import Fields, is_terminal, print_json, print_list, print_notice
from rookery.access.models import Caller
from rookery.kernel.running_server import find_server
from rookery.kernel.schema import ResponseModel, parse_model, to_json
from rookery.memory.recall import Recall
from rookery.memory.remember import Remember
from rookery.memory.schemas.requests import RecallBody, RememberBody, SearchQuery
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import MemorySearch

Org = Annotated[str | None, typer.Option(help="The org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="The project.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Only memories of this type.", show_default=False)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.", show_default=False)]
Query = Annotated[str, typer.Argument(help="What you want to know.", show_default=False)]


class MemoryCommandServices(Protocol):
    """The verbs of memory."""

    @property
    def remember(self) -> Remember: ...

    @property
    def recall(self) -> Recall: ...

    @property
    def search(self) -> MemorySearch: ...

    @property
    def serializer(self) -> MemorySerializer: ...


class MemoryPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def memory(self) -> MemoryCommandServices: ...


class MemoryCommandContext(Protocol):
    """What the command line passes to every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[MemoryPlatform]:
        """Open the platform on its store."""
        ...


def remember(
    context: typer.Context,
    content: Annotated[str, typer.Argument(help="The text; - reads it from standard input.", show_default=False)],
    *,
    type: Annotated[str, typer.Option(help="What kind of memory it is, such as decision or fact.")] = "observation",
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="The agent that it belongs to.", show_default=False)] = None,
    scope: Annotated[Literal["project", "agent", "shared"], typer.Option(help="Who it is for.")] = "project",
    tag: Tags = None,
    confidence: Annotated[float | None, typer.Option(help="How sure you are, 0 to 1; 0.8 by default.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a memory and print its id; it is found by its words at once, and by its meaning once a running server has indexed it."""
    fields: dict[str, object] = {
        "content": sys.stdin.read().rstrip("\n") if content == "-" else content,
        "type": type,
        "org": org,
        "project": project,
        "agent_id": agent,
        "memory_scope": scope,
        "tags": list(split_names(tag)),
        "confidence": confidence,
    }
    body = parse_model(RememberBody, fields)

    async def work(memory: MemoryCommandServices, caller: Caller) -> ResponseModel:
        return memory.serializer.serialize_remembered(caller, await memory.remember.store(caller, body.to_draft()))

    stored = _run(context, workspace, work)
    if as_json:
        print_json(stored)
    else:
        typer.echo(str(stored["id"]))
    if find_server(get_settings(context).data_dir) is None:
        print_notice("No server answers on this data folder: `rookery serve` or `rookery worker` will index it.")


def recall(
    context: typer.Context,
    query: Query,
    *,
    top_k: Annotated[int, typer.Option(help="How many memories at most.", min=1, max=100)] = 5,
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="Also this agent's own memories.", show_default=False)] = None,
    type: Type = None,
    tag: Tags = None,
    mode: Annotated[Literal["semantic", "keyword", "hybrid"], typer.Option(help="By meaning, by words, or by both.")] = "hybrid",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the memories that answer a question, best first."""
    fields: dict[str, object] = {
        "query": query,
        "top_k": top_k,
        "org": org,
        "project": project,
        "agent_id": agent,
        "type": type,
        "tags": list(split_names(tag)) or None,
        "mode": mode,
    }
    body = parse_model(RecallBody, fields)

    async def work(memory: MemoryCommandServices, caller: Caller) -> ResponseModel:
        return memory.serializer.serialize_recall(await memory.recall.find(caller, body.to_request(mode)), explain=False)

    found = _run(context, workspace, work)
    if as_json:
        print_json(found)
        return
    _print_memories(cast("Sequence[Fields]", found["memories"]))
    if found.get("notice"):
        print_notice(str(found["notice"]))


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help='Words, a "quoted phrase"; -word, after --, excludes it.', show_default=False)],
    *,
    org: Org = None,
    project: Project = None,
    type: Type = None,
    limit: Annotated[int, typer.Option(help="How many memories at most.", min=1, max=100)] = 20,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the memories that have these words, best first."""
    given = {"q": query, "org": org, "project": project, "type": type, "limit": limit}
    wanted = parse_model(SearchQuery, {name: value for name, value in given.items() if value is not None})

    async def work(memory: MemoryCommandServices, caller: Caller) -> ResponseModel:
        searched = await memory.search.find(caller, wanted.q, wanted.to_filter(), limit=wanted.limit, offset=wanted.offset)
        return memory.serializer.serialize_search(caller, searched)

    found = _run(context, workspace, work)
    if as_json:
        print_json(found)
    else:
        _print_memories(cast("Sequence[Fields]", found["hits"]))


def _run(
    context: typer.Context, workspace: str | None, work: Callable[[MemoryCommandServices, Caller], Awaitable[ResponseModel]]
) -> Mapping[str, object]:
    """Open the platform, do *work* as the operator of the workspace, close it; return the answer's fields."""

    async def inside() -> Mapping[str, object]:
        async with cast("MemoryCommandContext", context.obj).open() as opened:
            owner = await resolve_workspace(opened.access, workspace)
            return to_json(await work(opened.memory, make_operator_caller(owner.id)))

    return asyncio.run(inside())


def _print_memories(memories: Sequence[Fields]) -> None:
    """Print memories for people; in a pipe a line each: score, id, type, content."""
    if not memories:
        print_notice("No memory was found.")
        return
    if not is_terminal():
        rows = [{**each, "score": f"{cast('float', each['score']):.2f}", "content": _one_line(each["content"])} for each in memories]
        print_list(rows, ["score", "id", "type", "content"])
        return
    console = Console()
    for each in memories:
        console.print(Text.assemble((f"{cast('float', each['score']):.2f}  ", "bold green"), str(each["content"])))
        space = "/".join(str(each[name]) for name in ("org", "project") if each[name])
        about = [str(each["type"]), *([space] if space else []), str(each["created_at"])[:10], str(each["id"])]
        console.print(Text("      " + " · ".join(about), style="dim"))


def _one_line(content: object) -> str:
    return " ".join(str(content).split())
