"""Messages for invalid bodies and query parameters."""

from __future__ import annotations

from typing import cast

import pytest

from rookery.kernel.validation_messages import PATTERN_TEXTS
from tests.conftest import Instance

_LONG = "x" * 101
_FACT = {"content": "The build runs on Tuesdays.", "type": "fact"}


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"type": "A fact!"}, {"type": "must be 1 to 64 lower-case letters, digits, `_` and `-`, the first one a letter, not 'A fact!'"}),
        ({"type": "A fact!"}, {"type": "(observation, context, decision, convention, architecture, procedure, fact"}),
        ({"tags": ["a"] * 101}, {"tags": "must have at most 100 items, not 101"}),
        ({"org": _LONG}, {"org": "must have at most 100 characters, not 101"}),
        ({"content": ""}, {"content": "must have at least 1 character, not 0"}),
        ({"confidence": 1.5}, {"confidence": "must be at most 1, not 1.5"}),
        ({"memory_scope": "all"}, {"memory_scope": "must be one of 'project', 'agent', 'session' or 'shared', not 'all'"}),
        ({"org": 5, "dedupe": "yes"}, {"org": "must be a string, not 5", "dedupe": "must be true or false, not 'yes'"}),
        ({"tags": {"a": 1}}, {"tags": "must be an array, not an object"}),
    ],
)
async def test_the_error_of_a_field_has_its_value_and_the_allowed_ones(
    instance: Instance, fields: dict[str, object], errors: dict[str, str]
) -> None:
    """Messages contain no regular expressions and no text of a library."""
    response = await instance.admin.post("/v1/brain/remember", {**_FACT, **fields})

    assert response.status_code == 422
    messages = response.json()["errors"]
    assert messages.keys() == errors.keys()
    for field, text in errors.items():
        assert text in messages[field][0]
        assert "Input should" not in messages[field][0]
        assert "^" not in messages[field][0]


async def test_the_value_of_a_secret_field_is_not_in_the_error(instance: Instance) -> None:
    """Messages contain the wrong value, except for fields with secrets."""
    response = await instance.admin.post("/api/v1/webhooks", {"url": "https://example.org/hook", "events": ["*"], "secret": "too short"})

    assert response.status_code == 422
    assert "too short" not in response.text

    server = {"id": "made", "url": "https://example.org/mcp", "secrets": {"GITHUB_PAT": 987654321}}
    response = await instance.admin.post("/api/v1/servers", server)

    assert response.status_code == 422
    assert "987654321" not in response.text


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("external_id", "a b", "must be letters, digits and `._@:+=~-`, the first one a letter or a digit, not 'a b'"),
        ("locale", "German!", "must be a language, such as de or de-AT, not 'German!'"),
    ],
)
async def test_an_error_states_its_rule_once(instance: Instance, field: str, value: str, rule: str) -> None:
    """The rule of a pattern is not followed by the description of the field, which says it again."""
    response = await instance.admin.post("/api/agent/notify/subscribers", {"external_id": "user-1", field: value})

    assert response.json()["errors"][field] == [rule]


async def test_each_pattern_of_the_api_has_a_text(instance: Instance) -> None:
    """Messages contain no regular expressions, whatever the field."""
    document = (await instance.admin.get("/docs/openapi.json")).json()

    patterns = _iter_patterns(document)
    assert len(patterns) > 5
    assert sorted(patterns - PATTERN_TEXTS.keys()) == []


def _iter_patterns(value: object) -> set[str]:
    if isinstance(value, list):
        return {pattern for item in cast("list[object]", value) for pattern in _iter_patterns(item)}
    if not isinstance(value, dict):
        return set()
    fields = cast("dict[str, object]", value)
    patterns = {pattern for item in fields.values() for pattern in _iter_patterns(item)}
    return patterns | {text for name, text in fields.items() if name == "pattern" and isinstance(text, str)}
