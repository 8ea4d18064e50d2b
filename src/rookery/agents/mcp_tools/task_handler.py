"""Handler of the tools for tasks and their leases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.serialization import ToolOutput, to_json, to_json_page, validate_arguments
from rookery.agents.plans.claims import Claims, NoTaskAvailable
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.claims import ClaimBody, ClaimNextBody, CompleteBody, FailBody, HeartbeatBody, ReleaseBody
from rookery.agents.schemas.plan_responses import to_claimed_task_response, to_completed_task_response, to_task_response
from rookery.agents.schemas.plans import NewTaskBody, TaskPatch
from rookery.agents.schemas.queries import TasksQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskToolHandler:
    """Runs each tool by one operation on tasks."""

    tasks: Tasks
    claims: Claims

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        """Run *tool*, or return None if this handler does not have it."""
        match tool:
            case "task_ready":
                query = validate_arguments(TasksQuery, {**arguments, "state": "ready"})
                views, total = await self.tasks.list_page(caller, query.to_filter(), limit=query.per_page, offset=query.offset)
                return to_json_page("tasks", [to_task_response(view) for view in views], query, total)
            case "task_show":
                return to_json(to_task_response(await self.tasks.get(caller, _get_task_id(arguments))))
            case "task_add":
                draft = validate_arguments(NewTaskBody, arguments, "plan", "phase").to_draft()
                return to_json(to_task_response(await self.tasks.add(caller, str(arguments["plan"]), str(arguments["phase"]), draft)))
            case "task_update":
                change = validate_arguments(TaskPatch, arguments, "task_id").to_change()
                return to_json(to_task_response(await self.tasks.change(caller, _get_task_id(arguments), change)))
            case "task_claim_next":
                return await self._claim_next(arguments, caller)
            case "task_claim":
                lease_request = validate_arguments(ClaimBody, arguments, "task_id").to_lease_request()
                return to_json(to_claimed_task_response(await self.claims.claim(caller, _get_task_id(arguments), lease_request)))
            case _:
                return await self._call_holder_tool(tool, arguments, caller)

    async def _call_holder_tool(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> ToolOutput | None:
        """Run a tool of the lease holder, or return None if this handler does not have it."""
        match tool:
            case "task_heartbeat":
                heartbeat = validate_arguments(HeartbeatBody, arguments, "task_id")
                return to_json(
                    to_task_response(
                        await self.claims.heartbeat(caller, _get_task_id(arguments), heartbeat.to_credential(), ttl_s=heartbeat.ttl_s)
                    )
                )
            case "task_release":
                body = validate_arguments(ReleaseBody, arguments, "task_id")
                released = await self.claims.release(caller, _get_task_id(arguments), body.to_credential(), reason=body.reason)
                return to_json(to_task_response(released.task))
            case "task_fail":
                failure = validate_arguments(FailBody, arguments, "task_id")
                failed = await self.claims.fail(
                    caller, _get_task_id(arguments), failure.to_credential(), error=failure.error, result=failure.result
                )
                return to_json(to_task_response(failed.task))
            case "task_complete":
                completion = validate_arguments(CompleteBody, arguments, "task_id")
                result = await self.claims.complete(
                    caller,
                    _get_task_id(arguments),
                    completion.to_credential(),
                    result=completion.result,
                    notes=completion.notes,
                    next_request=completion.to_next_request(),
                )
                return to_json(to_completed_task_response(result))
            case _:
                return None

    async def _claim_next(self, arguments: Mapping[str, object], caller: Caller) -> ToolOutput:
        """Return the claimed task, or null with the reason, which the route sends as 204 with headers."""
        body = validate_arguments(ClaimNextBody, arguments)
        outcome = await self.claims.claim_next(caller, body.plan_ref, body.to_lease_request(), any_plan=body.any_plan, wait_s=body.wait_s)
        if isinstance(outcome, NoTaskAvailable):
            return {"task": None, "reason": outcome.reason, "plan": outcome.plan, "retry_after_s": outcome.retry_after_s}
        return {"task": to_json(to_claimed_task_response(outcome))}


def _get_task_id(arguments: Mapping[str, object]) -> str:
    return str(arguments["task_id"])
