"""Runs a tool server alone, and records what it answers and how it ends."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tests.tool_servers.comparison import compare_items
from tests.tool_servers.installation import build_command, fill
from tests.tool_servers.server_record import RawFacts
from tests.tool_servers.servers import ToolServer
from tests.tool_servers.stdio_driver import ServerExited, ServerFailed, ServerSilent, StdioServer, initialize, start_server

Json = dict[str, object]

LISTS = {"tools": "tools", "resources": "resources", "resources/templates": "resourceTemplates", "prompts": "prompts"}
"""The lists of the protocol, and the field of the result that has each."""

TOOL_FIELDS = ("title", "annotations", "outputSchema", "_meta", "icons", "execution")
"""The fields of a tool beyond name, description and inputSchema, which are counted."""

_OLD_VERSION, _VERSION, _LATER = "2024-11-05", "2025-11-25", "2026-07-28"
_DISCOVER_TIMEOUT_S = 45.0
_CALL_TIMEOUT_S = 60.0
_METHOD_NOT_FOUND = -32601
_MAX_PAGES = 50
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PYTHON_ERROR = re.compile(r"[\w.]+(?:Error|Exception)\b(?!Group)")
_ERROR_WORDS = ("error", "fatal", "required", "missing", "please")
_META: Json = {
    "io.modelcontextprotocol/protocolVersion": _LATER,
    "io.modelcontextprotocol/clientInfo": {"name": "tool-servers", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass
class RawRun:
    """The facts of a run, and what they are compared with later: the lists and the result of the call."""

    facts: RawFacts
    lists: dict[str, list[Json]] = field(default_factory=dict[str, "list[Json]"])
    result: Json | None = None


async def run_alone(server: ToolServer, folder: Path) -> RawRun:
    """
    Start a server three times: for `server/discover`, for a session that is read and ends with its input, and for one that ends by SIGTERM.

    Raises:
        ServerExited: It ended before it answered `initialize`.
        ServerSilent: It did not answer `initialize`, or a list.
        SessionRefused: It answered `initialize` with an error.
    """
    command, variables = build_command(server, folder)
    run = RawRun(RawFacts(discover=await _discover(command, variables, folder), versions=[]))
    async with start_server(command, variables, folder) as process:
        _add_version(run.facts, await initialize(process, _VERSION), _VERSION)
        run.lists, run.facts.failed_lists = await read_lists(process)
        if server.call:
            run.result = await _call(process, server, folder)
        run.facts.stray_lines = process.stray_lines
        run.facts.stdin_s = _round(await process.close_stdin())
    async with start_server(command, variables, folder) as process:
        _add_version(run.facts, await initialize(process, _OLD_VERSION), _OLD_VERSION)
        again, _ = await read_lists(process)
        run.facts.unstable = compare_items(run.lists["tools"], again["tools"])
        run.facts.sigterm_s = _round(await process.terminate())
    _count(run.facts, run.lists)
    return run


async def run_without_credential(server: ToolServer, folder: Path) -> tuple[str, int]:
    """Return what a server does without its credential, and the number of tools that it lists then."""
    command, variables = build_command(server, folder, has_credential=False)
    async with start_server(command, variables, folder) as process:
        try:
            await initialize(process, _VERSION)
            lists, failed = await read_lists(process)
        except ServerFailed as error:
            await process.wait_stderr()
            reason = find_reason(process.stderr)
            return f"{error}: {reason}" if reason else str(error), 0
        return "; ".join(["starts", *failed]), len(lists["tools"])


def find_reason(lines: Sequence[str]) -> str:
    """Return the line that says why: the last error of a traceback, else the first line that names an error, else the first one."""
    texts = [text for line in lines if (text := _read_line(line))]
    if any("Traceback" in text for text in texts):
        texts = [text for text in texts if _PYTHON_ERROR.match(text)][-1:] or texts
    named = [number for number, text in enumerate(texts) if any(word in text.lower() for word in _ERROR_WORDS)]
    number = next(iter(named), 0)
    # A heading is followed by the reason.
    return " ".join(texts[number : number + 2] if texts and texts[number].endswith(":") else texts[number : number + 1])


def _read_line(line: str) -> str:
    """Return a line of a log without colours and margins; of a line in JSON the message."""
    text = _COLOURS.sub("", line).strip(" |+-\t")
    try:
        parsed = json.loads(text)
    except ValueError:
        return text
    return str(cast("Json", parsed).get("message", text)) if isinstance(parsed, dict) else text


async def read_lists(process: StdioServer) -> tuple[dict[str, list[Json]], list[str]]:
    """Return all lists, and those that failed with another error than "method not found"."""
    lists, failed = dict[str, list[Json]](), list[str]()
    for name, result_field in LISTS.items():
        items, cursor = lists.setdefault(name, []), None
        for _ in range(_MAX_PAGES):
            answer = await process.request(f"{name}/list", {} if cursor is None else {"cursor": cursor})
            if error := cast("Json | None", answer.get("error")):
                failed += [] if error.get("code") == _METHOD_NOT_FOUND else [f"{name}/list: {error.get('code')}"]
                break
            result = cast("Json", answer["result"])
            items += cast("list[Json]", result[result_field])
            cursor = result.get("nextCursor")
            if cursor is None:
                break
    return lists, failed


def fill_arguments(arguments: Mapping[str, object], folder: Path) -> Json:
    """Return the arguments of a declared call, with the path of the scratch folder."""
    return cast("Json", json.loads(fill(json.dumps(arguments), folder)))


async def _discover(command: Sequence[str], variables: Mapping[str, str], folder: Path) -> str:
    async with start_server(command, variables, folder) as process:
        try:
            answer = await process.request("server/discover", {"_meta": _META}, timeout_s=_DISCOVER_TIMEOUT_S)
        except ServerSilent:
            return "no answer"
        except ServerExited as error:
            return str(error)
        await process.terminate()  # killed, some servers leave a lock behind that the next start meets
    if error := cast("Json | None", answer.get("error")):
        return str(error.get("code"))
    return ", ".join(cast("list[str]", cast("Json", answer["result"]).get("supportedVersions", [])))


async def _call(process: StdioServer, server: ToolServer, folder: Path) -> Json | None:
    arguments = fill_arguments(server.arguments, folder)
    try:
        answer = await process.request("tools/call", {"name": server.call, "arguments": arguments}, timeout_s=_CALL_TIMEOUT_S)
    except ServerSilent:
        return None
    return cast("Json | None", answer.get("result"))


def _add_version(facts: RawFacts, result: Json, version: str) -> None:
    if result["protocolVersion"] == version:
        facts.versions = sorted([*facts.versions, version])


def _count(facts: RawFacts, lists: Mapping[str, list[Json]]) -> None:
    tools = lists["tools"]
    facts.tools, facts.resources, facts.templates, facts.prompts = (len(lists[name]) for name in LISTS)
    facts.bytes = len(json.dumps(tools, separators=(",", ":"), ensure_ascii=False).encode()) if tools else 0
    counts = Counter(name for tool in tools for name in TOOL_FIELDS if tool.get(name))
    facts.fields = {name: counts[name] for name in TOOL_FIELDS if counts[name]}
    facts.dialects = sorted({dialect for tool in tools for dialect in _find_dialects(tool)}) if tools else []


def _find_dialects(tool: Json) -> Iterator[str]:
    schemas = [cast("Json", tool[name]) for name in ("inputSchema", "outputSchema") if isinstance(tool.get(name), dict)]
    for schema in schemas:
        dialect = str(schema.get("$schema", "none"))
        yield next((name for name in ("2020-12", "2019-09", "draft-07", "draft-06", "draft-04") if name in dialect), dialect)


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
