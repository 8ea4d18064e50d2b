"""Plans, phases and templates by tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.reading import Answer, paged, plain, valid
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_answers import checkpoint_answer, phase_answer, plan_answer
from rookery.agents.schemas.plans import CheckpointBody, PhaseStatusBody, PlanBody, PlanStatusBody
from rookery.agents.schemas.queries import PlansQuery
from rookery.agents.schemas.templates import TemplatesQuery, UseBody, shown, summary
from rookery.agents.templates.library import Templates


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTools:
    """Calls one verb a tool."""

    plans: Plans
    phases: Phases
    templates: Templates

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        """Run *tool*; None: it is not one of these."""
        match tool:
            case "plan_list":
                query = valid(PlansQuery, arguments)
                found, total = await self.plans.page(caller, query.filters(), limit=query.per_page, offset=query.offset)
                return paged("plans", [plan_answer(caller, view) for view in found], query, total)
            case "plan_show":
                return plain(plan_answer(caller, await self.plans.get(caller, str(arguments["plan"]))))
            case "plan_create":
                return plain(plan_answer(caller, await self.plans.create(caller, valid(PlanBody, arguments).draft())))
            case "plan_status":
                move = valid(PlanStatusBody, arguments, "plan")
                view = await self.plans.set_status(caller, str(arguments["plan"]), move.wanted(), force=move.force, reason=move.reason)
                return plain(plan_answer(caller, view))
            case "plan_restore":
                return plain(plan_answer(caller, await self.plans.restore(caller, str(arguments["plan"]))))
            case "plan_from_template":
                return await self._from_template(arguments, caller)
            case "templates":
                return await self._shelf(arguments, caller)
            case "template_show":
                return plain(shown(await self.templates.get(caller.workspace_id, str(arguments["slug"]))))
            case _:
                return await self._phase(tool, arguments, caller)

    async def _phase(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        match tool:
            case "phase_status":
                body = valid(PhaseStatusBody, arguments, "plan", "phase")
                view = await self.phases.set_status(caller, str(arguments["plan"]), str(arguments["phase"]), body.move())
                return plain(phase_answer(view))
            case "phase_checkpoint":
                note = valid(CheckpointBody, arguments, "plan", "phase")
                kept = await self.phases.add_checkpoint(
                    caller, str(arguments["plan"]), str(arguments["phase"]), note=note.note, context=note.context or {}
                )
                return plain(checkpoint_answer(kept))
            case _:
                return None

    async def _from_template(self, arguments: Mapping[str, object], caller: Caller) -> Answer:
        body = valid(UseBody, arguments, "template")
        filled = await self.templates.fill(caller.workspace_id, str(arguments["template"]), body.variables, version=body.version)
        return plain(plan_answer(caller, await self.plans.create(caller, body.draft(filled))))

    async def _shelf(self, arguments: Mapping[str, object], caller: Caller) -> Answer:
        query = valid(TemplatesQuery, arguments)
        found, total = await self.templates.page(
            caller.workspace_id, category=query.category, words=query.q, limit=query.per_page, offset=query.offset
        )
        return paged("templates", [summary(each) for each in found], query, total)
