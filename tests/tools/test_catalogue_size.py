"""The size of a list of tools, and the choice of search mode."""

from __future__ import annotations

from benchmarks.tool_catalogue import catalogue
from rookery.tools.discovery.client_guides import MAX_CATALOGUE_TOKENS, CatalogueSize, measure_catalogue, needs_search_mode


def test_the_size_is_that_of_what_every_client_shows() -> None:
    """Annotations and output schemas do not count; four characters are a token."""
    tool = {"name": "a", "description": "b", "inputSchema": {"type": "object"}}
    shown = '{"name":"a","description":"b","inputSchema":{"type":"object"}}'

    assert measure_catalogue([tool]) == CatalogueSize(1, -(-len(shown) // 4))
    assert measure_catalogue([{**tool, "annotations": {"readOnlyHint": True}, "outputSchema": {}}]) == measure_catalogue([tool])


def test_all_built_in_tools_fit_a_context_window() -> None:
    """All built-in servers together need no search mode."""
    size = measure_catalogue(catalogue())

    assert size.count >= 50
    assert size.tokens <= MAX_CATALOGUE_TOKENS
    assert not needs_search_mode(size, defers_tools=False)


def test_a_client_that_defers_tools_needs_no_search_mode() -> None:
    """Two searches in a row would cost more than they save."""
    size = CatalogueSize(200, MAX_CATALOGUE_TOKENS + 1)

    assert needs_search_mode(size, defers_tools=False)
    assert not needs_search_mode(size, defers_tools=True)
