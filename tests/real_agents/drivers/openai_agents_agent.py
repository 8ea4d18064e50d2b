"""An agent of the OpenAI Agents SDK."""

import asyncio

from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from openai import AsyncOpenAI
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    set_tracing_disabled(True)
    model = OpenAIResponsesModel(model="scripted", openai_client=AsyncOpenAI(base_url=MODEL_URL, api_key="made-up"))
    async with MCPServerStreamableHttp(params={"url": MCP_URL, "headers": HEADERS}) as server:
        agent = Agent(name="agent", model=model, mcp_servers=[server])
        print((await Runner.run(agent, PROMPT, max_turns=30)).final_output)


asyncio.run(main())
