"""An agent of LangChain, which holds one session."""

import asyncio

from langchain.agents import create_agent
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from langchain_openai import ChatOpenAI
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    client = MultiServerMCPClient({"rookery": {"transport": "streamable_http", "url": MCP_URL, "headers": HEADERS}})
    async with client.session("rookery") as session:
        model = ChatOpenAI(model="scripted", base_url=MODEL_URL, api_key="made-up")
        agent = create_agent(model, await load_mcp_tools(session))
        state = await agent.ainvoke({"messages": [{"role": "user", "content": PROMPT}]}, {"recursion_limit": 60})
        print(state["messages"][-1].content)


asyncio.run(main())
