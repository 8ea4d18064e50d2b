"""Recall with its why: the place and the parts of each score, and what was dropped by which rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from starlette.responses import Response

from rookery.console.arguments import or_unset, parse_integer, parse_number
from rookery.console.views.memory_filters import SCOPES, ScopeName, list_types
from rookery.console.visit import View, Visit
from rookery_client import ApiError
from rookery_client.calls import UNSET

_REFUSED = frozenset({403, 422})
_TOP_K = 10
_MODES = ("hybrid", "semantic", "keyword")
_FIELDS = ("q", "mode", "type", "project", "scope", "tag", "agent", "session", "keywords", "min_relevance", "top_k", "max_tokens")
_RULES: Mapping[str, str] = {
    "top_k": "number of results",
    "min_relevance": "minimum relevance",
    "max_tokens": "token budget",
    "filter": "filter",
}

Mode = Literal["semantic", "keyword", "hybrid"]


async def show_recall(visit: Visit) -> Response:
    """Show a form, and the explained answer of recall if there is a question."""
    fields = {name: visit.query(name) for name in _FIELDS}
    recall, problem = None, ""
    if fields["q"]:
        try:
            recall = await visit.client.memory.recall(
                query=fields["q"],
                mode=cast("Mode", fields["mode"]) if fields["mode"] else UNSET,
                top_k=parse_integer("top_k", fields["top_k"]) or _TOP_K,
                type=fields["type"] or UNSET,
                project=fields["project"] or UNSET,
                include_scopes=[cast("ScopeName", fields["scope"])] if fields["scope"] else UNSET,
                tags=[fields["tag"]] if fields["tag"] else UNSET,
                agent_id=fields["agent"] or UNSET,
                session_id=fields["session"] or UNSET,
                keywords=[word.strip() for word in fields["keywords"].split(",") if word.strip()] or UNSET,
                min_relevance=or_unset(parse_number("min_relevance", fields["min_relevance"])),
                max_tokens=or_unset(parse_integer("max_tokens", fields["max_tokens"])),
                explain=True,
                context=1,
            )
        except ApiError as error:
            if error.status not in _REFUSED:
                raise
            problem = error.message
    return visit.render(
        "memories/recall.html",
        fields=fields,
        recall=recall,
        problem=problem,
        types=list_types(fields["type"]),
        scopes=SCOPES,
        modes=_MODES,
        rules=_RULES,
        best=max((memory.relevance for memory in recall.memories), default=0.0) if recall else 0.0,
    )


VIEWS = (View("GET", "/memories/recall", show_recall, "brain:read"),)
