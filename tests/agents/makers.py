"""Helpers that make and change plans over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tests.conftest import Caller

Json = Mapping[str, object]


def phase(name: str, *tasks: object, **fields: object) -> dict[str, object]:
    """Return the body of a phase; a task is its name, or its body."""
    return {"name": name, "tasks": list(tasks), **fields}


def task(name: str, **fields: object) -> dict[str, object]:
    """Return the body of a task."""
    return {"name": name, **fields}


async def make_plan(caller: Caller, *phases: object, title: str = "Move house", **fields: object) -> Json:
    """Make an active plan, and return it."""
    answer = await caller.post("/api/agent/plans", {"title": title, "status": "active", "phases": list(phases)} | fields)
    assert answer.status_code == 201, answer.text
    return cast("Json", answer.json())


def tasks_of(plan: Json) -> dict[str, Json]:
    """Return the tasks of a plan by their names."""
    phases = cast("Sequence[Json]", plan["phases"])
    return {str(each["name"]): each for phase in phases for each in cast("Sequence[Json]", phase["tasks"])}


def phases_of(plan: Json) -> dict[str, Json]:
    """Return the phases of a plan by their names."""
    return {str(each["name"]): each for each in cast("Sequence[Json]", plan["phases"])}


async def get_json(caller: Caller, path: str) -> Json:
    """Return the JSON at *path*."""
    answer = await caller.get(f"/api/agent{path}")
    assert answer.status_code == 200, answer.text
    return cast("Json", answer.json())


async def set_status(caller: Caller, path: str, status: str, **fields: object) -> Json:
    """Set the status of a plan or phase and return it."""
    answer = await caller.send("PATCH", f"/api/agent{path}/status", {"status": status, **fields})
    assert answer.status_code == 200, answer.text
    return cast("Json", answer.json())


async def claim(caller: Caller, task_id: object, **fields: object) -> Json:
    """Claim a task, and return it with its token."""
    answer = await caller.post(f"/api/agent/tasks/{task_id}/claim", fields)
    assert answer.status_code == 200, answer.text
    return cast("Json", answer.json())


async def claim_next(caller: Caller, **fields: object) -> Json | None:
    """Claim the next task; return None if no task is ready."""
    answer = await caller.post("/api/agent/tasks/claim-next", fields)
    assert answer.status_code in {200, 204}, answer.text
    return cast("Json", answer.json()) if answer.status_code == 200 else None


async def complete(caller: Caller, claimed: Json, **fields: object) -> Json:
    """Complete a claimed task, and return it."""
    answer = await caller.post(f"/api/agent/tasks/{claimed['id']}/complete", {"claim_token": claimed["claim_token"], **fields})
    assert answer.status_code == 200, answer.text
    return cast("Json", answer.json())


async def events_of(caller: Caller, slug: object) -> list[str]:
    """Return the types of a plan's events, oldest first."""
    answer = await get_json(caller, f"/plans/{slug}/events?per_page=100")
    return [str(each["type"]) for each in cast("Sequence[Json]", answer["data"])]
