"""An agent of CrewAI with the adapter of crewai-tools."""

import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}

from crewai import LLM, Agent
from crewai_tools import MCPServerAdapter
from surroundings import HEADERS, MCP_URL, MODEL_URL, PROMPT

with MCPServerAdapter({"url": MCP_URL, "transport": "streamable-http", "headers": HEADERS}, connect_timeout=30) as tools:
    model = LLM(model="openai/gpt-4.1", base_url=MODEL_URL, api_key="made-up")
    agent = Agent(role="agent", goal="Use the tools.", backstory="None.", tools=list(tools), llm=model, max_iter=40)
    print(agent.kickoff(PROMPT).raw)
