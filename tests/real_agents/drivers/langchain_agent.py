"""An agent of LangChain, whose adapter opens a session for each call."""

import asyncio

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_openai import ChatOpenAI
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    client = MultiServerMCPClient({"rookery": {"transport": "streamable_http", "url": MCP_URL, "headers": HEADERS}})
    model = ChatOpenAI(model="scripted", base_url=MODEL_URL, api_key="made-up")
    agent = create_agent(model, await client.get_tools())
    state = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, {"recursion_limit": 60})
    print(state["messages"][-1].content)


asyncio.run(main())
