"""
Operations of `client.plans`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class PlansOperations:
    """Operations of `client.plans`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_plans(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "active", "paused", "completed", "archived"] | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Plan]:
        """List plans, newest first."""
        return self._session.send_page(Call(
            operation="list_plans", method="GET", path="/api/agent/plans", result=PageBody[models.Plan],
            query=given(page=page, per_page=per_page, status=status, org=org, project=project, q=q),
        ))

    def create_plan(
        self, *, title: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET, slug: str | Unset | None = UNSET,
        status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, phases: Sequence[str | inputs.PhaseBody] | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET,
    ) -> models.Plan:
        """Create a plan."""
        return self._session.send(Call(
            operation="create_plan", method="POST", path="/api/agent/plans", result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                title=title, description=description, slug=slug, status=status, org=org, project=project, metadata=metadata,
                phases=phases, tasks=tasks,
            ),
            accepts_key=True,
        ))

    def get_plan_markdown(self, plan: str) -> str:
        """Show a plan as Markdown."""
        return self._session.send(Call(
            operation="get_plan_markdown", method="GET", path=fill_path("/api/agent/plans/{plan}.md", plan=plan), result=str,
            reader="text", accept="text/markdown",
        ))

    def get_plan(self, plan: str, *, include: Sequence[Literal["phases", "tasks", "none"]] | Unset = UNSET) -> models.Plan:
        """Show a plan with its phases and tasks."""
        return self._session.send(Call(
            operation="get_plan", method="GET", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            query=given(include=include),
        ))

    def update_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, title: str | Unset = UNSET, description: str | Unset | None = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """Change a plan."""
        return self._session.send(Call(
            operation="update_plan", method="PATCH", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}),
            body=given(title=title, description=description, org=org, project=project, metadata=metadata),
        ))

    def delete_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> None:
        """Archive a plan."""
        return self._session.send(Call(
            operation="delete_plan", method="DELETE", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def set_plan_status(
        self, plan: str, *, status: Literal["draft", "active", "paused", "completed", "archived"], if_match: str | Unset = UNSET,
        reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Plan:
        """Start, pause, resume, complete or reopen a plan."""
        return self._session.send(Call(
            operation="set_plan_status", method="PATCH", path=fill_path("/api/agent/plans/{plan}/status", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    def archive_plan(self, plan: str, *, if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET) -> models.Plan:
        """Archive a plan with a reason."""
        return self._session.send(Call(
            operation="archive_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/archive", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(reason=reason), accepts_key=True,
        ))

    def restore_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> models.Plan:
        """Restore an archived plan."""
        return self._session.send(Call(
            operation="restore_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/restore", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    def get_plan_graph(self, plan: str, *, format: Literal["json", "mermaid"] | Unset = UNSET) -> models.Graph:
        """Show the dependencies in a plan."""
        return self._session.send(Call(
            operation="get_plan_graph", method="GET", path=fill_path("/api/agent/plans/{plan}/graph", plan=plan), result=models.Graph,
            query=given(format=format),
        ))

    def list_plan_events(
        self, plan: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, after: int | Unset = UNSET,
    ) -> Page[models.Event]:
        """List the changes of a plan."""
        return self._session.send_page(Call(
            operation="list_plan_events", method="GET", path=fill_path("/api/agent/plans/{plan}/events", plan=plan),
            result=PageBody[models.Event], query=given(page=page, per_page=per_page, after=after),
        ))

    def list_phases(self, plan: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> Page[models.Phase]:
        """List the phases of a plan, in their order."""
        return self._session.send_page(Call(
            operation="list_phases", method="GET", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan),
            result=PageBody[models.Phase], query=given(page=page, per_page=per_page),
        ))

    def create_phase(
        self, plan: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        key: str | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET,
        position: int | Unset | None = UNSET,
    ) -> models.Phase:
        """Add a phase with its tasks."""
        return self._session.send(Call(
            operation="create_phase", method="POST", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan), result=models.Phase,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, key=key, depends_on=depends_on, acceptance_criteria=acceptance_criteria,
                metadata=metadata, tasks=tasks, position=position,
            ),
            accepts_key=True,
        ))

    def get_phase(self, plan: str, phase: str) -> models.Phase:
        """Show a phase with its tasks."""
        return self._session.send(Call(
            operation="get_phase", method="GET", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase,
        ))

    def update_phase(
        self, plan: str, phase: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        description: str | Unset | None = UNSET, position: int | Unset = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Phase:
        """Change or move a phase."""
        return self._session.send(Call(
            operation="update_phase", method="PATCH", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, position=position, depends_on=depends_on, acceptance_criteria=acceptance_criteria,
                metadata=metadata,
            ),
        ))

    def delete_phase(self, plan: str, phase: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """Delete a phase with its tasks."""
        return self._session.send(Call(
            operation="delete_phase", method="DELETE", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=type(None), query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def set_phase_status(
        self, plan: str, phase: str, *, status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"],
        if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Phase:
        """Start, complete, skip, hold or reopen a phase."""
        return self._session.send(Call(
            operation="set_phase_status", method="PATCH",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/status", plan=plan, phase=phase), result=models.Phase,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    def create_checkpoint(
        self, plan: str, phase: str, *, note: str, if_match: str | Unset = UNSET,
        context: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Checkpoint:
        """Add a checkpoint to a phase."""
        return self._session.send(Call(
            operation="create_checkpoint", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/checkpoints", plan=plan, phase=phase), result=models.Checkpoint,
            headers=given(**{"If-Match": if_match}), body=given(note=note, context=context), accepts_key=True,
        ))

    def list_phase_tasks(
        self, plan: str, phase: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
    ) -> Page[models.Task]:
        """List the tasks of a phase."""
        return self._session.send_page(Call(
            operation="list_phase_tasks", method="GET",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=PageBody[models.Task],
            query=given(page=page, per_page=per_page, status=status, state=state),
        ))

    def create_task(
        self, plan: str, phase: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        priority: int | Unset | None = UNSET, notes: str | Unset | None = UNSET, key: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, position: int | Unset | None = UNSET,
    ) -> models.Task:
        """Add a task to a phase."""
        return self._session.send(Call(
            operation="create_task", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, priority=priority, notes=notes, key=key, depends_on=depends_on,
                acceptance_criteria=acceptance_criteria, metadata=metadata, position=position,
            ),
            accepts_key=True,
        ))

    def list_tasks(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        plan: str | Unset = UNSET, session_id: str | Unset = UNSET,
    ) -> Page[models.Task]:
        """List tasks of all plans."""
        return self._session.send_page(Call(
            operation="list_tasks", method="GET", path="/api/agent/tasks", result=PageBody[models.Task],
            query=given(page=page, per_page=per_page, status=status, state=state, plan=plan, session_id=session_id),
        ))

    def claim_next_task(
        self, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        plan: str | Unset | None = UNSET, wait_s: float | Unset = UNSET,
    ) -> models.Claimed | None:
        """Claim the best ready task, or wait for one."""
        return self._session.send(Call(
            operation="claim_next_task", method="POST", path="/api/agent/tasks/claim-next", result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s, plan=plan, wait_s=wait_s),
            accepts_key=True,
        ))

    def get_task(self, task: str) -> models.Task:
        """Show a task."""
        return self._session.send(Call(
            operation="get_task", method="GET", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
        ))

    def update_task(
        self, task: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, description: str | Unset | None = UNSET,
        notes: str | Unset | None = UNSET, priority: int | Unset = UNSET, position: int | Unset = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | Unset = UNSET,
        result: object | Unset = UNSET, reason: str | Unset | None = UNSET, claim_token: str | Unset | None = UNSET,
        force: bool | Unset = UNSET,
    ) -> models.Task:
        """Change a task."""
        return self._session.send(Call(
            operation="update_task", method="PATCH", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, notes=notes, priority=priority, position=position, depends_on=depends_on,
                acceptance_criteria=acceptance_criteria, metadata=metadata, status=status, result=result, reason=reason,
                claim_token=claim_token, force=force,
            ),
        ))

    def delete_task(self, task: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """Delete a task."""
        return self._session.send(Call(
            operation="delete_task", method="DELETE", path=fill_path("/api/agent/tasks/{task}", task=task), result=type(None),
            query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def claim_task(
        self, task: str, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Claimed:
        """Claim a task."""
        return self._session.send(Call(
            operation="claim_task", method="POST", path=fill_path("/api/agent/tasks/{task}/claim", task=task), result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s), accepts_key=True,
        ))

    def extend_task_lease(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Task:
        """Extend the lease of a task."""
        return self._session.send(Call(
            operation="extend_task_lease", method="POST", path=fill_path("/api/agent/tasks/{task}/heartbeat", task=task),
            result=models.Task, headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, ttl_s=ttl_s),
        ))

    def release_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, reason: str | Unset | None = UNSET,
    ) -> models.Task:
        """Release a claimed task."""
        return self._session.send(Call(
            operation="release_task", method="POST", path=fill_path("/api/agent/tasks/{task}/release", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, reason=reason), accepts_key=True,
        ))

    def complete_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET, force: bool | Unset = UNSET,
        result: object | Unset = UNSET, notes: str | Unset | None = UNSET, claim_next: bool | Unset = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Ended:
        """Complete a task."""
        return self._session.send(Call(
            operation="complete_task", method="POST", path=fill_path("/api/agent/tasks/{task}/complete", task=task), result=models.Ended,
            headers=given(**{"If-Match": if_match}),
            body=given(
                claim_token=claim_token, force=force, result=result, notes=notes, claim_next=claim_next, session_id=session_id,
                ttl_s=ttl_s,
            ),
            accepts_key=True,
        ))

    def fail_task(
        self, task: str, *, error: str, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
    ) -> models.Task:
        """Mark a task as failed."""
        return self._session.send(Call(
            operation="fail_task", method="POST", path=fill_path("/api/agent/tasks/{task}/fail", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, error=error, result=result), accepts_key=True,
        ))


class AsyncPlansOperations:
    """Operations of `client.plans`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_plans(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "active", "paused", "completed", "archived"] | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Plan]:
        """List plans, newest first."""
        return await self._session.send_page(Call(
            operation="list_plans", method="GET", path="/api/agent/plans", result=PageBody[models.Plan],
            query=given(page=page, per_page=per_page, status=status, org=org, project=project, q=q),
        ))

    async def create_plan(
        self, *, title: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET, slug: str | Unset | None = UNSET,
        status: Literal["draft", "active"] | Unset = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, phases: Sequence[str | inputs.PhaseBody] | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET,
    ) -> models.Plan:
        """Create a plan."""
        return await self._session.send(Call(
            operation="create_plan", method="POST", path="/api/agent/plans", result=models.Plan, headers=given(**{"If-Match": if_match}),
            body=given(
                title=title, description=description, slug=slug, status=status, org=org, project=project, metadata=metadata,
                phases=phases, tasks=tasks,
            ),
            accepts_key=True,
        ))

    async def get_plan_markdown(self, plan: str) -> str:
        """Show a plan as Markdown."""
        return await self._session.send(Call(
            operation="get_plan_markdown", method="GET", path=fill_path("/api/agent/plans/{plan}.md", plan=plan), result=str,
            reader="text", accept="text/markdown",
        ))

    async def get_plan(self, plan: str, *, include: Sequence[Literal["phases", "tasks", "none"]] | Unset = UNSET) -> models.Plan:
        """Show a plan with its phases and tasks."""
        return await self._session.send(Call(
            operation="get_plan", method="GET", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            query=given(include=include),
        ))

    async def update_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, title: str | Unset = UNSET, description: str | Unset | None = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """Change a plan."""
        return await self._session.send(Call(
            operation="update_plan", method="PATCH", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}),
            body=given(title=title, description=description, org=org, project=project, metadata=metadata),
        ))

    async def delete_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> None:
        """Archive a plan."""
        return await self._session.send(Call(
            operation="delete_plan", method="DELETE", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def set_plan_status(
        self, plan: str, *, status: Literal["draft", "active", "paused", "completed", "archived"], if_match: str | Unset = UNSET,
        reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Plan:
        """Start, pause, resume, complete or reopen a plan."""
        return await self._session.send(Call(
            operation="set_plan_status", method="PATCH", path=fill_path("/api/agent/plans/{plan}/status", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    async def archive_plan(self, plan: str, *, if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET) -> models.Plan:
        """Archive a plan with a reason."""
        return await self._session.send(Call(
            operation="archive_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/archive", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(reason=reason), accepts_key=True,
        ))

    async def restore_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> models.Plan:
        """Restore an archived plan."""
        return await self._session.send(Call(
            operation="restore_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/restore", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), accepts_key=True,
        ))

    async def get_plan_graph(self, plan: str, *, format: Literal["json", "mermaid"] | Unset = UNSET) -> models.Graph:
        """Show the dependencies in a plan."""
        return await self._session.send(Call(
            operation="get_plan_graph", method="GET", path=fill_path("/api/agent/plans/{plan}/graph", plan=plan), result=models.Graph,
            query=given(format=format),
        ))

    async def list_plan_events(
        self, plan: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, after: int | Unset = UNSET,
    ) -> AsyncPage[models.Event]:
        """List the changes of a plan."""
        return await self._session.send_page(Call(
            operation="list_plan_events", method="GET", path=fill_path("/api/agent/plans/{plan}/events", plan=plan),
            result=PageBody[models.Event], query=given(page=page, per_page=per_page, after=after),
        ))

    async def list_phases(self, plan: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET) -> AsyncPage[models.Phase]:
        """List the phases of a plan, in their order."""
        return await self._session.send_page(Call(
            operation="list_phases", method="GET", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan),
            result=PageBody[models.Phase], query=given(page=page, per_page=per_page),
        ))

    async def create_phase(
        self, plan: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        key: str | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET,
        position: int | Unset | None = UNSET,
    ) -> models.Phase:
        """Add a phase with its tasks."""
        return await self._session.send(Call(
            operation="create_phase", method="POST", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan), result=models.Phase,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, key=key, depends_on=depends_on, acceptance_criteria=acceptance_criteria,
                metadata=metadata, tasks=tasks, position=position,
            ),
            accepts_key=True,
        ))

    async def get_phase(self, plan: str, phase: str) -> models.Phase:
        """Show a phase with its tasks."""
        return await self._session.send(Call(
            operation="get_phase", method="GET", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase,
        ))

    async def update_phase(
        self, plan: str, phase: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        description: str | Unset | None = UNSET, position: int | Unset = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Phase:
        """Change or move a phase."""
        return await self._session.send(Call(
            operation="update_phase", method="PATCH", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, position=position, depends_on=depends_on, acceptance_criteria=acceptance_criteria,
                metadata=metadata,
            ),
        ))

    async def delete_phase(self, plan: str, phase: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """Delete a phase with its tasks."""
        return await self._session.send(Call(
            operation="delete_phase", method="DELETE", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=type(None), query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def set_phase_status(
        self, plan: str, phase: str, *, status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"],
        if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Phase:
        """Start, complete, skip, hold or reopen a phase."""
        return await self._session.send(Call(
            operation="set_phase_status", method="PATCH",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/status", plan=plan, phase=phase), result=models.Phase,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    async def create_checkpoint(
        self, plan: str, phase: str, *, note: str, if_match: str | Unset = UNSET,
        context: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Checkpoint:
        """Add a checkpoint to a phase."""
        return await self._session.send(Call(
            operation="create_checkpoint", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/checkpoints", plan=plan, phase=phase), result=models.Checkpoint,
            headers=given(**{"If-Match": if_match}), body=given(note=note, context=context), accepts_key=True,
        ))

    async def list_phase_tasks(
        self, plan: str, phase: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
    ) -> AsyncPage[models.Task]:
        """List the tasks of a phase."""
        return await self._session.send_page(Call(
            operation="list_phase_tasks", method="GET",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=PageBody[models.Task],
            query=given(page=page, per_page=per_page, status=status, state=state),
        ))

    async def create_task(
        self, plan: str, phase: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        priority: int | Unset | None = UNSET, notes: str | Unset | None = UNSET, key: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, position: int | Unset | None = UNSET,
    ) -> models.Task:
        """Add a task to a phase."""
        return await self._session.send(Call(
            operation="create_task", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, priority=priority, notes=notes, key=key, depends_on=depends_on,
                acceptance_criteria=acceptance_criteria, metadata=metadata, position=position,
            ),
            accepts_key=True,
        ))

    async def list_tasks(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        plan: str | Unset = UNSET, session_id: str | Unset = UNSET,
    ) -> AsyncPage[models.Task]:
        """List tasks of all plans."""
        return await self._session.send_page(Call(
            operation="list_tasks", method="GET", path="/api/agent/tasks", result=PageBody[models.Task],
            query=given(page=page, per_page=per_page, status=status, state=state, plan=plan, session_id=session_id),
        ))

    async def claim_next_task(
        self, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        plan: str | Unset | None = UNSET, wait_s: float | Unset = UNSET,
    ) -> models.Claimed | None:
        """Claim the best ready task, or wait for one."""
        return await self._session.send(Call(
            operation="claim_next_task", method="POST", path="/api/agent/tasks/claim-next", result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s, plan=plan, wait_s=wait_s),
            accepts_key=True,
        ))

    async def get_task(self, task: str) -> models.Task:
        """Show a task."""
        return await self._session.send(Call(
            operation="get_task", method="GET", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
        ))

    async def update_task(
        self, task: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, description: str | Unset | None = UNSET,
        notes: str | Unset | None = UNSET, priority: int | Unset = UNSET, position: int | Unset = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | Unset = UNSET,
        result: object | Unset = UNSET, reason: str | Unset | None = UNSET, claim_token: str | Unset | None = UNSET,
        force: bool | Unset = UNSET,
    ) -> models.Task:
        """Change a task."""
        return await self._session.send(Call(
            operation="update_task", method="PATCH", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, notes=notes, priority=priority, position=position, depends_on=depends_on,
                acceptance_criteria=acceptance_criteria, metadata=metadata, status=status, result=result, reason=reason,
                claim_token=claim_token, force=force,
            ),
        ))

    async def delete_task(self, task: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """Delete a task."""
        return await self._session.send(Call(
            operation="delete_task", method="DELETE", path=fill_path("/api/agent/tasks/{task}", task=task), result=type(None),
            query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def claim_task(
        self, task: str, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Claimed:
        """Claim a task."""
        return await self._session.send(Call(
            operation="claim_task", method="POST", path=fill_path("/api/agent/tasks/{task}/claim", task=task), result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s), accepts_key=True,
        ))

    async def extend_task_lease(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Task:
        """Extend the lease of a task."""
        return await self._session.send(Call(
            operation="extend_task_lease", method="POST", path=fill_path("/api/agent/tasks/{task}/heartbeat", task=task),
            result=models.Task, headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, ttl_s=ttl_s),
        ))

    async def release_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, reason: str | Unset | None = UNSET,
    ) -> models.Task:
        """Release a claimed task."""
        return await self._session.send(Call(
            operation="release_task", method="POST", path=fill_path("/api/agent/tasks/{task}/release", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, reason=reason), accepts_key=True,
        ))

    async def complete_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET, force: bool | Unset = UNSET,
        result: object | Unset = UNSET, notes: str | Unset | None = UNSET, claim_next: bool | Unset = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Ended:
        """Complete a task."""
        return await self._session.send(Call(
            operation="complete_task", method="POST", path=fill_path("/api/agent/tasks/{task}/complete", task=task), result=models.Ended,
            headers=given(**{"If-Match": if_match}),
            body=given(
                claim_token=claim_token, force=force, result=result, notes=notes, claim_next=claim_next, session_id=session_id,
                ttl_s=ttl_s,
            ),
            accepts_key=True,
        ))

    async def fail_task(
        self, task: str, *, error: str, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
    ) -> models.Task:
        """Mark a task as failed."""
        return await self._session.send(Call(
            operation="fail_task", method="POST", path=fill_path("/api/agent/tasks/{task}/fail", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, error=error, result=result), accepts_key=True,
        ))
