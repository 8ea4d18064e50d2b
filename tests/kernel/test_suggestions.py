"""Suggestions of similar names in error messages."""

from __future__ import annotations

import pytest

from rookery.kernel.sentences import find_nearest

_SEARCH = ("q", "org", "project", "type", "limit", "offset", "tags", "source", "since", "until", "agent_id", "session_id")
_PLANS = ("page", "per_page", "status", "org", "project")


@pytest.mark.parametrize(
    ("name", "known_names", "expected"),
    [
        ("contnt", ("content", "type"), "content"),
        ("Agent-ID", _SEARCH, "agent_id"),
        ("agent", _SEARCH, "agent_id"),
        ("tpye", _SEARCH, "type"),
        ("brain:reed", ("brain:read", "brain:write"), "brain:read"),
        ("limit", ("query", "top_k", "mode"), "top_k"),
        ("limit", ("page", "per_page"), "per_page"),
        ("status", ("state", "plan"), "state"),
        ("query", _SEARCH, "q"),
    ],
)
def test_a_similar_name_is_suggested(name: str, known_names: tuple[str, ...], expected: str) -> None:
    """Suggestions cover typing errors, prefixes and synonyms."""
    assert find_nearest(name, known_names) == expected


@pytest.mark.parametrize(
    ("name", "known_names"),
    [
        ("workspace_id", ("agent_id", "content", "type")),
        ("page", ("type", "q")),
        ("template", _PLANS),
        ("secret", ("url", "events")),
        ("nope:read", ("score:read", "brain:read")),
        ("user_id", ("supersedes_id", "content")),
        ("tasks", ("status", "title")),
        ("nope", _PLANS),
        ("zz", _PLANS),
        ("", _PLANS),
        ("x" * 10_000, _PLANS),
    ],
)
def test_a_far_fetched_name_is_not_suggested(name: str, known_names: tuple[str, ...]) -> None:
    """A wrong suggestion would mislead."""
    assert find_nearest(name, known_names) is None
