"""Prompt templates with versions."""

from __future__ import annotations

import pytest

from tests.chat_service import ChatService
from tests.conftest import Instance
from tests.content.conftest import GENERATIONS, TEMPLATES

Json = dict[str, object]
_NOTE: Json = {
    "slug": "note",
    "name": "Release note",
    "variables": {"product": {"description": "The product"}, "tone": {"default": "dry", "enum": ["dry", "warm"]}},
    "messages": [
        {"role": "system", "content": "Write in a {{ tone }} tone."},
        {"role": "user", "content": "A note about {{ product }}."},
    ],
    "max_tokens": 77,
    "temperature": 0.5,
}


async def test_a_template_fills_in_the_messages(content: Instance, provider: ChatService) -> None:
    """`template` + `variables`; defaults of the template apply, and the record has its version."""
    created = await content.admin.post(TEMPLATES, _NOTE)
    assert (created.status_code, created.json()["version"]) == (201, 1), created.text
    response = await content.admin.post(GENERATIONS, {"template": "note", "variables": {"product": "tea {{ tone }}"}})

    assert response.status_code == 200, response.text
    assert response.json()["template"] == {"slug": "note", "version": 1}
    body = provider.requests[0].json
    assert (body["max_tokens"], body["temperature"]) == (77, 0.5)
    assert body["messages"] == [
        {"role": "system", "content": "Write in a dry tone."},
        {"role": "user", "content": "A note about tea {{ tone }}."},
    ]


async def test_versions_stay_until_the_template_is_deleted(content: Instance, provider: ChatService) -> None:
    """A change is a new version, the same content is not; an earlier version can be used and shown."""
    await content.admin.post(TEMPLATES, _NOTE)
    path, fields = f"{TEMPLATES}/note", {name: value for name, value in _NOTE.items() if name != "slug"}
    same = await content.admin.send("PUT", path, fields)
    changed = await content.admin.send("PUT", path, {**fields, "messages": None, "prompt": "Only {{ product }}."})

    assert (same.json()["version"], changed.json()["version"]) == (1, 2)
    assert same.headers["etag"] != changed.headers["etag"]
    assert (await content.admin.send("PUT", path, fields, **{"If-Match": same.headers["etag"]})).status_code == 412
    versions = (await content.admin.get(f"{path}/versions")).json()
    assert [version["version"] for version in versions["data"]] == [2, 1]
    assert len((await content.admin.get(f"{path}?version=1")).json()["messages"]) == 2
    body = {"template": "note", "template_version": 1, "variables": {"product": "tea"}}
    assert (await content.admin.post(GENERATIONS, body)).json()["template"] == {"slug": "note", "version": 1}
    assert len(provider.requests[0].json["messages"]) == 2  # pyright: ignore[reportArgumentType] - a list
    assert (await content.admin.get(TEMPLATES)).json()["data"][0]["version"] == 2
    assert (await content.admin.send("DELETE", path)).status_code == 204
    assert (await content.admin.get(f"{path}?version=1")).status_code == 404
    again = await content.admin.post(TEMPLATES, _NOTE)
    assert (again.json()["version"], again.headers["etag"] != same.headers["etag"]) == (1, True)


async def test_a_preview_sends_nothing(content: Instance, provider: ChatService) -> None:
    """The rendered messages and the estimated tokens."""
    await content.admin.post(TEMPLATES, _NOTE)
    response = await content.admin.post(f"{TEMPLATES}/note/preview", {"variables": {"product": "tea", "tone": "warm"}})

    assert response.json()["messages"][0] == {"role": "system", "content": "Write in a warm tone."}
    assert response.json()["estimated_input_tokens"] > 0
    assert provider.requests == []


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"messages": [{"role": "user", "content": "{{ other }}"}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "{{ a.b }}"}]}, "messages.0.content"),
        ({"variables": {"product": {"default": 5}, "tone": {}}}, "variables.product"),
        ({"variables": {"Bad Name": {}}}, "variables.Bad Name.[key]"),
        ({"prompt": "both"}, "body"),
        ({"schema": {"type": 3}}, "schema"),
        ({"slug": "Not A Slug"}, "slug"),
    ],
)
async def test_an_invalid_template_names_the_field(content: Instance, changes: Json, field: str) -> None:
    """Bad input is a 422 with the field."""
    response = await content.admin.post(TEMPLATES, {**_NOTE, **changes})

    assert response.status_code == 422, response.text
    assert field in response.json()["errors"], response.text


async def test_missing_and_unknown_variables_are_named(content: Instance, provider: ChatService) -> None:
    """The engine of plan templates validates the values before anything is sent."""
    await content.admin.post(TEMPLATES, _NOTE)
    response = await content.admin.post(GENERATIONS, {"template": "note", "variables": {"prodct": "tea", "tone": "sour"}})

    assert response.status_code == 422
    assert set(response.json()["errors"]) == {"variables.prodct", "variables.product", "variables.tone"}
    assert provider.requests == []


async def test_a_slug_is_unique_and_changes_are_audited(content: Instance) -> None:
    """Each change of a template is in the audit log."""
    await content.admin.post(TEMPLATES, _NOTE)
    twice = await content.admin.post(TEMPLATES, _NOTE)
    assert (twice.status_code, twice.json()["error"]) == (409, "slug_taken")
    await content.admin.send("DELETE", f"{TEMPLATES}/note")
    actions = [entry["action"] for entry in (await content.admin.get("/api/v1/audit?per_page=2")).json()["data"]]
    assert actions == ["prompt_template.deleted", "prompt_template.created"]


async def test_another_workspace_has_no_access_to_a_template(content: Instance) -> None:
    """Walls: a template of another tenant does not exist, also as the source of a generation."""
    await content.admin.post(TEMPLATES, _NOTE)
    stranger = await content.api_key(workspace_id=await content.workspace("Other"))
    assert (await stranger.get(f"{TEMPLATES}/note")).status_code == 404
    assert (await stranger.post(GENERATIONS, {"template": "note", "variables": {"product": "tea"}})).status_code == 404
    assert (await stranger.send("DELETE", f"{TEMPLATES}/note")).status_code == 404
