"""Sessions as agents ask for them, over HTTP, and plans for them to work on."""

from __future__ import annotations

from typing import cast

import httpx2

from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import PlanStatus
from tests.conftest import Caller, House
from tests.memory.makers import make_caller

Json = dict[str, object]

SESSIONS = "/api/agent/sessions"


async def make_plan(house: House, *names: str, workspace_id: int | None = None, **fields: object) -> str:
    """Make an active plan of one phase with tasks of *names*, and return its slug."""
    owner = make_caller(workspace_id=workspace_id or house.workspace_id)
    tasks = tuple(TaskDraft(name=name) for name in names or ("first", "second"))
    draft = PlanDraft(title="Ship it", status=PlanStatus.ACTIVE, phases=(PhaseDraft(name="work", tasks=tasks),), **fields)  # pyright: ignore[reportArgumentType] - fields by their own names
    return (await house.rookery.agents.plans.create(owner, draft)).plan.slug


async def start(caller: Caller, **fields: object) -> Json:
    """Start a session and return the whole answer."""
    return told(await caller.post(SESSIONS, {"agent_type": "coder"} | fields), 201)


async def started(caller: Caller, **fields: object) -> str:
    """Start a session and return its id."""
    return str(inside(await start(caller, **fields), "session")["id"])


async def show(caller: Caller, session_id: str) -> Json:
    """Return a session as GET gives it."""
    return told(await caller.get(f"{SESSIONS}/{session_id}"))


async def end(caller: Caller, session_id: str, **fields: object) -> Json:
    """End a session."""
    return told(await caller.post(f"{SESSIONS}/{session_id}/end", fields))


async def note(caller: Caller, session_id: str, **fields: object) -> Json:
    """Write an event down."""
    return told(await caller.post(f"{SESSIONS}/{session_id}/events", {"message": "hello"} | fields), 201)


def told(answer: httpx2.Response, status: int = 200) -> Json:
    """Return the body of an answer that must have that status."""
    assert answer.status_code == status, answer.text
    return cast("Json", answer.json())


def refused(answer: httpx2.Response) -> tuple[int, object]:
    """Return the status and the code of a refusal."""
    return answer.status_code, answer.json()["error"]


def inside(body: Json, *names: str) -> Json:
    """Return an object within an answer."""
    for name in names:
        body = cast("Json", body[name])
    return body


def items(body: Json, name: str = "data") -> list[Json]:
    """Return a list of objects within an answer."""
    return cast("list[Json]", body[name])
