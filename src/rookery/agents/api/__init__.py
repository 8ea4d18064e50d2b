"""The HTTP API of agent work (D-65), with the same routes under /api/agent and under /v1."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.agents.api.phases import PhaseRoutes
from rookery.agents.api.plans import PlanRoutes
from rookery.agents.api.sessions import SessionRoutes
from rookery.agents.api.stream import SessionStreamRoutes
from rookery.agents.api.tasks import TaskRoutes
from rookery.agents.api.templates import TemplateRoutes
from rookery.kernel.http import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsApi:
    """The routes of plans, phases, tasks, templates, sessions and streams."""

    plans: PlanRoutes
    phases: PhaseRoutes
    tasks: TaskRoutes
    templates: TemplateRoutes
    sessions: SessionRoutes
    streams: SessionStreamRoutes

    def routes(self) -> list[Route]:
        """Return all routes, with paths relative to the prefix."""
        parts = (self.plans, self.phases, self.tasks, self.templates, self.sessions, self.streams)
        return [route for part in parts for route in part.routes()]
