"""Functions that create and change plans over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from tests.conftest import Caller

Json = Mapping[str, object]


def phase(name: str, *tasks: object, **fields: object) -> dict[str, object]:
    """Return the body of a phase. A task is given by its name or its body."""
    return {"name": name, "tasks": list(tasks), **fields}


def task(name: str, **fields: object) -> dict[str, object]:
    """Return the body of a task."""
    return {"name": name, **fields}


async def make_plan(caller: Caller, *phases: object, title: str = "Move house", **fields: object) -> Json:
    """Create an active plan, and return it."""
    response = await caller.post("/api/agent/plans", {"title": title, "status": "active", "phases": list(phases)} | fields)
    assert response.status_code == 201, response.text
    return cast("Json", response.json())


def tasks_of(plan: Json) -> dict[str, Json]:
    """Return the tasks of a plan by their names."""
    phases = cast("Sequence[Json]", plan["phases"])
    return {str(task["name"]): task for phase in phases for task in cast("Sequence[Json]", phase["tasks"])}


def phases_of(plan: Json) -> dict[str, Json]:
    """Return the phases of a plan by their names."""
    return {str(phase["name"]): phase for phase in cast("Sequence[Json]", plan["phases"])}


async def get_json(caller: Caller, path: str) -> Json:
    """Return the JSON at *path*."""
    response = await caller.get(f"/api/agent{path}")
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def set_status(caller: Caller, path: str, status: str, **fields: object) -> Json:
    """Set the status of a plan or phase and return it."""
    response = await caller.send("PATCH", f"/api/agent{path}/status", {"status": status, **fields})
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def claim(caller: Caller, task_id: object, **fields: object) -> Json:
    """Claim a task, and return it with its token."""
    response = await caller.post(f"/api/agent/tasks/{task_id}/claim", fields)
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def claim_next(caller: Caller, **fields: object) -> Json | None:
    """Claim the next task; return None if no task is ready."""
    response = await caller.post("/api/agent/tasks/claim-next", fields)
    assert response.status_code in {200, 204}, response.text
    return cast("Json", response.json()) if response.status_code == 200 else None


async def complete(caller: Caller, claimed_task: Json, **fields: object) -> Json:
    """Complete a claimed task, and return it."""
    response = await caller.post(f"/api/agent/tasks/{claimed_task['id']}/complete", {"claim_token": claimed_task["claim_token"], **fields})
    assert response.status_code == 200, response.text
    return cast("Json", response.json())


async def events_of(caller: Caller, slug: object) -> list[str]:
    """Return the types of a plan's events, oldest first."""
    response = await get_json(caller, f"/plans/{slug}/events?per_page=100")
    return [str(item["type"]) for item in cast("Sequence[Json]", response["data"])]
