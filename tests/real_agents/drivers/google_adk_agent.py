"""An agent of Google's ADK, whose model speaks the protocol of Gemini."""

import asyncio
import os

os.environ |= {"GOOGLE_API_KEY": "made-up", "GOOGLE_GEMINI_BASE_URL": os.environ["MODEL_URL"], "GOOGLE_GENAI_USE_VERTEXAI": "false"}

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.adk.tools.mcp_tool.mcp_session_manager import StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from google.genai import types
from surroundings import HEADERS, MCP_URL, PROMPT


async def main() -> None:
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url=MCP_URL, headers=HEADERS))
    runner = InMemoryRunner(agent=LlmAgent(name="agent", model="gemini-2.5-pro", tools=[toolset]), app_name="probe")
    session = await runner.session_service.create_session(app_name="probe", user_id="ada")
    message = types.Content(role="user", parts=[types.Part(text=PROMPT)])
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        for part in (event.content.parts or []) if event.content else []:
            if part.text:
                print(part.text)
    await toolset.close()


asyncio.run(main())
