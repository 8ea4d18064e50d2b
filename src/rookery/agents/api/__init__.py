"""The API of agent work (D-65): under /api/agent, and the same table once more under /v1."""

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
    """The tables of all parts, one after the other."""

    plans: PlanRoutes
    phases: PhaseRoutes
    tasks: TaskRoutes
    templates: TemplateRoutes
    sessions: SessionRoutes
    streams: SessionStreamRoutes

    def routes(self) -> list[Route]:
        """Return every route, relative to either prefix."""
        parts = (self.plans, self.phases, self.tasks, self.templates, self.sessions, self.streams)
        return [route for part in parts for route in part.routes()]
