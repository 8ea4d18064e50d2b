"""Arguments that models send as text, and the errors of calls with several wrong arguments."""

from __future__ import annotations

import json
from typing import cast

import pytest

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.tool_schemas import parse_object_texts
from rookery.tools.argument_completion import UNREADABLE, read_text
from tests.conftest import Caller, Instance

Json = dict[str, object]


async def call(caller: Caller, server: str, tool: str, **arguments: object) -> Json:
    """Call a built-in tool over HTTP, and return the body of the response."""
    body = {"server": server, "tool": tool, "arguments": arguments}
    return cast("Json", (await caller.post("/api/v1/mcp/tools/call", body)).json())


async def output(caller: Caller, server: str, tool: str, **arguments: object) -> Json:
    """Return the structured content of a call that must succeed."""
    body = await call(caller, server, tool, **arguments)
    assert body["success"], body
    return cast("Json", cast("Json", body["result"])["structuredContent"])


@pytest.mark.parametrize(
    ("types", "text", "value"),
    [
        (["integer"], " 3 ", 3),
        (["integer"], "-3", -3),
        (["integer"], "3.0", UNREADABLE),
        (["integer"], "three", UNREADABLE),
        (["integer"], "1" * 19, UNREADABLE),
        (["number"], "0.5", 0.5),
        (["number"], "1e3", 1000.0),
        (["number"], "NaN", UNREADABLE),
        (["boolean"], "True", True),
        (["boolean"], "false", False),
        (["boolean"], "yes", UNREADABLE),
        (["object"], '{"a": 1}', {"a": 1}),
        (["object"], "[1]", UNREADABLE),
        (["object"], "a", UNREADABLE),
        (["array"], '["a", "b"]', ["a", "b"]),
        (["array"], "[]", []),
        (["array"], "a", ["a"]),
        (["array"], '"a, b"', ["a, b"]),
        (["array"], "two words", ["two words"]),
        (["array"], "a, b,c", ["a", "b", "c"]),
        (["array"], "a,", UNREADABLE),
        (["array"], "null", UNREADABLE),
        (["array"], "Build it, and test it", UNREADABLE),
        (["array"], "- a\n- b", UNREADABLE),
        (["array"], "[a, b]", UNREADABLE),
        (["array"], '{"a": 1}', UNREADABLE),
        (["array", "boolean"], "true", True),
    ],
)
def test_only_a_text_with_one_meaning_is_read(types: list[str], text: str, value: object) -> None:
    """A comma may belong to a sentence, and a broken JSON text is no word."""
    assert read_text(text, types, takes_words=True) == value


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ('["pier","crane"]', ["pier", "crane"]),
        ("pier", ["pier"]),
        ("pier, crane", ["pier", "crane"]),
        ("", []),
        ("null", []),
        ("None", []),
        (" ", []),
    ],
)
async def test_a_list_may_be_its_text(instance: Instance, text: str, tags: list[str]) -> None:
    """Its JSON, words with commas, one word, and an empty text or "null" for a list that was not set."""
    stored = await output(instance.admin, "brain", "remember", content="Pier 3 has a crane.", tags=text)

    assert (await instance.admin.get(f"/v1/brain/memories/{stored['id']}")).json()["tags"] == tags


async def test_numbers_booleans_and_enums_in_lists_may_be_texts(instance: Instance) -> None:
    """Also an argument that is accepted without being published, such as `explain`."""
    await instance.admin.remember("Pier 3 has a crane.", project="harbour")
    fields = {"top_k": "1", "min_relevance": "null", "org": " ", "include_scopes": "project", "explain": "true", "min_confidence": "0.1"}

    found = await output(instance.admin, "brain", "recall", query="Which pier has a crane?", **fields)

    memories = cast("list[Json]", found["memories"])
    assert len(memories) == 1
    assert "explain" in str(found)


async def test_lists_of_objects_and_objects_in_them_may_be_texts(instance: Instance) -> None:
    """At any depth, each as its JSON; a list of one may be its words."""
    task = json.dumps({"name": "Pour the base", "acceptance_criteria": "It holds 80 t", "priority": "1"})
    phases = json.dumps([{"name": "Ground", "tasks": f'[{task}, "Build the tower"]'}])

    created = await output(instance.admin, "agents", "plan_create", title="Crane", phases=phases, metadata='{"crew": 4}', status="active")

    plan = (await instance.admin.get(f"/api/agent/plans/{created['slug']}")).json()
    first, second = plan["phases"][0]["tasks"]
    assert plan["metadata"] == {"crew": 4}
    assert (first["acceptance_criteria"][0]["text"], first["priority"]) == ("It holds 80 t", 1)
    assert second["name"] == "Build the tower"


def test_an_object_with_any_fields_may_be_its_text_at_any_depth() -> None:
    """Such an object is published as an object or a text, so that the schema accepts the text of a list too."""
    free = {"anyOf": [{"type": "object"}, {"type": "string"}]}
    item = {"type": "object", "properties": {"free": free, "text": {"type": "string"}}}
    schema: Json = {"properties": {"items": {"anyOf": [{"type": "array", "items": item}, {"type": "null"}]}}}

    parsed = parse_object_texts(schema, {"items": [{"free": '{"a": 1}', "text": "{}"}], "more": "{}"})

    assert parsed == {"items": [{"free": {"a": 1}, "text": "{}"}], "more": "{}"}
    with pytest.raises(ValidationFailed) as refusal:
        parse_object_texts(schema, {"items": [{"free": "[]"}]})
    assert list(refusal.value.field_errors) == ["items.0.free"]


async def test_what_is_destroyed_is_not_guessed(instance: Instance) -> None:
    """The ids of `forget` are a list or its JSON. The tags of `change` may be a word, but an empty text clears nothing."""
    memory = str((await instance.admin.remember())["id"])

    word = await call(instance.admin, "brain", "forget", ids=memory)
    words = await call(instance.admin, "brain", "forget", ids=f"{memory}, {memory}")
    empty = await call(instance.admin, "brain", "forget", ids="")
    changed = await output(instance.admin, "brain", "change", id=memory, tags="pier")
    cleared = await call(instance.admin, "brain", "change", id=memory, tags="")
    still_there = await instance.admin.get(f"/v1/brain/memories/{memory}")
    await output(instance.admin, "brain", "forget", ids=json.dumps([memory]))

    assert {body["error"] for body in (word, words, empty, cleared)} == {"invalid_arguments"}
    assert (still_there.status_code, changed["tags"]) == (200, ["pier"])
    assert (await instance.admin.get(f"/v1/brain/memories/{memory}")).status_code == 404


async def test_the_text_of_an_error_names_every_wrong_argument(instance: Instance) -> None:
    """Unknown ones too, with the nearest known one, so that a model corrects all of them in one call."""
    body = await call(instance.admin, "brain", "remember", content=5, tags=7, contents="x")

    message = str(body["message"])
    assert body["error"] == "invalid_arguments"
    assert list(cast("Json", body["errors"])) == ["/content", "/tags", "/contents"]
    assert '/content: 5 is not of type "string"' in message
    assert '/tags: 7 is not of type "array"' in message
    assert "/contents: unknown argument; did you mean 'content'?" in message


async def test_the_error_of_a_text_that_was_read_names_its_value(instance: Instance) -> None:
    """The number is too high, not a text."""
    body = await call(instance.admin, "brain", "recall", query="crane", top_k="1000")

    assert "1000 is greater than the maximum" in str(body["message"])
