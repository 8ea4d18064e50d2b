"""An MCP server that sends progress, logs and input requests while it works, by the official SDK over stdio."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    TextContent,
    ToolAnnotations,
)

server = MCPServer("talker")
_QUESTION = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Which city?", requested_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    )
)


@server.tool()
async def tell(ctx: Context, steps: int, pause_s: float = 0.0) -> str:
    """Report progress as log and as number."""
    for step in range(steps):
        await ctx.info(f"step {step}", logger_name="talker")  # pyright: ignore[reportDeprecated] - servers still do
        await ctx.report_progress(step + 1, steps, f"step {step}")
        await asyncio.sleep(pause_s)
    return "done"


@server.tool()
async def until(ctx: Context, gate: str, mark: str) -> str:
    """Report progress, then wait until the file *gate* exists; create the file *mark* when cancelled."""
    await ctx.report_progress(1, 2)
    try:
        while not Path(gate).exists():  # noqa: ASYNC110 - it waits for another process
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        Path(mark).touch()
        raise
    await ctx.report_progress(2, 2)
    return "done"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def weather(ctx: Context) -> CallToolResult | InputRequiredResult:
    """Request the city before it returns the weather."""
    answers = ctx.input_responses
    if answers is None:
        return InputRequiredResult(input_requests={"city": _QUESTION}, request_state="asked once")
    answer = answers["city"]
    city = answer.content["city"] if isinstance(answer, ElicitResult) and answer.content else "nowhere"
    return CallToolResult(content=[TextContent(text=f"Fine in {city}, {ctx.request_state}.")])


_FORM = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Whom do we invite?\nOnly people of this house.",
        requested_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "title": "Name"},
                "seats": {"type": "integer", "minimum": 1, "default": 2},
                "meal": {"type": "string", "enum": ["fish", "greens"]},
                "window": {"type": "boolean"},
            },
            "required": ["name", "seats"],
        },
    )
)
_PAGE = ElicitRequest(params=ElicitRequestURLParams(message="Confirm the date.", url="https://calendar.example/confirm?a=1&b=2"))


@server.tool()
async def invite(ctx: Context, event: str) -> CallToolResult | InputRequiredResult:
    """Request a guest and a confirmation, then another guest, and name the answers."""
    if ctx.request_state is None:
        return InputRequiredResult(input_requests={"guest": _FORM, "date": _PAGE}, request_state="first\nround ")
    answers = {name: answer.model_dump(exclude_none=True) for name, answer in (ctx.input_responses or {}).items()}
    if ctx.request_state == "first\nround ":
        return InputRequiredResult(input_requests={"guest": _FORM}, request_state=json.dumps(answers))
    rounds = {"event": event, "first": json.loads(ctx.request_state), "second": answers}
    return CallToolResult(content=[TextContent(text=json.dumps(rounds, sort_keys=True))])


if __name__ == "__main__":
    server.run("stdio")
