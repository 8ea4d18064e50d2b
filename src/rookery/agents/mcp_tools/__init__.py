"""The built-in MCP server `agents` (D-92). Each tool does the same as a route of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from rookery.access.models import Caller
from rookery.agents.mcp_tools.plan_handler import PlanToolHandler
from rookery.agents.mcp_tools.plan_tools import PLAN_TOOLS, TASK_TOOLS
from rookery.agents.mcp_tools.serialization import drop_empty
from rookery.agents.mcp_tools.session_handler import SessionToolHandler
from rookery.agents.mcp_tools.session_tools import SESSION_TOOLS
from rookery.agents.mcp_tools.task_handler import TaskToolHandler
from rookery.agents.mcp_tools.tool_schemas import AgentsTool, parse_object_arguments
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.tasks import Tasks
from rookery.agents.sessions.session_services import SessionServices
from rookery.agents.templates.library import Templates
from rookery.kernel.errors import NotFound

TOOLS: Sequence[AgentsTool] = (*SESSION_TOOLS, *TASK_TOOLS, *PLAN_TOOLS)
"""All tools, in the order in which an agent usually needs them."""

_BY_NAME = {tool.name: tool for tool in TOOLS}


class AgentToolServices(Protocol):
    """The services that the tools call."""

    @property
    def plans(self) -> Plans: ...

    @property
    def phases(self) -> Phases: ...

    @property
    def tasks(self) -> Tasks: ...

    @property
    def claims(self) -> Claims: ...

    @property
    def templates(self) -> Templates: ...

    @property
    def sessions(self) -> SessionServices: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsServer:
    """The built-in server `agents`. It acts with the permissions of its caller."""

    plan_tools: PlanToolHandler
    task_tools: TaskToolHandler
    session_tools: SessionToolHandler
    id: str = "agents"
    name: str = "Agent work"
    tagline: str = "Plans, tasks and sessions that agents share."
    description: str = (
        "Plans with phases and tasks that several agents work on together. Start a session, claim the next ready task, log and "
        "checkpoint what you do, complete it, and hand off when you stop, so that the next session can continue."
    )

    @classmethod
    def from_services(cls, agents: AgentToolServices) -> AgentsServer:
        """Return the server of *agents*."""
        return cls(
            plan_tools=PlanToolHandler(plans=agents.plans, phases=agents.phases, templates=agents.templates),
            task_tools=TaskToolHandler(tasks=agents.tasks, claims=agents.claims),
            session_tools=SessionToolHandler(sessions=agents.sessions),
        )

    def tools(self) -> Sequence[AgentsTool]:
        """Return all tools."""
        return TOOLS

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return the response body of the corresponding route.

        Raises:
            NotFound: The tool does not exist.
            RookeryError: The operation failed.
        """
        definition = _BY_NAME.get(tool)
        if definition is not None:
            arguments = parse_object_arguments(definition, arguments)
        for handler in (self.session_tools, self.task_tools, self.plan_tools):
            output = await handler.call(tool, arguments, caller)
            if output is not None:
                return output
        raise NotFound("tool", tool)

    def text(self, tool: str, output: Mapping[str, object]) -> str:
        """Return the text of a result for a model: the JSON without null and empty fields."""
        del tool
        return orjson.dumps(drop_empty(output)).decode()
