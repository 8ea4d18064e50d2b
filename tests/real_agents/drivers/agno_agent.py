"""An agent of Agno."""

import asyncio

from agno.agent import Agent
from agno.models.openai.like import OpenAILike
from agno.tools.mcp import MCPTools, StreamableHTTPClientParams
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    parameters = StreamableHTTPClientParams(url=MCP_URL, headers=HEADERS)
    async with MCPTools(transport="streamable-http", server_params=parameters) as tools:
        model = OpenAILike(id="scripted", base_url=MODEL_URL, api_key="made-up")
        agent = Agent(model=model, tools=[tools], telemetry=False)
        print((await agent.arun(PROMPT)).content)


asyncio.run(main())
