"""The programs that `make agents` runs: real agents, frameworks and bridges of others, pinned, each optional."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tests.real_agents.launches import AGENT_LAUNCHES, Launch, Scene, launch_driver

Family: TypeAlias = Literal["agent", "framework", "bridge"]


@dataclass(frozen=True, kw_only=True)
class AgentProgram:
    """
    A program of others.

    Attributes:
        id: Its name on the page.
        package: The package, as its registry names it.
        kind: The lock by which it is installed: `npm`, or the name of a lock of Python packages.
        family: An agent has a model and hooks of its own; a framework has a model; a bridge has none.
        key_source: Where it takes the key from, for the page.
        driver: The script that uses a framework or a bridge; an agent has a function in launches.py.
        bridge: The program of npm that the driver starts.
        unavailable: The reason why it is not run at all.
    """

    id: str
    package: str
    version: str
    kind: str
    family: Family
    key_source: str
    driver: str = ""
    bridge: str = ""
    unavailable: str = ""

    def launch(self, scene: Scene) -> Launch:
        """Return its start in a scene."""
        return launch_driver(scene, self.kind, self.driver, self.bridge) if self.driver else AGENT_LAUNCHES[self.id](scene)


def _agent(id: str, package: str, version: str, key_source: str) -> AgentProgram:
    return AgentProgram(id=id, package=package, version=version, kind="npm", family="agent", key_source=key_source)


def _driven(id: str, version: str, kind: str, driver: str, **fields: str) -> AgentProgram:
    """Return a framework or a bridge, whose package has the name of its id if no other is given."""
    defaults = {"package": id, "family": "framework", "key_source": "its program"}
    return AgentProgram(id=id, version=version, kind=kind, driver=driver, **(defaults | fields))  # pyright: ignore[reportArgumentType] - fields by name


PROGRAMS = (
    _agent("claude-code", "@anthropic-ai/claude-code", "2.1.328", "`${ROOKERY_KEY}` in a header"),
    _agent("codex", "@openai/codex", "0.169.0", '`bearer_token_env_var = "ROOKERY_KEY"`'),
    _agent("gemini-cli", "@google/gemini-cli", "0.61.0", "`${ROOKERY_KEY}` in a header"),
    _agent("opencode", "opencode-ai", "1.18.33", "`{env:ROOKERY_KEY}` in a header"),
    _agent("qwen-code", "@qwen-code/qwen-code", "0.24.4", "`${ROOKERY_KEY}` in a header"),
    _agent("cline", "cline", "3.0.65", "the file alone"),
    _agent("copilot", "@github/copilot", "1.0.102", "`${ROOKERY_KEY}` in a header"),
    _driven("fastmcp", "4.1.6", "sdk-2", "fastmcp_client.py"),
    _driven("pydantic-ai", "2.62.0", "sdk-2", "pydantic_ai_agent.py", package="pydantic-ai-slim"),
    _driven("openai-agents", "0.24.0", "sdk-2", "openai_agents_agent.py"),
    _driven("google-adk", "2.13.0", "sdk-2", "google_adk_agent.py"),
    _driven("agno", "3.1.10", "sdk-2", "agno_agent.py"),
    _driven("strands-agents", "1.62.0", "openai-2", "strands_agent.py"),
    _driven("llama-index", "0.6.0", "openai-2", "llama_index_agent.py", package="llama-index-tools-mcp"),
    _driven("langchain", "0.3.2", "sdk-1", "langchain_agent.py", package="langchain-mcp-adapters"),
    _driven("langchain-session", "0.3.2", "sdk-1", "langchain_session_agent.py", package="langchain-mcp-adapters"),
    _driven("crewai", "1.15.30", "sdk-1", "crewai_mcps_agent.py"),
    _driven("crewai-tools", "1.15.30", "sdk-1", "crewai_agent.py"),
    _driven("smolagents", "1.26.0", "sdk-1", "smolagents_agent.py"),
    _driven("mcp-use", "1.7.1", "sdk-1", "mcp_use_agent.py"),
    _driven("ai-sdk", "2.0.99", "npm", "ai_sdk_agent.mjs", package="@ai-sdk/mcp"),
    _driven("mastra", "2.0.0", "npm", "mastra_agent.mjs", package="@mastra/mcp"),
    _driven(
        "mcporter",
        "0.12.3",
        "sdk-2",
        "mcporter_cli.py",
        family="bridge",
        key_source="`${ROOKERY_KEY}` in a header",
        bridge="mcporter/dist/cli.js",
    ),
    _driven(
        "mcp-remote",
        "0.15.1",
        "sdk-2",
        "mcp_remote_bridge.py",
        family="bridge",
        key_source="a variable in a header",
        bridge="mcp-remote/dist/proxy.js",
    ),
)
"""All programs, in the order of the page."""
