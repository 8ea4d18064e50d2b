"""The map of the space of memories: points for the canvas, and its clusters as a list."""

from __future__ import annotations

import json
from typing import Literal, cast

from starlette.responses import Response

from rookery.console.rendering import PAGE_HEADERS
from rookery.console.views.memory_filters import list_types
from rookery.console.visit import View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET
from rookery_client.generated import models

_PEEK_CHARS = 240
_SHOWN_ERRORS = frozenset({403, 422, 503})

Grouping = Literal["project", "type"]


async def show_map(visit: Visit) -> Response:
    """Show the map of the memories that the key may see, and the list of its clusters."""
    result, problem = None, ""
    try:
        result = await _draw(visit)
    except ApiError as error:
        if error.status not in _SHOWN_ERRORS:
            raise
        problem = error.message
    fields = {name: visit.query(name) for name in ("by", "type", "project", "agent")}
    return visit.render(
        "memories/map.html",
        result=result,
        problem=problem,
        fields=fields,
        query_string=visit.request.url.query,
        types=list_types(fields["type"]),
    )


async def send_points(visit: Visit) -> Response:
    """Send the points of the map to its script."""
    return _send_json((await _draw(visit)).model_dump_json())


async def send_peek(visit: Visit) -> Response:
    """Send the start of a memory to the script of the map."""
    memory = await visit.client.memory.get_memory(visit.path("memory_id"))
    content = memory.content if len(memory.content) <= _PEEK_CHARS else memory.content[:_PEEK_CHARS] + "…"
    place = f"{memory.type}, {memory.project}" if memory.project else memory.type
    return _send_json(json.dumps({"text": f"{content} ({place})"}))


async def _draw(visit: Visit) -> models.MemoryMap:
    return await visit.client.memory.get_memory_map(
        by=cast("Grouping", visit.query("by")) or UNSET,
        type=visit.query("type") or UNSET,
        project=visit.query("project") or UNSET,
        agent_id=visit.query("agent") or UNSET,
    )


def _send_json(text: str) -> Response:
    return Response(text, headers=PAGE_HEADERS, media_type="application/json")


VIEWS = (
    View("GET", "/memories/map", show_map, "brain:read"),
    View("GET", "/memories/map/points", send_points, "brain:read"),
    View("GET", "/memories/{memory_id}/peek", send_peek, "brain:read"),
)
