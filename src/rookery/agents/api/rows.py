"""What the tables of plans, phases and tasks have in common: how a row is written (D-64)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.agents.models.views import PlanView
from rookery.kernel.http import Route
from rookery.kernel.http.conditional_requests import expected
from rookery.kernel.http.describing import notes_of
from rookery.kernel.http.routes import MIB
from rookery.kernel.preconditions import NoVersion

T = TypeVar("T")

READ, WRITE, WORK = "plans.read", "plans.write", "phases.write"

_LARGE = 500
"""Tasks that take about 30 ms to be shaped; a plan of 10,000 takes half a second, in which nobody else would be served."""


def row(
    line: str,
    handler: Callable[..., Awaitable[Response]],
    needs: str,
    answers: type[BaseModel] | None,
    operation_id: str,
    *,
    summary: str,
    status: int = 200,
    once: bool = False,
    rebuild: Callable[[Request, str], Awaitable[Response]] | None = None,
    spends: bool = True,
    may_be_empty: bool = False,
    max_body: int = MIB,
    tag: str = "Plans",
) -> Route:
    """
    Return one row; *line* is the method and the path.

    Raises:
        ValueError: The row writes, and its handler does not say that it honours If-Match (`by_etag`).
    """
    method, path = line.split()
    if method != "GET" and "If-Match" not in notes_of(handler).reads:
        msg = f"{line} writes, so it must honour If-Match: mark its handler with by_etag (D-64)"
        raise ValueError(msg)
    return Route(
        method=method,
        path=path,
        handler=handler,
        needs=needs,
        status=status,
        answers=answers,
        operation_id=operation_id,
        summary=summary,
        tags=(tag,),
        once=once,
        rebuild=rebuild,
        spends=spends,
        may_be_empty=may_be_empty,
        max_body=max_body,
    )


def require_unconditional(request: Request) -> None:
    """
    Do nothing if the request has no If-Match, or `*`: for writes to an address that has no version.

    Raises:
        NoVersion: It names ETags.
    """
    if expected(request) is not None:
        raise NoVersion(request.url.path)


async def shaped(view: PlanView, shape: Callable[[], T]) -> T:
    """Return what *shape* makes of *view*: of a large plan in a thread, so that others are served meanwhile."""
    inside = sum(len(phase.tasks or ()) for phase in view.phases or ())
    return shape() if inside < _LARGE else await asyncio.to_thread(shape)
