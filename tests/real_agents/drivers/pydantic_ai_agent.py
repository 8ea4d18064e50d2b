"""An agent of Pydantic AI with its MCP toolset."""

import asyncio

from fastmcp.client import Client
from fastmcp.client.transports import StreamableHttpTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=MODEL_URL, api_key="made-up"))
    toolset = MCPToolset(Client(StreamableHttpTransport(MCP_URL, headers=HEADERS)))
    agent = Agent(model, toolsets=[toolset], retries=3)
    async with agent:
        print((await agent.run(PROMPT)).output)


asyncio.run(main())
