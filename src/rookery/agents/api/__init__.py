"""
The operations of agent work.

They are the HTTP API, with the same routes under /api/agent and under /v1, and the tools of the MCP server `agents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rookery.agents import tool_declarations
from rookery.agents.api.phases import PhaseApi
from rookery.agents.api.plans import PlanApi
from rookery.agents.api.sessions import SessionApi
from rookery.agents.api.stream import SessionStreamApi
from rookery.agents.api.tasks import TaskApi
from rookery.agents.api.templates import TemplateApi
from rookery.agents.wiring import AgentServices
from rookery.kernel.http import Operation
from rookery.kernel.http.operation_tools import OperationServer
from rookery.kernel.working_context import WorkingContextFinder


@dataclass(frozen=True, slots=True)
class AgentsApi:
    """The operations of plans, phases, tasks, templates, sessions and streams."""

    services: AgentServices
    contexts: WorkingContextFinder | None = None

    def server(self) -> OperationServer:
        """Return the built-in MCP server `agents`. Its tools are in the order in which an agent usually needs them."""
        return OperationServer(
            [*self._session_operations(), *self._task_operations(), *self._plan_operations()],
            tool_declarations.SERVER,
            compact=tool_declarations.compact_output,
            contexts=self.contexts,
        )

    def operations(self) -> list[Operation]:
        """Return all operations, with paths relative to the prefix."""
        return require_if_match([*self._plan_operations(), *self._task_operations(), *self._session_operations()])

    def _plan_operations(self) -> list[Operation]:
        services = self.services
        plans = PlanApi(plans=services.plans).operations()
        return [*plans, *PhaseApi(phases=services.phases, tasks=services.tasks).operations()]

    def _task_operations(self) -> list[Operation]:
        services = self.services
        tasks = TaskApi(tasks=services.tasks, claims=services.claims).operations()
        return [*tasks, *TemplateApi(templates=services.templates, plans=services.plans).operations()]

    def _session_operations(self) -> list[Operation]:
        sessions = self.services.sessions
        return [*SessionApi(sessions=sessions).operations(), *SessionStreamApi(streams=sessions.streams).operations()]


def require_if_match(operations: Sequence[Operation]) -> list[Operation]:
    """
    Return *operations* after the check that each route that writes supports If-Match.

    Raises:
        ValueError: A route that writes does not document If-Match.
    """
    for operation in operations:
        if operation.method not in {"", "GET"} and "If-Match" not in operation.all_request_headers:
            msg = f"{operation.method} {operation.path} writes, so it must support If-Match: its handler takes `expected`"
            raise ValueError(msg)
    return list(operations)
