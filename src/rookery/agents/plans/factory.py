"""Creation of a plan with its phases and tasks from a draft, in one transaction (D-60, D-65)."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import SlugTaken
from rookery.agents.models.drafts import PlanDraft
from rookery.agents.models.plans import (
    EventActor,
    Plan,
    PlanStatus,
    TaskStatus,
)
from rookery.agents.models.templates import TemplateSource
from rookery.agents.models.views import PlanView
from rookery.agents.plans.event_log import PlanEventRecorder
from rookery.agents.plans.locking import require_plan_access
from rookery.agents.plans.plan_builder import build_phase, build_task, resolve_dependencies
from rookery.agents.plans.slugs import ANY_PLAN, make_unique_slug, slugify
from rookery.agents.plans.view_builder import build_plan_view
from rookery.agents.store import dependencies, phases, plans, tasks, templates
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory, is_uuid


def create_plan(tx: Tx, caller: Caller, draft: PlanDraft, *, recorder: PlanEventRecorder, ids: IdFactory, now: datetime) -> PlanView:
    """
    Store the plan that *draft* describes, with its phases and tasks, and return it.

    Raises:
        ValidationFailed: A dependency is unknown, ambiguous or part of a cycle, or the slug looks like an id.
        SlugTaken: The slug of the draft is in use.
        PermissionDenied: The org or project is not in the allow-lists of the key.
    """
    plan = Plan(
        id=ids(),
        workspace_id=caller.workspace_id,
        slug=_choose_slug(tx, caller.workspace_id, draft),
        title=draft.title,
        description=draft.description,
        status=draft.status,
        org=draft.org,
        project=draft.project,
        template=None if draft.template is None else draft.template.template.slug,
        template_version=None if draft.template is None else draft.template.version,
        variables=draft.variables,
        metadata=draft.metadata,
        created_by=caller.key_id,
        created_at=now,
        updated_at=now,
        started_at=now if draft.status is PlanStatus.ACTIVE else None,
    )
    require_plan_access(caller, plan)
    new_phases = [build_phase(plan, phase_draft, position, ids=ids, now=now) for position, phase_draft in enumerate(draft.phases, 1)]
    inside = [
        [build_task(phase, task_draft, position, ids=ids, now=now) for position, task_draft in enumerate(phase_draft.tasks, 1)]
        for phase, phase_draft in zip(new_phases, draft.phases, strict=True)
    ]
    depends = resolve_dependencies(draft, new_phases, inside)
    if draft.template is not None and draft.template.source is TemplateSource.SHIPPED:
        templates.record_shipped(tx, draft.template, now)
    plans.add(tx, plan)
    phases.add(tx, new_phases)
    tasks.add(tx, [task for phase_tasks in inside for task in phase_tasks])
    dependencies.add(tx, plan.workspace_id, plan.id, ((item, other) for item, others in depends.items() for other in others))
    data: dict[str, object] = {"title": plan.title, "status": plan.status.value, "phases": len(new_phases), "tasks": sum(map(len, inside))}
    if plan.template is not None:
        data |= {"template": plan.template, "template_version": plan.template_version}
    recorder.record_plan(tx, plan, "created", actor=EventActor.from_caller(caller), at=now, data=data)
    # The view is built from memory: reading a thousand tasks back costs as much as writing them.
    counts = {
        phase.id: {TaskStatus.PENDING.value: len(phase_tasks)} for phase, phase_tasks in zip(new_phases, inside, strict=True) if phase_tasks
    }
    tasks_by_phase = {phase.id: phase_tasks for phase, phase_tasks in zip(new_phases, inside, strict=True)}
    return build_plan_view(
        replace(plan, event_seq=1), new_phases, counts, now, depends_on=depends, tasks_by_phase=tasks_by_phase, checkpoints={}
    )


def _choose_slug(tx: Tx, workspace_id: int, draft: PlanDraft) -> str:
    slug = draft.slug or slugify(draft.title)
    if is_uuid(slug):
        raise ValidationFailed({"slug": ["must not look like an id"]})
    taken_slugs = plans.lock_similar_slugs(tx, workspace_id, slug)
    if draft.slug is not None and slug in taken_slugs:
        raise SlugTaken("plan", slug)
    return slug if draft.slug is not None else make_unique_slug(slug, {*taken_slugs, ANY_PLAN})
