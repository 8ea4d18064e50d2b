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
from rookery.kernel.http.openapi import get_route_docs
from rookery.kernel.http.routes import BYTES_PER_MIB
from rookery.kernel.preconditions import NotVersioned

T = TypeVar("T")

READ_SCOPE, WRITE_SCOPE, WORK_SCOPE = "plans.read", "plans.write", "phases.write"

_THREAD_TASK_COUNT = 500
"""Tasks that take about 30 ms to be shaped; a plan of 10,000 takes half a second, in which nobody else would be served."""


def make_route(
    method_and_path: str,
    handler: Callable[..., Awaitable[Response]],
    required_scope: str,
    response_model: type[BaseModel] | None,
    operation_id: str,
    *,
    summary: str,
    status: int = 200,
    idempotent: bool = False,
    rebuild_response: Callable[[Request, str], Awaitable[Response]] | None = None,
    rate_limited: bool = True,
    body_optional: bool = False,
    max_body_bytes: int = BYTES_PER_MIB,
    tag: str = "Plans",
) -> Route:
    """
    Return one row; *method_and_path* is the method and the path.

    Raises:
        ValueError: The row writes, and its handler does not say that it honours If-Match (`by_etag`).
    """
    method, path = method_and_path.split()
    if method != "GET" and "If-Match" not in get_route_docs(handler).request_headers:
        msg = f"{method_and_path} writes, so it must honour If-Match: mark its handler with by_etag (D-64)"
        raise ValueError(msg)
    return Route(
        method=method,
        path=path,
        handler=handler,
        required_scope=required_scope,
        status=status,
        response_model=response_model,
        operation_id=operation_id,
        summary=summary,
        tags=(tag,),
        idempotent=idempotent,
        rebuild_response=rebuild_response,
        rate_limited=rate_limited,
        body_optional=body_optional,
        max_body_bytes=max_body_bytes,
    )


def require_unconditional(request: Request) -> None:
    """
    Do nothing if the request has no If-Match, or `*`: for writes to an address that has no version.

    Raises:
        NoVersion: It names ETags.
    """
    if expected(request) is not None:
        raise NotVersioned(request.url.path)


async def serialize_view(view: PlanView, serialize: Callable[[], T]) -> T:
    """Return what *serialize* makes of *view*: of a large plan in a thread, so that others are served meanwhile."""
    inside = sum(len(phase.tasks or ()) for phase in view.phases or ())
    return serialize() if inside < _THREAD_TASK_COUNT else await asyncio.to_thread(serialize)
