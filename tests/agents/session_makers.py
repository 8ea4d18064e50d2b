"""Functions for agent sessions over HTTP, and plans for them."""

from __future__ import annotations

from typing import cast

import httpx2

from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import PlanStatus
from tests.conftest import Caller, Instance
from tests.memory.makers import make_caller

Json = dict[str, object]

SESSIONS = "/api/agent/sessions"


async def make_plan(instance: Instance, *names: str, workspace_id: int | None = None, **fields: object) -> str:
    """Create an active plan of one phase with tasks of *names*, and return its slug."""
    owner = make_caller(workspace_id=workspace_id or instance.workspace_id)
    tasks = tuple(TaskDraft(name=name) for name in names or ("first", "second"))
    draft = PlanDraft(title="Ship it", status=PlanStatus.ACTIVE, phases=(PhaseDraft(name="work", tasks=tasks),), **fields)  # pyright: ignore[reportArgumentType] - fields by their own names
    return (await instance.rookery.agents.plans.create(owner, draft)).plan.slug


async def start_session(caller: Caller, **fields: object) -> Json:
    """Start a session and return the whole response."""
    return parse_body(await caller.post(SESSIONS, {"agent_type": "coder"} | fields), 201)


async def start_session_id(caller: Caller, **fields: object) -> str:
    """Start a session and return its id."""
    return str(get_nested(await start_session(caller, **fields), "session")["id"])


async def get_session(caller: Caller, session_id: str) -> Json:
    """Return a session as GET returns it."""
    return parse_body(await caller.get(f"{SESSIONS}/{session_id}"))


async def end_session(caller: Caller, session_id: str, **fields: object) -> Json:
    """End a session."""
    return parse_body(await caller.post(f"{SESSIONS}/{session_id}/end", fields))


async def append_event(caller: Caller, session_id: str, **fields: object) -> Json:
    """Append an event to a session."""
    return parse_body(await caller.post(f"{SESSIONS}/{session_id}/events", {"message": "hello"} | fields), 201)


def parse_body(response: httpx2.Response, status: int = 200) -> Json:
    """Return the body of a response; fail on another status."""
    assert response.status_code == status, response.text
    return cast("Json", response.json())


def error_of(response: httpx2.Response) -> tuple[int, object]:
    """Return the status and the code of an error response."""
    return response.status_code, response.json()["error"]


def get_nested(body: Json, *names: str) -> Json:
    """Return an object within a response."""
    for name in names:
        body = cast("Json", body[name])
    return body


def get_list(body: Json, name: str = "data") -> list[Json]:
    """Return a list of objects within a response."""
    return cast("list[Json]", body[name])
