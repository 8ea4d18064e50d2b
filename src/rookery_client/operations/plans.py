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
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "active", "paused", "completed", "archived"] | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> Page[models.Plan]:
        """
        List plans without their phases, newest first.

        Requires the scope `plans.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only plans with this status.
            org: The organisation namespace.
            project: The project within the org.
            q: Text to find in the title, slug or description.
        """
        return self._session.send_page(Call(
            operation="list_plans", method="GET", path="/api/agent/plans", result=PageBody[models.Plan],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, org=org, project=project, q=q),
        ))

    def create_plan(
        self, *, title: str, if_match: str | Unset = UNSET, x_session_id: str | Unset = UNSET,
        description: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, slug: str | Unset | None = UNSET,
        status: Literal["draft", "active"] | Unset = UNSET, phases: Sequence[str | inputs.PhaseBody] | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Create a plan with its phases and tasks, in one transaction.

        Requires the scope `plans.write`.

        Args:
            title: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            x_session_id: The agent session that the request belongs to.
            description: A text in Markdown.
            org: The organisation namespace.
            project: The project within the org.
            metadata: A JSON object of your own, at most 16 KiB.
            slug: The name of the plan in URLs, unique in the workspace. Default: made from the title.
            status: Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session. Default: `"draft"`.
            phases: The phases in their order, each as a name or an object with its tasks.
            tasks: Instead of phases: the tasks of one phase with the name Tasks.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_plan", method="POST", path="/api/agent/plans", result=models.Plan,
            headers=given(**{"If-Match": if_match, "X-Session-ID": x_session_id}),
            body=given(
                title=title, description=description, org=org, project=project, metadata=metadata, slug=slug, status=status,
                phases=phases, tasks=tasks,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_plan_markdown(self, plan: str) -> str:
        """
        Return a plan with its phases and tasks as a Markdown document.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
        """
        return self._session.send(Call(
            operation="get_plan_markdown", method="GET", path=fill_path("/api/agent/plans/{plan}.md", plan=plan), result=str,
            reader="text", accept="text/markdown",
        ))

    def get_plan(self, plan: str, *, include: Sequence[Literal["phases", "tasks", "none"]] | Unset = UNSET) -> models.Plan:
        """
        Return a plan with its phases and tasks, even if it is archived.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            include: tasks: phases with their tasks (default); phases: phases without tasks; none: neither.
        """
        return self._session.send(Call(
            operation="get_plan", method="GET", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            query=given(include=include),
        ))

    def update_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, title: str | Unset = UNSET, description: str | Unset | None = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """
        Change the title, description and other fields of a plan. Fields that are left out keep their value.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            title: The name, for people.
            description: A text in Markdown.
            org: The organisation namespace.
            project: The project within the org.
            metadata: A JSON object of your own, at most 16 KiB.
        """
        return self._session.send(Call(
            operation="update_plan", method="PATCH", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}),
            body=given(title=title, description=description, org=org, project=project, metadata=metadata),
        ))

    def delete_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Archive a plan. It is not deleted and can be restored.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_plan", method="DELETE", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def set_plan_status(
        self, plan: str, *, status: Literal["draft", "active", "paused", "completed", "archived"], if_match: str | Unset = UNSET,
        reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Plan:
        """
        Change the status of a plan. If the current status does not allow the change, the response is 409 with the allowed values.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            status: The new status.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            force: Skip the checks that would reject the change. The event records it.
        """
        return self._session.send(Call(
            operation="set_plan_status", method="PATCH", path=fill_path("/api/agent/plans/{plan}/status", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    def archive_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Archive a plan and record the reason. It becomes read-only and can be restored.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="archive_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/archive", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(reason=reason), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def restore_plan(self, plan: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET) -> models.Plan:
        """
        Restore an archived plan to the status that it had before.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="restore_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/restore", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_plan_graph(self, plan: str, *, format: Literal["json", "mermaid"] | Unset = UNSET) -> models.Graph:
        """
        Return the dependencies between phases and tasks as nodes and edges, or as a Mermaid flowchart.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            format: `mermaid` returns the text of a flowchart.
        """
        return self._session.send(Call(
            operation="get_plan_graph", method="GET", path=fill_path("/api/agent/plans/{plan}/graph", plan=plan), result=models.Graph,
            query=given(format=format),
        ))

    def list_plan_events(
        self, plan: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        after: int | Unset = UNSET,
    ) -> Page[models.Event]:
        """
        List the changes of a plan, its phases and its tasks, oldest first.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            after: Only events with a greater seq.
        """
        return self._session.send_page(Call(
            operation="list_plan_events", method="GET", path=fill_path("/api/agent/plans/{plan}/events", plan=plan),
            result=PageBody[models.Event], query=given(cursor=cursor, page=page, per_page=per_page, after=after),
        ))

    def list_phases(
        self, plan: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> Page[models.Phase]:
        """
        List the phases of a plan without their tasks, in their order.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return self._session.send_page(Call(
            operation="list_phases", method="GET", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan),
            result=PageBody[models.Phase], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    def create_phase(
        self, plan: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, key: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET, position: int | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Phase:
        """
        Add a phase to a plan, with its tasks.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            name: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            key: A short name within this request, for use in depends_on.
            depends_on: Phases that must be done first, by id, key, name or position in the plan.
            position: The position, from 1. Later items move down.
            tasks: The tasks, each as a name or an object.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_phase", method="POST", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan), result=models.Phase,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, key=key,
                depends_on=depends_on, position=position, tasks=tasks,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_phase(self, plan: str, phase: str) -> models.Phase:
        """
        Return a phase with its tasks. The path contains its id or its position.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
        """
        return self._session.send(Call(
            operation="get_phase", method="GET", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase,
        ))

    def update_phase(
        self, plan: str, phase: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        description: str | Unset | None = UNSET, acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        position: int | Unset = UNSET,
    ) -> models.Phase:
        """
        Change the name, description, position or dependencies of a phase. Fields that are left out keep their value.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name, for people.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            depends_on: Phases that must be done first, by id, key, name or position in the plan.
            position: The position, from 1. Later items move down.
        """
        return self._session.send(Call(
            operation="update_phase", method="PATCH", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, depends_on=depends_on,
                position=position,
            ),
        ))

    def delete_phase(self, plan: str, phase: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """
        Delete a phase with its tasks. If one of its tasks is claimed, `force` is needed.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            force: Skip the checks that would reject the change. The event records it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_phase", method="DELETE", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=type(None), query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def set_phase_status(
        self, plan: str, phase: str, *, status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"],
        if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Phase:
        """
        Change the status of a phase. If the current status does not allow the change, the response is 409 with the allowed values.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            status: The new status.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            force: Skip the checks that would reject the change. The event records it.
        """
        return self._session.send(Call(
            operation="set_phase_status", method="PATCH",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/status", plan=plan, phase=phase), result=models.Phase,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    def create_checkpoint(
        self, plan: str, phase: str, *, note: str, if_match: str | Unset = UNSET,
        context: Mapping[str, object] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Checkpoint:
        """
        Add a note to a phase. It is shown with the phase.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            note: What has been reached.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            context: A JSON object of your own, at most 16 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_checkpoint", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/checkpoints", plan=plan, phase=phase), result=models.Checkpoint,
            headers=given(**{"If-Match": if_match}), body=given(note=note, context=context), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def list_phase_tasks(
        self, plan: str, phase: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
    ) -> Page[models.Task]:
        """
        List the tasks of a phase, in their order.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            state: Only tasks in this state.
        """
        return self._session.send_page(Call(
            operation="list_phase_tasks", method="GET",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=PageBody[models.Task],
            query=given(cursor=cursor, page=page, per_page=per_page, state=state),
        ))

    def create_task(
        self, plan: str, phase: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, priority: int | Unset | None = UNSET,
        notes: str | Unset | None = UNSET, key: str | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        position: int | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        Add a task to a phase.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            name: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            priority: From 0, the most urgent, to 4, the least urgent.
            notes: A text in Markdown.
            key: A short name within this request, for use in depends_on.
            depends_on: Tasks of the plan that must be done first, by id, key, name or position in the phase.
            position: The position, from 1. Later items move down.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="create_task", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, priority=priority,
                notes=notes, key=key, depends_on=depends_on, position=position,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def list_tasks(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        plan: str | Unset = UNSET, session_id: str | Unset = UNSET,
    ) -> Page[models.Task]:
        """
        List tasks of all plans. `state=ready` lists tasks that can be claimed now, best first.

        Requires the scope `plans.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            state: Only tasks in this state.
            plan: The slug or id of a plan.
            session_id: The session in which the work is done.
        """
        return self._session.send_page(Call(
            operation="list_tasks", method="GET", path="/api/agent/tasks", result=PageBody[models.Task],
            query=given(cursor=cursor, page=page, per_page=per_page, state=state, plan=plan, session_id=session_id),
        ))

    def claim_next_task(
        self, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        plan: str | Unset | None = UNSET, wait_s: float | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Claimed | None:
        """
        Claim the best ready task and return it with its `claim_token`.

        If no task is ready, the response is 204 with the reason in `X-Reason`. `wait_s` waits for one.

        Requires the scope `phases.write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            session_id: The session in which the work is done.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            plan: The slug or id of the plan. `any` or null: all active plans. Default: the plan of the session, or all active plans
                without one.
            wait_s: Seconds to wait for a task to become ready. Default: `0`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="claim_next_task", method="POST", path="/api/agent/tasks/claim-next", result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s, plan=plan, wait_s=wait_s),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_task(self, task: str) -> models.Task:
        """
        Return a task with its claim, if it has one.

        Requires the scope `plans.read`.

        Args:
            task: The id of a task.
        """
        return self._session.send(Call(
            operation="get_task", method="GET", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
        ))

    def update_task(
        self, task: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, priority: int | Unset = UNSET, notes: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET, position: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | Unset = UNSET,
        result: object | Unset = UNSET, reason: str | Unset | None = UNSET, claim_token: str | Unset | None = UNSET,
        force: bool | Unset = UNSET,
    ) -> models.Task:
        """
        Change fields of a task or its status. To change the status of a claimed task, send its `claim_token` or `force`.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name, for people.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            priority: From 0, the most urgent, to 4, the least urgent.
            notes: A text in Markdown.
            depends_on: Tasks of the plan that must be done first, by id, key, name or position in the phase.
            position: The position, from 1. Later items move down.
            status: The new status.
            result: The result of the work: any JSON, at most 64 KiB.
            reason: The reason, for the list of events.
            claim_token: The claim_token that the claim returned.
            force: Skip the checks that would reject the change. The event records it.
        """
        return self._session.send(Call(
            operation="update_task", method="PATCH", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, priority=priority,
                notes=notes, depends_on=depends_on, position=position, status=status, result=result, reason=reason,
                claim_token=claim_token, force=force,
            ),
        ))

    def delete_task(self, task: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """
        Delete a task. If it is claimed, `force` is needed.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            force: Skip the checks that would reject the change. The event records it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="delete_task", method="DELETE", path=fill_path("/api/agent/tasks/{task}", task=task), result=type(None),
            query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    def claim_task(
        self, task: str, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Claimed:
        """
        Claim a task. The response contains the `claim_token` of the lease.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            session_id: The session in which the work is done.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="claim_task", method="POST", path=fill_path("/api/agent/tasks/{task}/claim", task=task), result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def extend_task_lease(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Task:
        """
        Extend the lease of a claimed task.

        Requires the scope `phases.write`. Does not count against the key's rate limit.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
        """
        return self._session.send(Call(
            operation="extend_task_lease", method="POST", path=fill_path("/api/agent/tasks/{task}/heartbeat", task=task),
            result=models.Task, headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, ttl_s=ttl_s), repeatable=True,
        ))

    def release_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, reason: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        End the lease of a task without a result. Others can claim it again.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            reason: The reason, for the list of events.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="release_task", method="POST", path=fill_path("/api/agent/tasks/{task}/release", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, reason=reason), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def complete_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
        notes: str | Unset | None = UNSET, claim_next: bool | Unset = UNSET, ttl_s: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Ended:
        """
        Complete a claimed task with its result. `claim_next` claims the next task in the same request.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token. The next task is claimed in it; by
                default, in the session of the completed task.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            result: The result of the work: any JSON, at most 64 KiB.
            notes: A text in Markdown.
            claim_next: Also claim the best ready task of the same plan, in the same transaction. Default: `false`.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="complete_task", method="POST", path=fill_path("/api/agent/tasks/{task}/complete", task=task), result=models.Ended,
            headers=given(**{"If-Match": if_match}),
            body=given(
                claim_token=claim_token, session_id=session_id, force=force, result=result, notes=notes, claim_next=claim_next,
                ttl_s=ttl_s,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def fail_task(
        self, task: str, *, error: str, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        Mark a claimed task as failed, with the reason. This ends its lease.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            error: What went wrong.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            result: The result of the work: any JSON, at most 64 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="fail_task", method="POST", path=fill_path("/api/agent/tasks/{task}/fail", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, error=error, result=result), accepts_key=True,
            idempotency_key=idempotency_key,
        ))


class AsyncPlansOperations:
    """Operations of `client.plans`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_plans(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["draft", "active", "paused", "completed", "archived"] | Unset = UNSET, org: str | Unset = UNSET,
        project: str | Unset = UNSET, q: str | Unset = UNSET,
    ) -> AsyncPage[models.Plan]:
        """
        List plans without their phases, newest first.

        Requires the scope `plans.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only plans with this status.
            org: The organisation namespace.
            project: The project within the org.
            q: Text to find in the title, slug or description.
        """
        return await self._session.send_page(Call(
            operation="list_plans", method="GET", path="/api/agent/plans", result=PageBody[models.Plan],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, org=org, project=project, q=q),
        ))

    async def create_plan(
        self, *, title: str, if_match: str | Unset = UNSET, x_session_id: str | Unset = UNSET,
        description: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, slug: str | Unset | None = UNSET,
        status: Literal["draft", "active"] | Unset = UNSET, phases: Sequence[str | inputs.PhaseBody] | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Create a plan with its phases and tasks, in one transaction.

        Requires the scope `plans.write`.

        Args:
            title: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            x_session_id: The agent session that the request belongs to.
            description: A text in Markdown.
            org: The organisation namespace.
            project: The project within the org.
            metadata: A JSON object of your own, at most 16 KiB.
            slug: The name of the plan in URLs, unique in the workspace. Default: made from the title.
            status: Tasks of a draft are claimed only on requests for the plan, one of its tasks or its session. Default: `"draft"`.
            phases: The phases in their order, each as a name or an object with its tasks.
            tasks: Instead of phases: the tasks of one phase with the name Tasks.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_plan", method="POST", path="/api/agent/plans", result=models.Plan,
            headers=given(**{"If-Match": if_match, "X-Session-ID": x_session_id}),
            body=given(
                title=title, description=description, org=org, project=project, metadata=metadata, slug=slug, status=status,
                phases=phases, tasks=tasks,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_plan_markdown(self, plan: str) -> str:
        """
        Return a plan with its phases and tasks as a Markdown document.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
        """
        return await self._session.send(Call(
            operation="get_plan_markdown", method="GET", path=fill_path("/api/agent/plans/{plan}.md", plan=plan), result=str,
            reader="text", accept="text/markdown",
        ))

    async def get_plan(self, plan: str, *, include: Sequence[Literal["phases", "tasks", "none"]] | Unset = UNSET) -> models.Plan:
        """
        Return a plan with its phases and tasks, even if it is archived.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            include: tasks: phases with their tasks (default); phases: phases without tasks; none: neither.
        """
        return await self._session.send(Call(
            operation="get_plan", method="GET", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            query=given(include=include),
        ))

    async def update_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, title: str | Unset = UNSET, description: str | Unset | None = UNSET,
        org: str | Unset | None = UNSET, project: str | Unset | None = UNSET, metadata: Mapping[str, object] | Unset | None = UNSET,
    ) -> models.Plan:
        """
        Change the title, description and other fields of a plan. Fields that are left out keep their value.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            title: The name, for people.
            description: A text in Markdown.
            org: The organisation namespace.
            project: The project within the org.
            metadata: A JSON object of your own, at most 16 KiB.
        """
        return await self._session.send(Call(
            operation="update_plan", method="PATCH", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}),
            body=given(title=title, description=description, org=org, project=project, metadata=metadata),
        ))

    async def delete_plan(self, plan: str, *, if_match: str | Unset = UNSET) -> None:
        """
        Archive a plan. It is not deleted and can be restored.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_plan", method="DELETE", path=fill_path("/api/agent/plans/{plan}", plan=plan), result=type(None),
            headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def set_plan_status(
        self, plan: str, *, status: Literal["draft", "active", "paused", "completed", "archived"], if_match: str | Unset = UNSET,
        reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Plan:
        """
        Change the status of a plan. If the current status does not allow the change, the response is 409 with the allowed values.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            status: The new status.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            force: Skip the checks that would reject the change. The event records it.
        """
        return await self._session.send(Call(
            operation="set_plan_status", method="PATCH", path=fill_path("/api/agent/plans/{plan}/status", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    async def archive_plan(
        self, plan: str, *, if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Plan:
        """
        Archive a plan and record the reason. It becomes read-only and can be restored.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="archive_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/archive", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), body=given(reason=reason), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def restore_plan(self, plan: str, *, if_match: str | Unset = UNSET, idempotency_key: str | Unset = UNSET) -> models.Plan:
        """
        Restore an archived plan to the status that it had before.

        Requires the scope `plans.write`.

        Args:
            plan: The id or the slug of a plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="restore_plan", method="POST", path=fill_path("/api/agent/plans/{plan}/restore", plan=plan), result=models.Plan,
            headers=given(**{"If-Match": if_match}), accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_plan_graph(self, plan: str, *, format: Literal["json", "mermaid"] | Unset = UNSET) -> models.Graph:
        """
        Return the dependencies between phases and tasks as nodes and edges, or as a Mermaid flowchart.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            format: `mermaid` returns the text of a flowchart.
        """
        return await self._session.send(Call(
            operation="get_plan_graph", method="GET", path=fill_path("/api/agent/plans/{plan}/graph", plan=plan), result=models.Graph,
            query=given(format=format),
        ))

    async def list_plan_events(
        self, plan: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        after: int | Unset = UNSET,
    ) -> AsyncPage[models.Event]:
        """
        List the changes of a plan, its phases and its tasks, oldest first.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            after: Only events with a greater seq.
        """
        return await self._session.send_page(Call(
            operation="list_plan_events", method="GET", path=fill_path("/api/agent/plans/{plan}/events", plan=plan),
            result=PageBody[models.Event], query=given(cursor=cursor, page=page, per_page=per_page, after=after),
        ))

    async def list_phases(
        self, plan: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
    ) -> AsyncPage[models.Phase]:
        """
        List the phases of a plan without their tasks, in their order.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
        """
        return await self._session.send_page(Call(
            operation="list_phases", method="GET", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan),
            result=PageBody[models.Phase], query=given(cursor=cursor, page=page, per_page=per_page),
        ))

    async def create_phase(
        self, plan: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, key: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET, position: int | Unset | None = UNSET,
        tasks: Sequence[str | inputs.TaskBody] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Phase:
        """
        Add a phase to a plan, with its tasks.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            name: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            key: A short name within this request, for use in depends_on.
            depends_on: Phases that must be done first, by id, key, name or position in the plan.
            position: The position, from 1. Later items move down.
            tasks: The tasks, each as a name or an object.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_phase", method="POST", path=fill_path("/api/agent/plans/{plan}/phases", plan=plan), result=models.Phase,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, key=key,
                depends_on=depends_on, position=position, tasks=tasks,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_phase(self, plan: str, phase: str) -> models.Phase:
        """
        Return a phase with its tasks. The path contains its id or its position.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
        """
        return await self._session.send(Call(
            operation="get_phase", method="GET", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase,
        ))

    async def update_phase(
        self, plan: str, phase: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET,
        description: str | Unset | None = UNSET, acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        position: int | Unset = UNSET,
    ) -> models.Phase:
        """
        Change the name, description, position or dependencies of a phase. Fields that are left out keep their value.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name, for people.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            depends_on: Phases that must be done first, by id, key, name or position in the plan.
            position: The position, from 1. Later items move down.
        """
        return await self._session.send(Call(
            operation="update_phase", method="PATCH", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=models.Phase, headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, depends_on=depends_on,
                position=position,
            ),
        ))

    async def delete_phase(self, plan: str, phase: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """
        Delete a phase with its tasks. If one of its tasks is claimed, `force` is needed.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            force: Skip the checks that would reject the change. The event records it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_phase", method="DELETE", path=fill_path("/api/agent/plans/{plan}/phases/{phase}", plan=plan, phase=phase),
            result=type(None), query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def set_phase_status(
        self, plan: str, phase: str, *, status: Literal["pending", "in_progress", "completed", "skipped", "on_hold"],
        if_match: str | Unset = UNSET, reason: str | Unset | None = UNSET, force: bool | Unset = UNSET,
    ) -> models.Phase:
        """
        Change the status of a phase. If the current status does not allow the change, the response is 409 with the allowed values.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            status: The new status.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            reason: The reason, for the list of events.
            force: Skip the checks that would reject the change. The event records it.
        """
        return await self._session.send(Call(
            operation="set_phase_status", method="PATCH",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/status", plan=plan, phase=phase), result=models.Phase,
            headers=given(**{"If-Match": if_match}), body=given(status=status, reason=reason, force=force),
        ))

    async def create_checkpoint(
        self, plan: str, phase: str, *, note: str, if_match: str | Unset = UNSET,
        context: Mapping[str, object] | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Checkpoint:
        """
        Add a note to a phase. It is shown with the phase.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            note: What has been reached.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            context: A JSON object of your own, at most 16 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_checkpoint", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/checkpoints", plan=plan, phase=phase), result=models.Checkpoint,
            headers=given(**{"If-Match": if_match}), body=given(note=note, context=context), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def list_phase_tasks(
        self, plan: str, phase: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
    ) -> AsyncPage[models.Task]:
        """
        List the tasks of a phase, in their order.

        Requires the scope `plans.read`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            state: Only tasks in this state.
        """
        return await self._session.send_page(Call(
            operation="list_phase_tasks", method="GET",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=PageBody[models.Task],
            query=given(cursor=cursor, page=page, per_page=per_page, state=state),
        ))

    async def create_task(
        self, plan: str, phase: str, *, name: str, if_match: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, priority: int | Unset | None = UNSET,
        notes: str | Unset | None = UNSET, key: str | Unset | None = UNSET, depends_on: Sequence[str | int] | Unset | None = UNSET,
        position: int | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        Add a task to a phase.

        Requires the scope `phases.write`.

        Args:
            plan: The id or the slug of a plan.
            phase: The id of a phase, or its position in the plan.
            name: The name, for people.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            priority: From 0, the most urgent, to 4, the least urgent.
            notes: A text in Markdown.
            key: A short name within this request, for use in depends_on.
            depends_on: Tasks of the plan that must be done first, by id, key, name or position in the phase.
            position: The position, from 1. Later items move down.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="create_task", method="POST",
            path=fill_path("/api/agent/plans/{plan}/phases/{phase}/tasks", plan=plan, phase=phase), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, priority=priority,
                notes=notes, key=key, depends_on=depends_on, position=position,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def list_tasks(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        state: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold", "ready", "blocked"] | Unset = UNSET,
        plan: str | Unset = UNSET, session_id: str | Unset = UNSET,
    ) -> AsyncPage[models.Task]:
        """
        List tasks of all plans. `state=ready` lists tasks that can be claimed now, best first.

        Requires the scope `plans.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            state: Only tasks in this state.
            plan: The slug or id of a plan.
            session_id: The session in which the work is done.
        """
        return await self._session.send_page(Call(
            operation="list_tasks", method="GET", path="/api/agent/tasks", result=PageBody[models.Task],
            query=given(cursor=cursor, page=page, per_page=per_page, state=state, plan=plan, session_id=session_id),
        ))

    async def claim_next_task(
        self, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        plan: str | Unset | None = UNSET, wait_s: float | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Claimed | None:
        """
        Claim the best ready task and return it with its `claim_token`.

        If no task is ready, the response is 204 with the reason in `X-Reason`. `wait_s` waits for one.

        Requires the scope `phases.write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            session_id: The session in which the work is done.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            plan: The slug or id of the plan. `any` or null: all active plans. Default: the plan of the session, or all active plans
                without one.
            wait_s: Seconds to wait for a task to become ready. Default: `0`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="claim_next_task", method="POST", path="/api/agent/tasks/claim-next", result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s, plan=plan, wait_s=wait_s),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_task(self, task: str) -> models.Task:
        """
        Return a task with its claim, if it has one.

        Requires the scope `plans.read`.

        Args:
            task: The id of a task.
        """
        return await self._session.send(Call(
            operation="get_task", method="GET", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
        ))

    async def update_task(
        self, task: str, *, if_match: str | Unset = UNSET, name: str | Unset = UNSET, description: str | Unset | None = UNSET,
        acceptance_criteria: Sequence[str | inputs.CriterionBody] | Unset | None = UNSET,
        metadata: Mapping[str, object] | Unset | None = UNSET, priority: int | Unset = UNSET, notes: str | Unset | None = UNSET,
        depends_on: Sequence[str | int] | Unset | None = UNSET, position: int | Unset = UNSET,
        status: Literal["pending", "in_progress", "completed", "skipped", "failed", "on_hold"] | Unset = UNSET,
        result: object | Unset = UNSET, reason: str | Unset | None = UNSET, claim_token: str | Unset | None = UNSET,
        force: bool | Unset = UNSET,
    ) -> models.Task:
        """
        Change fields of a task or its status. To change the status of a claimed task, send its `claim_token` or `force`.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            name: The name, for people.
            description: A text in Markdown.
            acceptance_criteria: Conditions that the result must meet, each as a text, or as an object with `checked`.
            metadata: A JSON object of your own, at most 16 KiB.
            priority: From 0, the most urgent, to 4, the least urgent.
            notes: A text in Markdown.
            depends_on: Tasks of the plan that must be done first, by id, key, name or position in the phase.
            position: The position, from 1. Later items move down.
            status: The new status.
            result: The result of the work: any JSON, at most 64 KiB.
            reason: The reason, for the list of events.
            claim_token: The claim_token that the claim returned.
            force: Skip the checks that would reject the change. The event records it.
        """
        return await self._session.send(Call(
            operation="update_task", method="PATCH", path=fill_path("/api/agent/tasks/{task}", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(
                name=name, description=description, acceptance_criteria=acceptance_criteria, metadata=metadata, priority=priority,
                notes=notes, depends_on=depends_on, position=position, status=status, result=result, reason=reason,
                claim_token=claim_token, force=force,
            ),
        ))

    async def delete_task(self, task: str, *, force: bool | Unset = UNSET, if_match: str | Unset = UNSET) -> None:
        """
        Delete a task. If it is claimed, `force` is needed.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            force: Skip the checks that would reject the change. The event records it.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="delete_task", method="DELETE", path=fill_path("/api/agent/tasks/{task}", task=task), result=type(None),
            query=given(force=force), headers=given(**{"If-Match": if_match}), reader="nothing",
        ))

    async def claim_task(
        self, task: str, *, if_match: str | Unset = UNSET, session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Claimed:
        """
        Claim a task. The response contains the `claim_token` of the lease.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            session_id: The session in which the work is done.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="claim_task", method="POST", path=fill_path("/api/agent/tasks/{task}/claim", task=task), result=models.Claimed,
            headers=given(**{"If-Match": if_match}), body=given(session_id=session_id, ttl_s=ttl_s), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def extend_task_lease(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, ttl_s: int | Unset = UNSET,
    ) -> models.Task:
        """
        Extend the lease of a claimed task.

        Requires the scope `phases.write`. Does not count against the key's rate limit.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
        """
        return await self._session.send(Call(
            operation="extend_task_lease", method="POST", path=fill_path("/api/agent/tasks/{task}/heartbeat", task=task),
            result=models.Task, headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, ttl_s=ttl_s), repeatable=True,
        ))

    async def release_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, reason: str | Unset | None = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        End the lease of a task without a result. Others can claim it again.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            reason: The reason, for the list of events.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="release_task", method="POST", path=fill_path("/api/agent/tasks/{task}/release", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, reason=reason), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def complete_task(
        self, task: str, *, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
        notes: str | Unset | None = UNSET, claim_next: bool | Unset = UNSET, ttl_s: int | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Ended:
        """
        Complete a claimed task with its result. `claim_next` claims the next task in the same request.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token. The next task is claimed in it; by
                default, in the session of the completed task.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            result: The result of the work: any JSON, at most 64 KiB.
            notes: A text in Markdown.
            claim_next: Also claim the best ready task of the same plan, in the same transaction. Default: `false`.
            ttl_s: The duration of the lease in seconds, from now. Default: `900`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="complete_task", method="POST", path=fill_path("/api/agent/tasks/{task}/complete", task=task), result=models.Ended,
            headers=given(**{"If-Match": if_match}),
            body=given(
                claim_token=claim_token, session_id=session_id, force=force, result=result, notes=notes, claim_next=claim_next,
                ttl_s=ttl_s,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def fail_task(
        self, task: str, *, error: str, if_match: str | Unset = UNSET, claim_token: str | Unset | None = UNSET,
        session_id: str | Unset | None = UNSET, force: bool | Unset = UNSET, result: object | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Task:
        """
        Mark a claimed task as failed, with the reason. This ends its lease.

        Requires the scope `phases.write`.

        Args:
            task: The id of a task.
            error: What went wrong.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            claim_token: The claim_token that the claim returned.
            session_id: The session of the claim. It proves the claim instead of claim_token.
            force: Skip the checks that would reject the change. The event records it. Default: `false`.
            result: The result of the work: any JSON, at most 64 KiB.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="fail_task", method="POST", path=fill_path("/api/agent/tasks/{task}/fail", task=task), result=models.Task,
            headers=given(**{"If-Match": if_match}),
            body=given(claim_token=claim_token, session_id=session_id, force=force, error=error, result=result), accepts_key=True,
            idempotency_key=idempotency_key,
        ))
