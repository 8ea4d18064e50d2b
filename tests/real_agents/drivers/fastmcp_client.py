"""The client of FastMCP, in a loop of our own: a model gets the whole result as JSON."""

import asyncio
import json

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from model_loop import run_loop
from surroundings import HEADERS, MCP_URL


async def main() -> None:
    async with Client(StreamableHttpTransport(MCP_URL, headers=HEADERS)) as client:
        tools = await client.list_tools()

        async def call(name: str, arguments: dict) -> str:
            result = await client.call_tool(name, arguments)
            blocks = [block.model_dump(mode="json") for block in result.content]
            return json.dumps({"content": blocks, "structured_content": result.structured_content})

        declared = [
            {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": getattr(tool, "inputSchema", None) or tool.input_schema,
            }
            for tool in tools
        ]
        opened = client.initialize_result if hasattr(client, "initialize_result") else None
        await run_loop(declared, call, getattr(opened, "instructions", None) or "")


asyncio.run(main())
