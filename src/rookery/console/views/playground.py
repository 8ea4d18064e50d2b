"""The playground of a tool: its arguments as JSON and as a form, and a call with its output as it arrives."""

from __future__ import annotations

import hashlib
import json
import pprint
import re
import shlex
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol, cast
from urllib.parse import urlsplit

from starlette.responses import Response

from rookery.console.schema_form.edits import InvalidJsonText, apply_form, parse_json, read_choices
from rookery.console.schema_form.nodes import FormNode, build_form, escape_pointer, to_json_text
from rookery.console.views.tool_questions import QUESTIONS_FIELD, InvalidQuestions, read_questions, read_submitted
from rookery.console.views.tools import read_annotations, server_path, tool_path
from rookery.console.visit import View, Visit
from rookery.kernel.http.event_stream import EventStream, accepts_events, encode_event
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

_MAX_LENGTH = 20_000

_MAX_SHOWN_TEXT = 64 * 1024
_MAX_NOTICES = 500
CALL_SCOPE = "mcp:write"
"""The scope of calls. The form and the JSON follow each other without it, so that a person can write the arguments of a client."""

_MAX_ARGUMENTS_LENGTH = 100 * 1024
_MISSING_PROPERTY = re.compile(r'^"(.+)" is a required property')
_NOT_JSON = "The arguments are not JSON: {}."


def build_snippets(api_url: str, mcp_url: str, server: str, tool: str, arguments: Mapping[str, object]) -> list[tuple[str, str]]:
    """
    Return titles and texts. The key is read from the environment variable `ROOKERY_KEY`.

    Args:
        api_url: The URL of the tools API.
        mcp_url: The URL of the gateway. Below it, each server has its own names.
    """
    body = json.dumps({"server": server, "tool": tool, "arguments": arguments}, ensure_ascii=False)
    curl = f"""curl -s {shlex.quote(f"{api_url}/tools/call")} \\
  -H "Authorization: Bearer $ROOKERY_KEY" -H 'Content-Type: application/json' \\
  -d {shlex.quote(body)}"""
    address = urlsplit(api_url)
    prefix = address.path.removesuffix("/api/v1/mcp")
    python = f"""import os

from rookery_client import Rookery

with Rookery({f"{address.scheme}://{address.netloc}{prefix}"!r}, api_key=os.environ["ROOKERY_KEY"]) as client:
    response = client.tools.call_tool(
        server={server!r}, tool={tool!r},
        arguments={_indent(pprint.pformat(dict(arguments), width=100, sort_dicts=False))},
    )
    print(response.result)"""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    mcp = f"POST {mcp_url}/{server}\n\n{json.dumps(message, ensure_ascii=False, indent=2)}"
    return [(title, text[:_MAX_LENGTH]) for title, text in (("curl", curl), ("Python client", python), ("MCP message", mcp))]


def _indent(text: str) -> str:
    return text.replace("\n", "\n        ")


JsonObject = dict[str, object]


class CallEvent(Protocol):
    """An event of a running call, as the client returns it."""

    @property
    def event(self) -> str: ...

    @property
    def data(self) -> str: ...


@dataclass(slots=True)
class Playground:
    """
    The state of a tool's page.

    Attributes:
        text: The arguments, as JSON.
        form: None: the text is not JSON.
        errors: What is wrong, by JSON pointer.
        texts: Texts of fields that are not JSON, by pointer.
    """

    server: str
    tool: models.Tool
    text: str
    value: JsonObject | None
    form: FormNode | None = None
    errors: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    texts: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def digest(self) -> str:
        """The digest of the text that the form shows. If that of a submitted text differs, a person changed the JSON, and it counts."""
        return hashlib.sha256(self.text.strip().encode("utf-8", "replace")).hexdigest()[:32]


async def show_tool(visit: Visit) -> Response:
    """Show the playground with empty arguments, or with those of a recorded call."""
    server_id, tool = await _load_tool(visit)
    if tool is None:
        return await _render_unknown_tool(visit, server_id)
    text, note = "{}", ""
    if visit.query("replay") and visit.can("tools.read"):
        call = await visit.client.analytics.get_tool_call(visit.query("replay"))
        text = call.arguments or text
        note = "" if call.arguments else "The arguments of this call were not stored."
    playground = _read_text(server_id, tool, text, {})
    return await _render_page(visit, playground, note=note)


async def submit(visit: Visit) -> Response:
    """Update the form and the JSON from each other, or call the tool."""
    server_id, tool = await _load_tool(visit)
    if tool is None:
        return await _render_unknown_tool(visit, server_id)
    fields = (await visit.form()).as_dict()
    is_call = fields.get("do") in {"run", "confirmed"} or QUESTIONS_FIELD in fields
    if is_call and not visit.can(CALL_SCOPE):
        raise ApiError(f"Your key has no scope {CALL_SCOPE}, so it may not call tools.", status=403, code="scope_missing", detail={})
    if len(fields.get("arguments", "")) > _MAX_ARGUMENTS_LENGTH:
        return _render_too_long(visit)
    if QUESTIONS_FIELD in fields:
        return await _answer_questions(visit, _read_text(server_id, tool, fields.get("arguments", ""), {}), fields)
    playground = _read_form(server_id, tool, fields)
    is_script = visit.is_partial
    if not is_call or playground.value is None or playground.errors:
        status = 422 if is_call else 200
        return await (_render_editor(visit, playground) if is_script else _render_page(visit, playground, status=status))
    if read_annotations(tool).get("destructiveHint") and fields.get("do") != "confirmed":
        return await _render_page(visit, playground, note="Confirm the call: this tool may delete or overwrite data.", status=422)
    return await _call_tool(visit, playground)


async def _answer_questions(visit: Visit, playground: Playground, fields: Mapping[str, str]) -> Response:
    """Repeat a call that ended with questions, with the answers to them; show the form again if a field is wrong."""
    try:
        form, action = read_submitted(fields)
    except InvalidQuestions:
        return await _render_page(visit, playground, note="The questions of the tool were not sent. Run it again.", status=422)
    if playground.value is None:
        return await _render_page(visit, playground, status=422)
    if action is None:
        result = {**await _describe_outcome(visit, playground, {"success": False, "code": "input_required"}, None), "questions": form}
        return _render_part(visit, playground, result) if visit.is_partial else await _render_page(visit, playground, result=result)
    return await _call_tool(visit, playground, form.build_responses(action), form.state)


async def _call_tool(
    visit: Visit, playground: Playground, responses: Mapping[str, JsonObject] | None = None, state: str | None = None
) -> Response:
    """Call the tool, and pass on its output as it arrives; without scripts, return the page when the call has ended."""
    stack = AsyncExitStack()
    try:
        events = await stack.enter_async_context(
            visit.client.tools.call_tool_stream(
                server=playground.server,
                tool=playground.tool.name,
                arguments=playground.value,
                input_responses=UNSET if responses is None else responses,
                request_state=UNSET if state is None else state,
            )
        )
    except ApiError as error:
        await stack.aclose()
        return await _respond_to_refusal(visit, playground, error)
    request_id = events.response.headers.get("x-request-id")
    parts = _relay(visit, playground, events, request_id, stack)
    if accepts_events(visit.request.headers.get("accept")):
        return EventStream(parts, headers={"Cache-Control": "no-store"})
    async with stack:
        outcomes = [content async for name, content in _iter_output(visit, playground, events, request_id) if name == "result"]
    return await _render_page(visit, playground, result=outcomes[-1])


async def _load_tool(visit: Visit) -> tuple[str, models.Tool | None]:
    server_id = visit.path("server_id").removeprefix("_")
    listed = await visit.client.tools.list_tools(server_id)
    return server_id, next((tool for tool in listed.tools if tool.name == visit.path("tool")), None)


async def _render_unknown_tool(visit: Visit, server_id: str) -> Response:
    listed = await visit.client.tools.list_servers()
    health = next((server.health for server in listed.servers if server.id == server_id), "online")
    if health not in {"online", "degraded"}:
        message = f"The tools of the server {server_id} are not known, because it is {health}. Its page has the reason."
        return visit.render("error.html", status=503, message=message, code="server_unavailable", request_id=None)
    message = f"The server {server_id} has no tool {visit.path('tool')[:200]!r} that your key may use."
    return visit.render("error.html", status=404, message=message, code="tool_not_found", request_id=None)


def _render_too_long(visit: Visit) -> Response:
    message = f"The arguments have more than {_MAX_ARGUMENTS_LENGTH // 1024} thousand characters. Call the tool by curl or by a client."
    template = "error_fragment.html" if visit.is_partial else "error.html"
    return visit.render(template, status=413, message=message, code="payload_too_large", request_id=None)


def _read_text(server_id: str, tool: models.Tool, text: str, choices: Mapping[str, int]) -> Playground:
    """Return the playground of the JSON *text*."""
    try:
        value = parse_json(text)
    except InvalidJsonText as error:
        return Playground(server_id, tool, text, None, errors={"": [_NOT_JSON.format(error)]})
    if not isinstance(value, dict):
        return Playground(server_id, tool, text, None, errors={"": ["The arguments are an object: write {…}."]})
    arguments = cast("JsonObject", value)
    return Playground(server_id, tool, text, arguments, build_form(tool.input_schema, arguments, choices))


def _read_form(server_id: str, tool: models.Tool, fields: Mapping[str, str]) -> Playground:
    """Return the playground after a submission. If a person changed the JSON, it counts; else the form does."""
    text = fields.get("arguments", "").replace("\r\n", "\n")
    choices = read_choices(fields)
    before = _read_text(server_id, tool, text, choices)
    if before.value is None or fields.get("base") != before.digest:
        return before
    applied = apply_form(tool.input_schema, before.value, fields, fields.get("edit", ""))
    value = cast("JsonObject", applied.value)
    if value != before.value or json.dumps(value) != json.dumps(before.value):
        text = to_json_text(value)
    form = build_form(tool.input_schema, value, choices)
    return Playground(server_id, tool, text, value, form, applied.errors, applied.texts)


async def _render_editor(visit: Visit, playground: Playground) -> Response:
    """Return the part of the page that the script replaces. Its status is 200 also with errors, which browsers would report as failures."""
    snippets = await _load_snippets(visit, playground)
    return visit.render("tools/editor.html", playground=playground, snippets=snippets)


async def _render_page(
    visit: Visit, playground: Playground, *, note: str = "", result: Mapping[str, object] | None = None, status: int = 200
) -> Response:
    return visit.render(
        "tools/playground.html",
        status=status,
        playground=playground,
        snippets=await _load_snippets(visit, playground),
        hints=read_annotations(playground.tool),
        note=note,
        result=result,
        here=tool_path(playground.server, playground.tool.name),
        server_page=server_path(playground.server),
    )


async def _load_snippets(visit: Visit, playground: Playground) -> list[tuple[str, str]]:
    guide = await visit.client.tools.get_connect_guide()
    return build_snippets(guide.api, guide.url, playground.server, playground.tool.name, playground.value or {})


async def _respond_to_refusal(visit: Visit, playground: Playground, error: ApiError) -> Response:
    """Show why a call was rejected, or failed before its first event. Errors of arguments stand at their fields."""
    errors = error.detail.get("errors")
    if error.code == "invalid_arguments" and isinstance(errors, dict):
        playground.errors = _place_errors(playground, cast("Mapping[str, list[str]]", errors))
        if visit.is_partial:
            return await _render_editor(visit, playground)
        return await _render_page(visit, playground, status=422)
    result = await _describe_outcome(visit, playground, _to_failure(error), error.request_id)
    if visit.is_partial:
        return _render_part(visit, playground, result)
    return await _render_page(visit, playground, result=result)


def _to_failure(error: ApiError) -> JsonObject:
    """Return the body of a failed call. Its `error` is the text of the tool, and `code` that of the failure."""
    if "duration_ms" in error.detail:
        return {**error.detail, "error": error.code, "message": error.message}
    return {"success": False, "error": error.message, "code": error.code, "message": None}


def _place_errors(playground: Playground, errors: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the errors by pointer; that of a missing property stands at the property."""
    placed: dict[str, list[str]] = {}
    for pointer, texts in errors.items():
        for text in texts:
            match = _MISSING_PROPERTY.match(text)
            below = f"{pointer}/{escape_pointer(match[1])}" if match else pointer
            is_shown = playground.form is not None and playground.form.find(below) is not None
            placed.setdefault(below if match and is_shown else pointer, []).append(text)
    return placed


async def _relay(
    visit: Visit, playground: Playground, events: AsyncIterable[CallEvent], request_id: str | None, stack: AsyncExitStack
) -> AsyncGenerator[bytes]:
    """Yield the events of a call for the browser. Closing it cancels the call."""
    async with stack:
        async for name, content in _iter_output(visit, playground, events, request_id):
            is_result = name == "result"
            payload = (
                {"html": bytes(_render_part(visit, playground, content).body).decode(), "raw": content["raw"]} if is_result else content
            )
            yield encode_event(name, json.dumps(payload).encode())


def _render_part(visit: Visit, playground: Playground, result: Mapping[str, object]) -> Response:
    return visit.render("tools/result.html", result=result, here=tool_path(playground.server, playground.tool.name))


async def _iter_output(
    visit: Visit, playground: Playground, events: AsyncIterable[CallEvent], request_id: str | None
) -> AsyncGenerator[tuple[str, Mapping[str, object]]]:
    """Yield `progress` and `log` of a running call, then `result` with all that the page shows of it."""
    count = 0
    async for event in events:
        content = cast("JsonObject", json.loads(event.data))
        if event.event in {"progress", "log"}:
            count += 1
            if count <= _MAX_NOTICES:
                yield event.event, _shorten_notice(content)
            continue
        if event.event == "error":
            content = {"success": False, "error": content.get("message"), "code": content.get("error"), "message": None}
        yield "result", await _describe_outcome(visit, playground, content, request_id)


def _shorten_notice(content: JsonObject) -> JsonObject:
    return {name: value if isinstance(value, int | float) else str(value)[:2000] for name, value in content.items()}


async def _describe_outcome(visit: Visit, playground: Playground, body: JsonObject, request_id: str | None) -> dict[str, object]:
    """Return what the page shows of the outcome of a call: its parts, the times of its record, and the questions of the tool."""
    record = await _find_record(visit, request_id)
    result = body.get("result")
    raw = cast("JsonObject", result) if isinstance(result, dict) else None
    content = raw.get("content") if raw is not None else None
    blocks = [_describe_block(block) for block in cast("list[object]", content)] if isinstance(content, list) else []
    structured = None if raw is None else raw.get("structuredContent")
    others = None if raw is None or isinstance(content, list) else raw
    upstream_ms = None if record is None else record.upstream_ms
    return {
        "body": body,
        "record": record,
        "own_ms": None if record is None or upstream_ms is None else max(0.0, record.duration_exact_ms - upstream_ms),
        "blocks": blocks[:100],
        "structured": None if structured is None else to_json_text(structured)[:_MAX_SHOWN_TEXT],
        "others": None if others is None else to_json_text(others)[:_MAX_SHOWN_TEXT],
        "raw": raw,
        "questions": read_questions(raw, playground.text) if raw is not None and body.get("code") == "input_required" else None,
    }


async def _find_record(visit: Visit, request_id: str | None) -> models.CallShown | None:
    """Return the record of the call that a request made; None if the key may not read records."""
    if request_id is None or not visit.can("tools.read"):
        return None
    since = datetime.now(UTC) - timedelta(hours=1)
    calls = await visit.client.analytics.list_tool_calls(request_id=request_id, since=since, per_page=1)
    return calls.items[0] if calls.items else None


def _describe_block(block: object) -> dict[str, object]:
    """Return the kind of a content block with the text to show, or the size and type of a file to download."""
    fields = cast("JsonObject", block) if isinstance(block, dict) else {"type": "unknown"}
    kind = str(fields.get("type"))
    inner = fields.get("resource")
    resource = cast("JsonObject", inner) if isinstance(inner, dict) else fields
    data = resource.get("data") or resource.get("blob")
    if isinstance(data, str):
        mime = str(resource.get("mimeType") or "application/octet-stream")
        return {
            "kind": "file",
            "type": kind,
            "mime": mime[:100],
            "bytes": len(data) * 3 // 4,
            "name": str(resource.get("uri") or kind)[:200],
        }
    text = resource.get("text")
    full_text = text if isinstance(text, str) else to_json_text(fields)
    return {"kind": "text", "type": kind, "text": full_text[:_MAX_SHOWN_TEXT], "cut": max(0, len(full_text) - _MAX_SHOWN_TEXT)}


VIEWS = (
    View("GET", "/tools/{server_id}/{tool:path}", show_tool, "mcp:read"),
    View("POST", "/tools/{server_id}/{tool:path}", submit, "mcp:read"),
)
