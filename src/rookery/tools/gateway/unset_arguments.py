"""Arguments of prompts that a client sends as null because they are not set. The protocol allows only texts there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from mcp.server.context import CallNext, HandlerResult

from rookery.tools.gateway.mcp_requests import HandlerContext
from rookery.tools.models import JsonObject
from rookery.tools.prompt_arguments import drop_nulls


async def drop_unset_arguments(ctx: HandlerContext, call_next: CallNext) -> HandlerResult:
    """Remove the nulls before the SDK validates the request. It is a middleware of the SDK's server."""
    if ctx.params is not None:
        if ctx.method == "prompts/get":
            ctx = replace(ctx, params=_without_nulls(ctx.params))
        elif ctx.method == "completion/complete" and isinstance(context := ctx.params.get("context"), dict):
            ctx = replace(ctx, params={**ctx.params, "context": _without_nulls(cast("JsonObject", context))})
    return await call_next(ctx)


def _without_nulls(holder: Mapping[str, object]) -> JsonObject:
    return {**holder, "arguments": drop_nulls(holder["arguments"])} if isinstance(holder.get("arguments"), dict) else dict(holder)
