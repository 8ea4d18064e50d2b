"""Responses that several modules of the API share, and the scopes of plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rookery.access.models import Caller
from rookery.agents.models.views import PhaseView, PlanView, TaskView
from rookery.agents.schemas.plan_responses import to_phase_response, to_plan_response, to_task_response
from rookery.kernel.http import Output

T = TypeVar("T")

READ_SCOPE, WRITE_SCOPE, WORK_SCOPE = "plans.read", "plans.write", "phases.write"

_THREAD_TASK_COUNT = 500
"""
Plans with this many tasks are serialised in a thread.

500 tasks take about 30 ms and 10,000 tasks half a second, during which the event loop would serve no other request.
"""


def is_large(view: PlanView) -> bool:
    """Return True if the conversion of the plan takes so long that it runs in a thread."""
    return sum(len(phase.tasks or ()) for phase in view.phases or ()) >= _THREAD_TASK_COUNT


async def convert_view(view: PlanView, convert: Callable[[PlanView], T]) -> T:
    """Return the result of *convert*, which runs in a thread if *view* is large."""
    return await asyncio.to_thread(convert, view) if is_large(view) else convert(view)


def present_plan(caller: Caller, view: PlanView) -> Output:
    """Return a plan with its ETag."""
    return Output(body=to_plan_response(caller, view), version=view.plan.version)


def present_phase(_: Caller, view: PhaseView) -> Output:
    """Return a phase with its ETag."""
    return Output(body=to_phase_response(view), version=view.phase.version)


def present_task(_: Caller, view: TaskView) -> Output:
    """Return a task with its ETag."""
    return Output(body=to_task_response(view), version=view.task.version)
