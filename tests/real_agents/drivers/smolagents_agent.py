"""An agent of smolagents that calls tools by JSON."""

from smolagents import MCPClient, OpenAIServerModel, ToolCallingAgent
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT

with MCPClient({"url": MCP_URL, "transport": "streamable-http", "headers": HEADERS}, structured_output=False) as tools:
    model = OpenAIServerModel(model_id="scripted", api_base=MODEL_URL, api_key="made-up")
    print(ToolCallingAgent(tools=tools, model=model, max_steps=15).run(PROMPT))
