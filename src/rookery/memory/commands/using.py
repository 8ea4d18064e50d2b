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

from rookery.access.commands.printing import Fields, is_terminal, print_json, print_many, say
from rookery.access.commands.reading import read_names
from rookery.access.commands.terminal import Json, Where, operator_caller, settings_of, workspace_of
from rookery.access.commands.terminal import Services as AccessServices
from rookery.access.models import Caller
from rookery.kernel.running_server import find_server
from rookery.kernel.wire import Answer, plain, read_fields
from rookery.memory.answers import Answers
from rookery.memory.recall import Recall
from rookery.memory.remember import Remember
from rookery.memory.schemas import RecallBody, RememberBody, SearchQuery
from rookery.memory.search import Search

Org = Annotated[str | None, typer.Option(help="The org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="The project.", show_default=False)]
Type = Annotated[str | None, typer.Option(help="Only memories of this type.", show_default=False)]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.", show_default=False)]
Query = Annotated[str, typer.Argument(help="What you want to know.", show_default=False)]


class MemoryServices(Protocol):
    """The verbs of memory."""

    @property
    def remember(self) -> Remember: ...

    @property
    def recall(self) -> Recall: ...

    @property
    def search(self) -> Search: ...

    @property
    def answers(self) -> Answers: ...


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def memory(self) -> MemoryServices: ...


class Context(Protocol):
    """What the command line passes to every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
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
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Store a memory and print its id; it is found by its words at once, and by its meaning once a running server has indexed it."""
    fields: dict[str, object] = {
        "content": sys.stdin.read().rstrip("\n") if content == "-" else content,
        "type": type,
        "org": org,
        "project": project,
        "agent_id": agent,
        "memory_scope": scope,
        "tags": list(read_names(tag)),
        "confidence": confidence,
    }
    body = read_fields(RememberBody, fields)

    async def work(memory: MemoryServices, caller: Caller) -> Answer:
        return memory.answers.remembered(caller, await memory.remember.one(caller, body.draft()))

    stored = _run(context, workspace, work)
    if as_json:
        print_json(stored)
    else:
        typer.echo(str(stored["id"]))
    if find_server(settings_of(context).data_dir) is None:
        say("No server answers on this data folder: `rookery serve` or `rookery worker` will index it.")


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
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Show the memories that answer a question, best first."""
    fields: dict[str, object] = {
        "query": query,
        "top_k": top_k,
        "org": org,
        "project": project,
        "agent_id": agent,
        "type": type,
        "tags": list(read_names(tag)) or None,
        "mode": mode,
    }
    body = read_fields(RecallBody, fields)

    async def work(memory: MemoryServices, caller: Caller) -> Answer:
        return memory.answers.recalled(await memory.recall.ask(caller, body.question(mode)), explain=False)

    found = _run(context, workspace, work)
    if as_json:
        print_json(found)
        return
    _show(cast("Sequence[Fields]", found["memories"]))
    if found.get("notice"):
        say(str(found["notice"]))


def search(
    context: typer.Context,
    query: Annotated[str, typer.Argument(help='Words, a "quoted phrase"; -word, after --, excludes it.', show_default=False)],
    *,
    org: Org = None,
    project: Project = None,
    type: Type = None,
    limit: Annotated[int, typer.Option(help="How many memories at most.", min=1, max=100)] = 20,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Show the memories that have these words, best first."""
    given = {"q": query, "org": org, "project": project, "type": type, "limit": limit}
    wanted = read_fields(SearchQuery, {name: value for name, value in given.items() if value is not None})

    async def work(memory: MemoryServices, caller: Caller) -> Answer:
        searched = await memory.search.find(caller, wanted.q, wanted.filters(), limit=wanted.limit, offset=wanted.offset)
        return memory.answers.searched(caller, searched)

    found = _run(context, workspace, work)
    if as_json:
        print_json(found)
    else:
        _show(cast("Sequence[Fields]", found["hits"]))


def _run(
    context: typer.Context, workspace: str | None, work: Callable[[MemoryServices, Caller], Awaitable[Answer]]
) -> Mapping[str, object]:
    """Open the platform, do *work* as the operator of the workspace, close it; return the answer's fields."""

    async def inside() -> Mapping[str, object]:
        async with cast("Context", context.obj).open() as opened:
            owner = await workspace_of(opened.access, workspace)
            return plain(await work(opened.memory, operator_caller(owner.id)))

    return asyncio.run(inside())


def _show(memories: Sequence[Fields]) -> None:
    """Print memories for people; in a pipe a line each: score, id, type, content."""
    if not memories:
        say("No memory was found.")
        return
    if not is_terminal():
        rows = [{**each, "score": f"{cast('float', each['score']):.2f}", "content": _one_line(each["content"])} for each in memories]
        print_many(rows, ["score", "id", "type", "content"])
        return
    console = Console()
    for each in memories:
        console.print(Text.assemble((f"{cast('float', each['score']):.2f}  ", "bold green"), str(each["content"])))
        space = "/".join(str(each[name]) for name in ("org", "project") if each[name])
        about = [str(each["type"]), *([space] if space else []), str(each["created_at"])[:10], str(each["id"])]
        console.print(Text("      " + " · ".join(about), style="dim"))


def _one_line(content: object) -> str:
    return " ".join(str(content).split())
