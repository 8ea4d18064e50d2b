"""Messages for invalid bodies and query parameters (D-10)."""

from __future__ import annotations

import pytest

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
async def test_a_wrong_field_is_told_with_its_value_and_what_is_allowed(
    instance: Instance, fields: dict[str, object], errors: dict[str, str]
) -> None:
    """Issue 14: no regular expression and no words of a library: what was wrong, which value, what is allowed; D-10."""
    refused = await instance.admin.post("/v1/brain/remember", {**_FACT, **fields})

    assert refused.status_code == 422
    told = refused.json()["errors"]
    assert told.keys() == errors.keys()
    for field, text in errors.items():
        assert text in told[field][0]
        assert "Input should" not in told[field][0]
        assert "^" not in told[field][0]


async def test_a_value_that_may_be_a_secret_is_not_repeated(instance: Instance) -> None:
    """Issue 14: messages name the wrong value, but not that of a field that holds secrets; house rules on secrets. D-10."""
    refused = await instance.admin.post("/api/v1/webhooks", {"url": "https://example.org/hook", "events": ["*"], "secret": "too short"})

    assert refused.status_code == 422
    assert "too short" not in refused.text

    server = {"id": "made", "url": "https://example.org/mcp", "secrets": {"GITHUB_PAT": 987654321}}
    refused = await instance.admin.post("/api/v1/servers", server)

    assert refused.status_code == 422
    assert "987654321" not in refused.text
