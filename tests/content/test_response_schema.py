"""JSON schemas of answers."""

from __future__ import annotations

import json

import pytest

from rookery.content.response_schema import AnswerMismatch, ResponseSchema


@pytest.mark.parametrize(
    "draft", [None, "draft-04/schema#", "draft-06/schema#", "draft-07/schema#", "draft/2019-09/schema", "draft/2020-12/schema"]
)
def test_a_format_of_an_answer_is_a_hint_in_every_draft(draft: str | None) -> None:
    """An answer is not corrected, which costs, because of the draft that the schema names. Types are validated in each."""
    properties: dict[str, object] = {
        "start": {"type": "string", "format": "date-time"},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "note": {"type": "string", "nullable": True},
    }
    named = {} if draft is None else {"$schema": f"http{'s' if 'draft/' in draft else ''}://json-schema.org/{draft}"}
    schema = ResponseSchema({**named, "type": "object", "properties": properties})
    answer = json.dumps({"start": "2026-11-22T10:00:00", "data": "{", "note": None})

    assert schema.extract(answer) == answer
    with pytest.raises(AnswerMismatch, match="/start"):
        schema.extract('{"start": 5}')
