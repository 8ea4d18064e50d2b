"""The bridge mcp-remote over standard input and output, in a loop of our own: a model gets the whole result as JSON."""

import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from model_loop import run_loop
from surroundings import HEADERS, MCP_URL


async def main() -> None:
    arguments = [os.environ["BRIDGE"], MCP_URL, "--allow-http", "--transport", "http-only", "--header", "Authorization:${ROOKERY_AUTH}"]
    variables = {**os.environ, "ROOKERY_AUTH": HEADERS["Authorization"], "BROWSER": "/bin/true"}
    parameters = StdioServerParameters(command="node", args=arguments, env=variables)
    async with stdio_client(parameters, errlog=sys.stderr) as streams, ClientSession(*streams) as session:
        opened = await session.initialize()
        tools = (await session.list_tools()).tools

        async def call(name: str, values: dict) -> str:
            return (await session.call_tool(name, values)).model_dump_json(by_alias=True, exclude_none=True)

        declared = [{"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema} for tool in tools]
        await run_loop(declared, call, opened.instructions or "")


asyncio.run(main())
