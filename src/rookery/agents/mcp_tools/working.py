"""Tasks and their leases by tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.reading import Answer, paged, plain, valid
from rookery.agents.plans.claims import Claims, Nothing
from rookery.agents.plans.tasks import Tasks
from rookery.agents.schemas.claims import ClaimBody, ClaimNextBody, CompleteBody, FailBody, HeartbeatBody, ReleaseBody
from rookery.agents.schemas.plan_answers import claimed_answer, ended_answer, task_answer
from rookery.agents.schemas.plans import NewTaskBody, TaskPatch
from rookery.agents.schemas.queries import TasksQuery


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTools:
    """Calls one verb a tool."""

    tasks: Tasks
    claims: Claims

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        """Run *tool*; None: it is not one of these."""
        match tool:
            case "task_ready":
                query = valid(TasksQuery, {**arguments, "state": "ready"})
                found, total = await self.tasks.page(caller, query.query(), limit=query.per_page, offset=query.offset)
                return paged("tasks", [task_answer(view) for view in found], query, total)
            case "task_show":
                return plain(task_answer(await self.tasks.get(caller, _id(arguments))))
            case "task_add":
                draft = valid(NewTaskBody, arguments, "plan", "phase").draft()
                return plain(task_answer(await self.tasks.add(caller, str(arguments["plan"]), str(arguments["phase"]), draft)))
            case "task_update":
                change = valid(TaskPatch, arguments, "task_id").change()
                return plain(task_answer(await self.tasks.change(caller, _id(arguments), change)))
            case "task_claim_next":
                return await self._next(arguments, caller)
            case "task_claim":
                wish = valid(ClaimBody, arguments, "task_id").wish()
                return plain(claimed_answer(await self.claims.claim(caller, _id(arguments), wish)))
            case _:
                return await self._held(tool, arguments, caller)

    async def _held(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        """Do what its holder does with a task."""
        match tool:
            case "task_heartbeat":
                beat = valid(HeartbeatBody, arguments, "task_id")
                return plain(task_answer(await self.claims.heartbeat(caller, _id(arguments), beat.proof(), ttl_s=beat.ttl_s)))
            case "task_release":
                body = valid(ReleaseBody, arguments, "task_id")
                released = await self.claims.release(caller, _id(arguments), body.proof(), reason=body.reason)
                return plain(task_answer(released.task))
            case "task_fail":
                failed = valid(FailBody, arguments, "task_id")
                given_up = await self.claims.fail(caller, _id(arguments), failed.proof(), error=failed.error, result=failed.result)
                return plain(task_answer(given_up.task))
            case "task_complete":
                done = valid(CompleteBody, arguments, "task_id")
                ended = await self.claims.complete(
                    caller, _id(arguments), done.proof(), result=done.result, notes=done.notes, then=done.then()
                )
                return plain(ended_answer(ended))
            case _:
                return None

    async def _next(self, arguments: Mapping[str, object], caller: Caller) -> Answer:
        """Return the task, or why there is none: what the twin says by 204 and its headers."""
        body = valid(ClaimNextBody, arguments)
        found = await self.claims.claim_next(caller, body.plan_ref, body.wish(), any_plan=body.any_plan, wait_s=body.wait_s)
        if isinstance(found, Nothing):
            return {"task": None, "reason": found.reason, "plan": found.plan, "retry_after_s": found.retry_after_s}
        return {"task": plain(claimed_answer(found))}


def _id(arguments: Mapping[str, object]) -> str:
    return str(arguments["task_id"])
