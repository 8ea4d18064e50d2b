"""An agent of Strands."""

from mcp.client.streamable_http import streamable_http_client
from strands import Agent
from strands.models.openai import OpenAIModel
from strands.tools.mcp import MCPClient
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT


def connect():
    import httpx2

    return streamable_http_client(MCP_URL, http_client=httpx2.AsyncClient(headers=HEADERS, timeout=60))


with MCPClient(connect) as client:
    model = OpenAIModel(client_args={"base_url": MODEL_URL, "api_key": "made-up"}, model_id="scripted")
    agent = Agent(model=model, tools=client.list_tools_sync(), callback_handler=None)
    print(agent(PROMPT))
