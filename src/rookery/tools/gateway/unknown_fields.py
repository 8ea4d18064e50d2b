"""
Fields of tool servers that no protocol revision defines, such as a `category` in the annotations of a tool.

The revisions allow further fields, and the SDK drops them: it serialises each result by its models. They are added again afterwards.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

from mcp.server.context import CallNext, HandlerResult

from rookery.tools.gateway.mcp_requests import HandlerContext
from rookery.tools.models import JsonObject

_REVISION_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope", "nextCursor"})
"""Fields of a result that only some revisions define. The SDK removes them for clients of the others."""
_OPAQUE_FIELDS = frozenset({"inputSchema", "outputSchema", "structuredContent"})
"""Fields with any JSON. The SDK drops the nulls at their top, such as `"default": null`."""

_results: ContextVar[list[JsonObject] | None] = ContextVar("rookery_mcp_results", default=None)


def record_result(result: JsonObject) -> None:
    """Record the result of the request that is being handled, as it is before it is serialised."""
    recorded = _results.get()
    if recorded is not None:
        recorded.append(result)


async def keep_unknown_fields(ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
    """Add the fields that the serialisation drops. It is a middleware of the SDK's server."""
    with _record_results() as recorded:
        result = await call_next(ctx)
    if not recorded or not isinstance(result, dict):
        return result
    original = recorded[-1]
    return cast("JsonObject", _restore(original, cast("JsonObject", result), _REVISION_FIELDS))


@contextmanager
def _record_results() -> Generator[list[JsonObject]]:
    recorded: list[JsonObject] = []
    token = _results.set(recorded)
    try:
        yield recorded
    finally:
        _results.reset(token)


def _restore(original: object, serialized: object, dropped: frozenset[str] = frozenset()) -> object:
    """
    Return *serialized* with the fields that only *original* has. A null there means that a field is absent.

    Args:
        dropped: Names of fields that were dropped on purpose.
    """
    if isinstance(original, list) and isinstance(serialized, list):
        items, others = cast("list[object]", serialized), cast("list[object]", original)
        return [_restore(other, item) for other, item in zip(others, items, strict=True)] if len(items) == len(others) else items
    if not isinstance(original, dict) or not isinstance(serialized, dict):
        return serialized
    before, after = cast("JsonObject", original), cast("JsonObject", serialized)
    if before == after:
        return after
    fields = {name: _restore_field(name, before[name], value) if name in before else value for name, value in after.items()}
    missing = {name: value for name, value in before.items() if name not in after and value is not None and name not in dropped}
    return {**fields, **missing}


def _restore_field(name: str, original: object, serialized: object) -> object:
    return original if name in _OPAQUE_FIELDS else _restore(original, serialized)
