"""The size of a list of tools for a model, and which clients should get search mode in its place. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from rookery.kernel.token_estimates import CHARS_PER_TOKEN

MAX_CATALOGUE_TOKENS = 6_000
"""The built-in servers take less. A list that is longer costs more than a search for each tool that is needed."""

SEARCH_QUERY = "?mode=search"
"""The query that makes the address of all tools that of search mode."""

_MODEL_FIELDS = ("name", "description", "inputSchema")


@dataclass(frozen=True, slots=True)
class CatalogueSize:
    """
    The size of a list of tools.

    Attributes:
        tokens: Those of the names, descriptions and input schemas, which every client shows its model.
    """

    count: int
    tokens: int


def measure_catalogue(tools: Iterable[object]) -> CatalogueSize:
    """Return the size of *tools*, the entries of `tools/list`."""
    listed = [cast("Mapping[str, object]", tool) for tool in tools if isinstance(tool, dict)]
    definitions = [{name: tool[name] for name in _MODEL_FIELDS if name in tool} for tool in listed]
    chars = sum(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":"))) for tool in definitions)
    return CatalogueSize(len(definitions), -(-chars // CHARS_PER_TOKEN))


def needs_search_mode(size: CatalogueSize, *, defers_tools: bool) -> bool:
    """
    Return whether a client should use search mode, because its list takes more than `MAX_CATALOGUE_TOKENS`.

    Args:
        defers_tools: The client shows its model the names alone, and loads a definition when it is needed.
    """
    return not defers_tools and size.tokens > MAX_CATALOGUE_TOKENS
