"""`rookery remember`, `recall` and `search`: memory on the command line, on the same data as the server."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Literal, Protocol, cast

import typer
from rich.console import Console
from rich.text import Text

from rookery.access.models import Caller
from rookery.access.operator import make_operator_caller, resolve_workspace
from rookery.access.workspaces import Workspaces
from rookery.kernel.pages import PageSlice
from rookery.kernel.running_server import find_server
from rookery.kernel.schema import ResponseModel, parse_model, to_json
from rookery.memory.models import RecallMode
from rookery.memory.recall import Recall
from rookery.memory.remember import Remember
from rookery.memory.schemas.requests import RecallBody, RememberBody, SearchQuery
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import MemorySearch
from rookery.terminal.context import get_settings, run
from rookery.terminal.options import JsonOption, WorkspaceOption, split_names
from rookery.terminal.output import Fields, is_terminal, print_json, print_list, print_notice

Org = Annotated[str | None, typer.Option(help="The org of the memory.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="The project of the memory.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Only memories of this type.", show_default=False)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.", show_default=False)]
Query = Annotated[str, typer.Argument(help="The question.", show_default=False)]


class MemoryCommandServices(Protocol):
    """The memory services."""

    @property
    def remember(self) -> Remember: ...

    @property
    def recall(self) -> Recall: ...

    @property
    def search(self) -> MemorySearch: ...

    @property
    def serializer(self) -> MemorySerializer: ...


class MemoryPlatform(Protocol):
    """Memories and workspaces, opened for one command."""

    @property
    def workspaces(self) -> Workspaces: ...

    @property
    def memory(self) -> MemoryCommandServices: ...


def remember(
    context: typer.Context,
    content: Annotated[str, typer.Argument(help="The text; - reads it from standard input.", show_default=False)],
    *,
    type: Annotated[str, typer.Option(help="The kind of memory, such as decision or fact.")] = "observation",
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="The agent that the memory belongs to.", show_default=False)] = None,
    scope: Annotated[
        Literal["project", "agent", "shared"],
        typer.Option(help="Where the memory is visible: in the project, only to the agent, or in the whole org (shared)."),
    ] = "project",
    tag: Tags = None,
    confidence: Annotated[float | None, typer.Option(help="Your certainty, 0 to 1; 0.8 by default.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a memory and print its id. Keyword search finds it at once, semantic recall once a running server has indexed it."""
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
        return memory.serializer.serialize_remembered(caller, await memory.remember.store(caller, body.to_model()))

    result = _run(context, workspace, work)
    if as_json:
        print_json(result)
    else:
        typer.echo(str(result["id"]))
    if find_server(get_settings(context).data_dir) is None:
        print_notice("No server is running on this data folder; run `rookery serve` or `rookery worker` to index the memory.")


def recall(
    context: typer.Context,
    query: Query,
    *,
    top_k: Annotated[int, typer.Option("--limit", help="Maximum number of memories.", min=1, max=100)] = 5,
    org: Org = None,
    project: Project = None,
    agent: Annotated[str | None, typer.Option(help="Also this agent's own memories.", show_default=False)] = None,
    type: Type = None,
    tag: Tags = None,
    mode: Annotated[RecallMode, typer.Option(help="By meaning, by words, or by both.")] = "hybrid",
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the memories that match a question, best first."""
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

    response = _run(context, workspace, work)
    if as_json:
        print_json(response)
        return
    _print_memories(cast("Sequence[Fields]", response["memories"]))
    if response.get("notice"):
        print_notice(str(response["notice"]))


def search(
    context: typer.Context,
    query: Annotated[
        str,
        typer.Argument(
            help='Words or a "quoted phrase". To exclude a word, write -- before the query and - before the word.', show_default=False
        ),
    ],
    *,
    org: Org = None,
    project: Project = None,
    type: Type = None,
    limit: Annotated[int, typer.Option(help="Maximum number of memories.", min=1, max=100)] = 20,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the memories that contain these words, best first."""
    options = {"q": query, "org": org, "project": project, "type": type, "limit": limit}
    search_query = parse_model(SearchQuery, {name: value for name, value in options.items() if value is not None})

    async def work(memory: MemoryCommandServices, caller: Caller) -> ResponseModel:
        result = await memory.search.find(caller, search_query.q, search_query.to_filter(), page=PageSlice(search_query.limit))
        return memory.serializer.serialize_search(caller, result)

    response = _run(context, workspace, work)
    if as_json:
        print_json(response)
    else:
        _print_memories(cast("Sequence[Fields]", response["hits"]))
        if response.get("notice"):
            print_notice(str(response["notice"]))


def _run(
    context: typer.Context, workspace: str | None, work: Callable[[MemoryCommandServices, Caller], Awaitable[ResponseModel]]
) -> Mapping[str, object]:
    """Open memories, run *work* as the operator of the workspace, close it. Return the fields of the response."""

    async def run_in_workspace(platform: MemoryPlatform) -> Mapping[str, object]:
        resolved = await resolve_workspace(platform, workspace)
        return to_json(await work(platform.memory, make_operator_caller(resolved.id)))

    return run(context, run_in_workspace, part="memory")


def _print_memories(memories: Sequence[Fields]) -> None:
    """Print memories as text on a terminal. In a pipe, print one line each: score, id, type, content."""
    if not memories:
        print_notice("No memories found.")
        return
    if not is_terminal():
        rows = [
            {**memory, "score": f"{cast('float', memory['score']):.2f}", "content": _one_line(memory["content"])} for memory in memories
        ]
        print_list(rows, ["score", "id", "type", "content"])
        return
    console = Console()
    for memory in memories:
        console.print(Text.assemble((f"{cast('float', memory['score']):.2f}  ", "bold green"), str(memory["content"])))
        space = "/".join(str(memory[name]) for name in ("org", "project") if memory[name])
        about = [str(memory["type"]), *([space] if space else []), str(memory["created_at"])[:10], str(memory["id"])]
        console.print(Text("      " + " · ".join(about), style="dim"))


def _one_line(content: object) -> str:
    return " ".join(str(content).split())
