"""
Creation of a plan with its phases and tasks from a draft: slugs, references, dependencies, and the checks of a draft.

The graph of dependencies has a start and an end for each phase. A task lies between the start and the end of its phase, and a phase starts
after the ends of the phases that it depends on. This also finds cycles across both kinds of dependencies: a task that depends on a task of
a phase that in turn depends on the phase of the first task.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from graphlib import CycleError, TopologicalSorter
from itertools import count

from rookery.access.models import Caller
from rookery.agents.errors import SlugTaken
from rookery.agents.models.drafts import MAX_SLUG_LENGTH, PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import (
    MAX_PHASES_PER_PLAN,
    MAX_TASKS_PER_PLAN,
    EventActor,
    Phase,
    PhaseSettings,
    PhaseStatus,
    Plan,
    PlanSettings,
    PlanStatus,
    Task,
    TaskSettings,
    TaskStatus,
)
from rookery.agents.models.templates import TemplateSource
from rookery.agents.models.views import PlanView
from rookery.agents.plans.plan_events import PlanEventRecorder
from rookery.agents.plans.transitions import require_plan_access
from rookery.agents.plans.views import build_plan_view
from rookery.agents.store import dependencies, plans, templates
from rookery.agents.store.tables import PHASES, PLANS, TASKS
from rookery.kernel.db import Tx
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.ids import IdFactory, is_uuid
from rookery.kernel.projections import copy_fields

ANY_PLAN = "any"
"""The value that stands for any active plan in a request. A slug made from a title is never this word."""

_SEPARATORS = re.compile(r"[^a-z0-9]+")


def slugify(title: str, *, fallback: str = "plan") -> str:
    """Return a slug for *title*: ASCII letters and digits without accents, at most 80 characters. Other scripts are dropped."""
    ascii_title = unicodedata.normalize("NFKD", title.casefold()).encode("ascii", "ignore").decode()
    slug = _SEPARATORS.sub("-", ascii_title).strip("-")[:MAX_SLUG_LENGTH].rstrip("-")
    # A URL takes a slug or an id, so a slug must not look like an id.
    return fallback if not slug else f"{fallback}-{slug}" if is_uuid(slug) else slug


def make_unique_slug(slug: str, taken_slugs: Collection[str]) -> str:
    """Return *slug* if it is free, else the slug with the lowest free suffix from -2 on."""
    number, candidate = 1, slug
    while candidate in taken_slugs:
        number += 1
        candidate = f"{slug}-{number}"
    return candidate


class RefIndex:
    """An index that resolves a reference by id, position, name or key."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._ids_by_position: dict[int, str] = {}
        self._ids_by_name: dict[str, list[str]] = defaultdict(list)

    def add(self, id: str, position: int, names: Sequence[str | None]) -> None:
        """Add an item. A name shared by several items is ambiguous and finds none of them."""
        self._ids.add(id)
        self._ids_by_position[position] = id
        for name in {name for name in names if name}:
            self._ids_by_name[name].append(id)

    def find(self, ref: str | int) -> str | None:
        """Return the id of the item that *ref* names, or None if it is unknown or ambiguous."""
        if isinstance(ref, int):
            return self._ids_by_position.get(ref)
        if ref in self._ids:
            return ref
        ids = self._ids_by_name.get(ref, [])
        if len(ids) == 1:
            return ids[0]
        return self._ids_by_position.get(int(ref)) if not ids and ref.isascii() and ref.isdigit() and len(ref) < 10 else None


Dependencies = Mapping[str, Sequence[str]]
"""Maps an id to the ids that must be done before it."""


def find_cycle(phases: Iterable[str], tasks: Mapping[str, str], dependencies: Dependencies) -> list[str] | None:
    """
    Return the ids of a cycle, each depending on the next, or None if there is no cycle.

    Args:
        tasks: The phase id of each task id.
        dependencies: Tasks depend on tasks, phases on phases.
    """
    sorter: TopologicalSorter[tuple[str, bool]] = TopologicalSorter()
    for phase in phases:
        sorter.add((phase, True), (phase, False))
        for other in dependencies.get(phase, ()):
            sorter.add((phase, False), (other, True))
    for task, phase in tasks.items():
        sorter.add((task, True), (phase, False), *((other, True) for other in dependencies.get(task, ())))
        sorter.add((phase, True), (task, True))
    try:
        sorter.prepare()
    except CycleError as error:
        nodes: list[tuple[str, bool]] = error.args[1]
        return list(dict.fromkeys(node for node, _ in reversed(nodes)))
    return None


def validate_size(draft: PlanDraft) -> None:
    """
    Check that *draft* is within the limits of a plan.

    Raises:
        ValidationFailed: The draft has too many phases or tasks.
    """
    if len(draft.phases) > MAX_PHASES_PER_PLAN:
        raise ValidationFailed({"phases": [f"must have at most {MAX_PHASES_PER_PLAN} items, not {len(draft.phases)}"]})
    task_count = sum(len(phase.tasks) for phase in draft.phases)
    if task_count > MAX_TASKS_PER_PLAN:
        raise ValidationFailed({"phases": [f"must have at most {MAX_TASKS_PER_PLAN:,} tasks in total, not {task_count:,}"]})


def validate_dependencies(draft: PlanDraft) -> None:
    """
    Check the dependencies of *draft* without storing anything.

    Raises:
        ValidationFailed: A dependency is unknown, ambiguous or part of a cycle.
    """
    ids, now = map(str, count(1)), datetime.min.replace(tzinfo=UTC)
    placeholder = Plan(
        id="0",
        workspace_id=0,
        slug="",
        title=draft.title,
        status=draft.status,
        created_by="",
        created_at=now,
        updated_at=now,
    )
    new_phases = [
        build_phase(placeholder, phase_draft, position, ids=ids.__next__, now=now) for position, phase_draft in enumerate(draft.phases, 1)
    ]
    inside = [
        [build_task(phase, task_draft, position, ids=ids.__next__, now=now) for position, task_draft in enumerate(phase_draft.tasks, 1)]
        for phase, phase_draft in zip(new_phases, draft.phases, strict=True)
    ]
    resolve_dependencies(draft, new_phases, inside)


def build_phase(plan: Plan, draft: PhaseDraft, position: int, *, ids: IdFactory, now: datetime) -> Phase:
    """Return the phase of *plan* that *draft* describes."""
    return Phase(
        **copy_fields(PhaseSettings, draft),
        id=ids(),
        workspace_id=plan.workspace_id,
        plan_id=plan.id,
        position=position,
        status=PhaseStatus.PENDING,
        created_at=now,
        updated_at=now,
    )


def build_task(phase: Phase, draft: TaskDraft, position: int, *, ids: IdFactory, now: datetime) -> Task:
    """Return the task of *phase* that *draft* describes."""
    return Task(
        **copy_fields(TaskSettings, draft),
        id=ids(),
        workspace_id=phase.workspace_id,
        plan_id=phase.plan_id,
        phase_id=phase.id,
        position=position,
        status=TaskStatus.PENDING,
        created_at=now,
        updated_at=now,
    )


def resolve_refs(refs: Sequence[str | int], *indexes: RefIndex, field: str) -> list[str]:
    """
    Return the ids that *refs* name, without duplicates. The first of *indexes* that finds a reference wins.

    Raises:
        ValidationFailed: A reference is unknown or ambiguous.
    """
    ids = dict[str, None]()
    for ref in refs:
        id = next((match for names in indexes if (match := names.find(ref)) is not None), None)
        if id is None:
            raise ValidationFailed(
                {field: [f"{_shorten(ref)}: not found in this plan, or the name is ambiguous; use an id, key, unique name or position"]}
            )
        ids[id] = None
    return list(ids)


def require_acyclic(
    names_by_id: Mapping[str, str], phase_ids: Mapping[str, str], depends_on: Mapping[str, Sequence[str]], *, field: str
) -> None:
    """
    Check that the dependencies have no cycle.

    Args:
        names_by_id: The names of phases and tasks by id.
        phase_ids: The phase id of each task id.

    Raises:
        ValidationFailed: There is a cycle. The message names its members.
    """
    cycle = find_cycle([id for id in names_by_id if id not in phase_ids], phase_ids, depends_on)
    if cycle is not None:
        names = " → ".join(
            _shorten(names_by_id[id]) for id in [*cycle[:8], *(["…"] if len(cycle) > 8 else []), cycle[0]] if id in names_by_id
        )
        raise ValidationFailed({field: [f"must not form a cycle: {names}"]})


def resolve_dependencies(plan: PlanDraft, plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> dict[str, list[str]]:
    """Return the ids that each phase and task depends on, by its id. Raise ValidationFailed for an unknown one or a cycle."""
    drafts = plan.phases
    phase_index, plan_task_index, task_indexes = RefIndex(), RefIndex(), list[RefIndex]()
    for draft, phase, listed in zip(drafts, plan_phases, tasks_by_phase, strict=True):
        phase_index.add(phase.id, phase.position, [draft.key, draft.name])
        task_index = RefIndex()
        for task_draft, task in zip(draft.tasks, listed, strict=True):
            task_index.add(task.id, task.position, [task_draft.key, task_draft.name])
            plan_task_index.add(task.id, -1, [task_draft.key, task_draft.name])
        task_indexes.append(task_index)
    depends = dict[str, list[str]]()
    for index, (draft, phase, listed) in enumerate(zip(drafts, plan_phases, tasks_by_phase, strict=True)):
        if draft.depends_on:
            depends[phase.id] = resolve_refs(draft.depends_on, phase_index, field=f"phases.{index}.depends_on")
        for number, (task_draft, task) in enumerate(zip(draft.tasks, listed, strict=True)):
            if task_draft.depends_on:
                field = f"tasks.{number}.depends_on" if plan.is_flat else f"phases.{index}.tasks.{number}.depends_on"
                depends[task.id] = resolve_refs(task_draft.depends_on, task_indexes[index], plan_task_index, field=field)
    if depends:
        phase_ids = {task.id: task.phase_id for phase_tasks in tasks_by_phase for task in phase_tasks}
        require_acyclic(dict(_iter_names(plan_phases, tasks_by_phase)), phase_ids, depends, field="depends_on")
    return depends


def _iter_names(plan_phases: Sequence[Phase], tasks_by_phase: Sequence[Sequence[Task]]) -> Iterator[tuple[str, str]]:
    for phase, listed in zip(plan_phases, tasks_by_phase, strict=True):
        yield phase.id, phase.name
        yield from ((task.id, task.name) for task in listed)


def _shorten(ref: str | int) -> str:
    text = str(ref)
    return repr(text if len(text) <= 64 else f"{text[:64]}…")


def create_plan(tx: Tx, caller: Caller, draft: PlanDraft, *, recorder: PlanEventRecorder, ids: IdFactory, now: datetime) -> PlanView:
    """
    Store the plan that *draft* describes, with its phases and tasks, and return it.

    Raises:
        ValidationFailed: A dependency is unknown, ambiguous or part of a cycle, or the slug looks like an id.
        SlugTaken: The slug of the draft is in use.
        PermissionDenied: The org or project is not in the allow-lists of the key.
    """
    plan = Plan(
        **copy_fields(PlanSettings, draft),
        id=ids(),
        workspace_id=caller.workspace_id,
        slug=_choose_slug(tx, caller.workspace_id, draft),
        status=draft.status,
        template=None if draft.template is None else draft.template.template.slug,
        template_version=None if draft.template is None else draft.template.version,
        variables=draft.variables,
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
    PLANS.insert(tx, plan)
    PHASES.insert(tx, *new_phases)
    TASKS.insert(tx, *[task for phase_tasks in inside for task in phase_tasks])
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
