"""Conversion between the models of plans and database rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import cast

import orjson

from rookery.agents.models.plans import Checkpoint, Criterion, Phase, PhaseStatus, Plan, PlanEvent, PlanStatus, Task, TaskClaim, TaskStatus
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Value


def plan_to_row(plan: Plan) -> dict[str, Value]:
    """Return the columns of *plan*."""
    return {
        "id": plan.id,
        "workspace_id": plan.workspace_id,
        "slug": plan.slug,
        "title": plan.title,
        "description": plan.description,
        "status": plan.status.value,
        "org": plan.org,
        "project": plan.project,
        "template": plan.template,
        "template_version": plan.template_version,
        "variables": None if plan.variables is None else to_json_text(plan.variables),
        "metadata": to_json_text(plan.metadata),
        "created_by": plan.created_by,
        "archived_from": None if plan.archived_from is None else plan.archived_from.value,
        "archive_reason": plan.archive_reason,
        "event_seq": plan.event_seq,
        "version": plan.version,
        "created_at": to_micros(plan.created_at),
        "updated_at": to_micros(plan.updated_at),
        "started_at": to_optional_micros(plan.started_at),
        "completed_at": to_optional_micros(plan.completed_at),
        "archived_at": to_optional_micros(plan.archived_at),
    }


def plan_from_row(row: Row) -> Plan:
    """Return the plan of a complete row."""
    archived_from, variables = row.maybe_text("archived_from"), row.maybe_text("variables")
    return Plan(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        slug=row.text("slug"),
        title=row.text("title"),
        description=row.text("description"),
        status=PlanStatus(row.text("status")),
        org=row.maybe_text("org"),
        project=row.maybe_text("project"),
        template=row.maybe_text("template"),
        template_version=row.maybe_text("template_version"),
        variables=None if variables is None else parse_json_object(variables),
        metadata=parse_json_object(row.text("metadata")),
        created_by=row.text("created_by"),
        archived_from=None if archived_from is None else PlanStatus(archived_from),
        archive_reason=row.maybe_text("archive_reason"),
        event_seq=row.integer("event_seq"),
        version=row.integer("version"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
        started_at=get_optional_datetime(row, "started_at"),
        completed_at=get_optional_datetime(row, "completed_at"),
        archived_at=get_optional_datetime(row, "archived_at"),
    )


def phase_to_row(phase: Phase) -> dict[str, Value]:
    """Return the columns of *phase*."""
    return {
        "id": phase.id,
        "workspace_id": phase.workspace_id,
        "plan_id": phase.plan_id,
        "position": phase.position,
        "name": phase.name,
        "description": phase.description,
        "status": phase.status.value,
        "hold_reason": phase.hold_reason,
        "acceptance_criteria": _criteria_to_json(phase.acceptance_criteria),
        "metadata": to_json_text(phase.metadata),
        "version": phase.version,
        "created_at": to_micros(phase.created_at),
        "updated_at": to_micros(phase.updated_at),
        "started_at": to_optional_micros(phase.started_at),
        "completed_at": to_optional_micros(phase.completed_at),
    }


def phase_from_row(row: Row) -> Phase:
    """Return the phase of a complete row."""
    return Phase(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        plan_id=row.text("plan_id"),
        position=row.integer("position"),
        name=row.text("name"),
        description=row.text("description"),
        status=PhaseStatus(row.text("status")),
        hold_reason=row.maybe_text("hold_reason"),
        acceptance_criteria=_criteria_from_json(row.text("acceptance_criteria")),
        metadata=parse_json_object(row.text("metadata")),
        version=row.integer("version"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
        started_at=get_optional_datetime(row, "started_at"),
        completed_at=get_optional_datetime(row, "completed_at"),
    )


def task_to_row(task: Task) -> dict[str, Value]:
    """Return the columns of *task*."""
    claim = task.claim
    return {
        "id": task.id,
        "workspace_id": task.workspace_id,
        "plan_id": task.plan_id,
        "phase_id": task.phase_id,
        "position": task.position,
        "name": task.name,
        "description": task.description,
        "status": task.status.value,
        "hold_reason": task.hold_reason,
        "priority": task.priority,
        "notes": task.notes,
        "result": None if task.result is None else to_json_text(task.result),
        "error": task.error,
        "acceptance_criteria": _criteria_to_json(task.acceptance_criteria),
        "metadata": to_json_text(task.metadata),
        "attempts": task.attempts,
        "claim_token": None if claim is None else claim.token,
        "claim_key_id": None if claim is None else claim.key_id,
        "claim_agent_id": None if claim is None else claim.agent_id,
        "claim_session_id": None if claim is None else claim.session_id,
        "claimed_at": None if claim is None else to_micros(claim.claimed_at),
        "claim_expires_at": None if claim is None else to_micros(claim.expires_at),
        "version": task.version,
        "created_at": to_micros(task.created_at),
        "updated_at": to_micros(task.updated_at),
        "started_at": to_optional_micros(task.started_at),
        "completed_at": to_optional_micros(task.completed_at),
    }


def task_from_row(row: Row) -> Task:
    """Return the task of a complete row."""
    result = row.maybe_text("result")
    return Task(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        plan_id=row.text("plan_id"),
        phase_id=row.text("phase_id"),
        position=row.integer("position"),
        name=row.text("name"),
        description=row.text("description"),
        status=TaskStatus(row.text("status")),
        hold_reason=row.maybe_text("hold_reason"),
        priority=row.integer("priority"),
        notes=row.text("notes"),
        result=None if result is None else cast("object", orjson.loads(result)),
        error=row.maybe_text("error"),
        acceptance_criteria=_criteria_from_json(row.text("acceptance_criteria")),
        metadata=parse_json_object(row.text("metadata")),
        attempts=row.integer("attempts"),
        claim=_claim_from_row(row),
        version=row.integer("version"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
        started_at=get_optional_datetime(row, "started_at"),
        completed_at=get_optional_datetime(row, "completed_at"),
    )


def checkpoint_to_row(checkpoint: Checkpoint) -> dict[str, Value]:
    """Return the columns of *checkpoint*."""
    return {
        "id": checkpoint.id,
        "workspace_id": checkpoint.workspace_id,
        "plan_id": checkpoint.plan_id,
        "phase_id": checkpoint.phase_id,
        "note": checkpoint.note,
        "context": to_json_text(checkpoint.context),
        "key_id": checkpoint.key_id,
        "agent_id": checkpoint.agent_id,
        "created_at": to_micros(checkpoint.created_at),
    }


def checkpoint_from_row(row: Row) -> Checkpoint:
    """Return the checkpoint of a row."""
    return Checkpoint(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        plan_id=row.text("plan_id"),
        phase_id=row.text("phase_id"),
        note=row.text("note"),
        context=parse_json_object(row.text("context")),
        key_id=row.text("key_id"),
        agent_id=row.maybe_text("agent_id"),
        created_at=from_micros(row.integer("created_at")),
    )


def event_to_row(event: PlanEvent) -> dict[str, Value]:
    """Return the columns of *event*."""
    return {
        "plan_id": event.plan_id,
        "workspace_id": event.workspace_id,
        "seq": event.seq,
        "type": event.type,
        "at": to_micros(event.at),
        "key_id": event.key_id,
        "agent_id": event.agent_id,
        "session_id": event.session_id,
        "phase_id": event.phase_id,
        "task_id": event.task_id,
        "data": to_json_text(event.data),
    }


def event_from_row(row: Row) -> PlanEvent:
    """Return the event of a row."""
    return PlanEvent(
        plan_id=row.text("plan_id"),
        workspace_id=row.integer("workspace_id"),
        seq=row.integer("seq"),
        type=row.text("type"),
        at=from_micros(row.integer("at")),
        key_id=row.text("key_id"),
        agent_id=row.maybe_text("agent_id"),
        session_id=row.maybe_text("session_id"),
        phase_id=row.maybe_text("phase_id"),
        task_id=row.maybe_text("task_id"),
        data=parse_json_object(row.text("data")),
    )


def to_json_text(value: object) -> str:
    """Return the JSON text of *value*."""
    return orjson.dumps(value).decode()


def parse_json_object(text: str) -> Mapping[str, object]:
    """Return the JSON object of a text column."""
    return cast("Mapping[str, object]", orjson.loads(text))


def to_optional_micros(at: datetime | None) -> int | None:
    """Return a time as the microseconds of its column."""
    return None if at is None else to_micros(at)


def get_optional_datetime(row: Row, name: str) -> datetime | None:
    """Return the time of a column, or None."""
    count = row.maybe_integer(name)
    return None if count is None else from_micros(count)


def _claim_from_row(row: Row) -> TaskClaim | None:
    token = row.maybe_text("claim_token")
    if token is None:
        return None
    return TaskClaim(
        token=token,
        key_id=row.text("claim_key_id"),
        agent_id=row.maybe_text("claim_agent_id"),
        session_id=row.maybe_text("claim_session_id"),
        claimed_at=from_micros(row.integer("claimed_at")),
        expires_at=from_micros(row.integer("claim_expires_at")),
    )


def _criteria_to_json(criteria: Iterable[Criterion]) -> str:
    return to_json_text([[criterion.text, criterion.checked] for criterion in criteria])


def _criteria_from_json(json_text: str) -> tuple[Criterion, ...]:
    if json_text == "[]":
        return ()
    pairs = cast("list[tuple[str, bool]]", orjson.loads(json_text))
    return tuple(Criterion(text=text, checked=checked) for text, checked in pairs)
