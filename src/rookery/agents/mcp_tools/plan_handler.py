"""Handler of the tools for plans, phases and templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.serialization import ToolOutput, to_json, to_json_page, validate_arguments
from rookery.agents.plans.phases import Phases
from rookery.agents.plans.plans import Plans
from rookery.agents.schemas.plan_responses import to_checkpoint_response, to_phase_response, to_plan_response
from rookery.agents.schemas.plans import CheckpointBody, PhaseStatusBody, PlanBody, PlanStatusBody
from rookery.agents.schemas.queries import PlansQuery
from rookery.agents.schemas.templates import TemplatesQuery, UseBody, to_template_response, to_template_summary
from rookery.agents.templates.library import Templates


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanToolHandler:
    """Runs each tool by one operation on plans, phases or templates."""

    plans: Plans
    phases: Phases
    templates: Templates

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        """Run *tool*, or return None if this handler does not have it."""
        match tool:
            case "plan_list":
                query = validate_arguments(PlansQuery, arguments)
                views, total = await self.plans.list_page(caller, query.to_filter(), limit=query.per_page, offset=query.offset)
                return to_json_page("plans", [to_plan_response(caller, view) for view in views], query, total)
            case "plan_show":
                return to_json(to_plan_response(caller, await self.plans.get(caller, str(arguments["plan"]))))
            case "plan_create":
                return to_json(
                    to_plan_response(caller, await self.plans.create(caller, validate_arguments(PlanBody, arguments).to_draft()))
                )
            case "plan_status":
                body = validate_arguments(PlanStatusBody, arguments, "plan")
                view = await self.plans.set_status(caller, str(arguments["plan"]), body.to_status(), force=body.force, reason=body.reason)
                return to_json(to_plan_response(caller, view))
            case "plan_restore":
                return to_json(to_plan_response(caller, await self.plans.restore(caller, str(arguments["plan"]))))
            case "plan_from_template":
                return await self._create_from_template(arguments, caller)
            case "templates":
                return await self._list_templates(arguments, caller)
            case "template_show":
                return to_json(to_template_response(await self.templates.get(caller.workspace_id, str(arguments["slug"]))))
            case _:
                return await self._call_phase_tool(tool, arguments, caller)

    async def _call_phase_tool(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        match tool:
            case "phase_status":
                body = validate_arguments(PhaseStatusBody, arguments, "plan", "phase")
                view = await self.phases.set_status(caller, str(arguments["plan"]), str(arguments["phase"]), body.to_change())
                return to_json(to_phase_response(view))
            case "phase_checkpoint":
                note = validate_arguments(CheckpointBody, arguments, "plan", "phase")
                checkpoint = await self.phases.add_checkpoint(
                    caller, str(arguments["plan"]), str(arguments["phase"]), note=note.note, context=note.context or {}
                )
                return to_json(to_checkpoint_response(checkpoint))
            case _:
                return None

    async def _create_from_template(self, arguments: Mapping[str, object], caller: Caller) -> ToolOutput:
        body = validate_arguments(UseBody, arguments, "template")
        rendered = await self.templates.render(caller.workspace_id, str(arguments["template"]), body.variables, version=body.version)
        return to_json(to_plan_response(caller, await self.plans.create(caller, body.to_draft(rendered))))

    async def _list_templates(self, arguments: Mapping[str, object], caller: Caller) -> ToolOutput:
        query = validate_arguments(TemplatesQuery, arguments)
        stored_templates, total = await self.templates.list_page(
            caller.workspace_id, category=query.category, query=query.q, limit=query.per_page, offset=query.offset
        )
        return to_json_page("templates", [to_template_summary(stored_template) for stored_template in stored_templates], query, total)
