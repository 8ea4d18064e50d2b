"""An agent of CrewAI with its own MCP client, which connects for each call."""

import asyncio
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent
from crewai.mcp import MCPServerHTTP
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    model = LLM(model="openai/gpt-4.1", base_url=MODEL_URL, api_key="made-up")
    server = MCPServerHTTP(url=MCP_URL, headers=HEADERS)
    agent = Agent(role="agent", goal="Use the tools.", backstory="None.", mcps=[server], llm=model, max_iter=40)
    print((await agent.kickoff_async(PROMPT)).raw)


asyncio.run(main())
