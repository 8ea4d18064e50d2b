"""An agent of mcp-use."""

import asyncio
import os

os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"

from langchain_openai import ChatOpenAI
from mcp_use import MCPAgent, MCPClient
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    client = MCPClient.from_dict({"mcpServers": {"rookery": {"url": MCP_URL, "headers": HEADERS}}})
    model = ChatOpenAI(model="scripted", base_url=MODEL_URL, api_key="made-up")
    print(await MCPAgent(llm=model, client=client, max_steps=40).run(PROMPT))


asyncio.run(main())
