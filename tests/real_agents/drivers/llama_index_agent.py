"""An agent of LlamaIndex."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


async def main() -> None:
    tools = await McpToolSpec(client=BasicMCPClient(MCP_URL, headers=HEADERS)).to_tool_list_async()
    model = OpenAILike(model="scripted", api_base=MODEL_URL, api_key="made-up", is_chat_model=True, is_function_calling_model=True)
    agent = FunctionAgent(tools=tools, llm=model, streaming=False)
    print(await agent.run(PROMPT, max_iterations=40))


asyncio.run(main())
