"""Agent work as tools of the built-in MCP server `agents` (D-92): each is its REST twin for an agent's hands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson

from rookery.access.models import Caller
from rookery.agents.mcp_tools.plan_tools import PLANS, TASKS
from rookery.agents.mcp_tools.planning import PlanTools
from rookery.agents.mcp_tools.reading import without_empty
from rookery.agents.mcp_tools.session_tools import SESSIONS
from rookery.agents.mcp_tools.shapes import AgentsTool, parsed
from rookery.agents.mcp_tools.sitting import SessionTools
from rookery.agents.mcp_tools.working import TaskTools
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.plans.tasks import Tasks
from rookery.agents.sessions.verbs import SessionServices
from rookery.agents.templates.library import Templates
from rookery.kernel.errors import NotFound

TOOLS: Sequence[AgentsTool] = (*SESSIONS, *TASKS, *PLANS)
"""In the order in which an agent needs them."""

_BY_NAME = {tool.name: tool for tool in TOOLS}


class Services(Protocol):
    """The verbs of agent work."""

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
    """The built-in server `agents`: it acts as its caller, with the verbs of the REST API."""

    planning: PlanTools
    working: TaskTools
    sitting: SessionTools
    id: str = "agents"
    name: str = "Agent work"
    tagline: str = "Plans, tasks and sessions that agents share."
    description: str = (
        "Plans with phases and tasks that several agents work on together. Start a session, claim the next ready task, log and "
        "checkpoint what you do, complete it, and hand off when you stop: whoever comes next goes on from there."
    )

    @classmethod
    def of(cls, agents: Services) -> AgentsServer:
        """Return the server of *agents*."""
        return cls(
            planning=PlanTools(plans=agents.plans, phases=agents.phases, templates=agents.templates),
            working=TaskTools(tasks=agents.tasks, claims=agents.claims),
            sitting=SessionTools(sessions=agents.sessions),
        )

    def tools(self) -> Sequence[AgentsTool]:
        """Return all tools."""
        return TOOLS

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Mapping[str, object]:
        """
        Run *tool* as *caller* and return the body of its REST twin's answer.

        Raises:
            NotFound: There is no such tool.
            RookeryError: What the verb raises.
        """
        known = _BY_NAME.get(tool)
        if known is not None:
            arguments = parsed(known, arguments)
        for part in (self.sitting, self.working, self.planning):
            answer = await part.call(tool, arguments, caller)
            if answer is not None:
                return answer
        raise NotFound("tool", tool)

    def text(self, tool: str, answer: Mapping[str, object]) -> str:
        """Return what a model reads of an answer: all of it but null and empty fields."""
        del tool
        return orjson.dumps(without_empty(answer)).decode()
