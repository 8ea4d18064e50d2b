"""Helpers for the routes of agent work (D-64)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from rookery.agents.models.views import PlanView
from rookery.kernel.http import Route
from rookery.kernel.http.conditional_requests import read_if_match
from rookery.kernel.http.openapi import get_route_docs
from rookery.kernel.http.operations import BYTES_PER_MIB
from rookery.kernel.preconditions import NotVersioned

T = TypeVar("T")

READ_SCOPE, WRITE_SCOPE, WORK_SCOPE = "plans.read", "plans.write", "phases.write"

_THREAD_TASK_COUNT = 500
"""
Plans with this many tasks are serialised in a thread.

500 tasks take about 30 ms and 10,000 tasks half a second, during which the event loop would serve no other request.
"""


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
    Return a route. *method_and_path* is such as `GET /plans`.

    Raises:
        ValueError: The route writes, and its handler is not marked with `by_etag`.
    """
    method, path = method_and_path.split()
    if method != "GET" and "If-Match" not in get_route_docs(handler).request_headers:
        msg = f"{method_and_path} writes, so it must support If-Match: mark its handler with by_etag (D-64)"
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
    Check that the request has no If-Match other than `*`. Used for writes to URLs without a version.

    Raises:
        NotVersioned: If-Match contains ETags.
    """
    if read_if_match(request) is not None:
        raise NotVersioned(request.url.path)


async def serialize_view(view: PlanView, serialize: Callable[[], T]) -> T:
    """Return the result of *serialize*, which runs in a thread if *view* is large."""
    task_count = sum(len(phase.tasks or ()) for phase in view.phases or ())
    return serialize() if task_count < _THREAD_TASK_COUNT else await asyncio.to_thread(serialize)
