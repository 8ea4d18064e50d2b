"""Access to the OpenAPI document and its transfer."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator

from rookery.kernel.config import load_settings
from rookery.kernel.secret import Secret
from tests.conftest import Instance, Settings, run_instance

_PATHS = ("/api/docs/openapi", "/docs/openapi.json")
_SECRET_KEY = "the secret key of these tests, 0123456789"


async def test_the_document_needs_docs_read(instance: Instance) -> None:
    """An enabled document needs a key with the view permission."""
    viewer, second = await instance.api_key("docs:read"), await instance.api_key("brain:read")
    for path in _PATHS:
        responses = [await caller.get(path) for caller in (viewer, second, instance.agent, instance.caller(None))]

        assert [response.status_code for response in responses] == [200, 403, 403, 401]
        assert responses[0].json()["openapi"] == "3.0.3"
        assert responses[1].json()["required_scope"] == "docs:read"


async def test_both_paths_return_the_same_document(instance: Instance) -> None:
    """GET /docs/openapi.json is the same as /api/docs/openapi."""
    first, second = [await instance.admin.get(path) for path in _PATHS]

    assert first.content == second.content
    assert first.headers["etag"] == second.headers["etag"]


async def test_an_unchanged_document_is_not_sent_again(instance: Instance) -> None:
    """RFC 9110, 13.1.2: If-None-Match with the ETag in any form returns 304; another ETag returns the document."""
    etag = (await instance.admin.get(_PATHS[0])).headers["etag"]

    unchanged = [
        await instance.admin.http.get(_PATHS[1], headers={"If-None-Match": value}) for value in (etag, etag.removeprefix("W/"), "*")
    ]
    changed = await instance.admin.http.get(_PATHS[1], headers={"If-None-Match": '"another"'})

    assert [(response.status_code, response.content, response.headers["etag"]) for response in unchanged] == [(304, b"", etag)] * 3
    assert changed.status_code == 200


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize(
    ("query", "tags"),
    [
        ("tags=Memory", {"Memory"}),
        ("tags=tool%20servers,memory", {"Memory", "Tool servers"}),
        ("tags=Memory&tags=Webhooks", {"Memory", "Webhooks"}),
        ("tags=MCP", {"MCP"}),
        ("tags=Operation", {"Operation"}),
    ],
)
async def test_a_part_of_the_document_has_the_operations_of_its_tags(instance: Instance, path: str, query: str, tags: set[str]) -> None:
    """A valid document with exactly the operations of the tags, as in the whole, and only the components that they use."""
    whole, part = [(await instance.admin.get(address)).json() for address in (path, f"{path}?{query}")]

    assert [str(error) for error in OpenAPIV30SpecValidator(part).iter_errors()] == []
    expected = {key: operation for key, operation in _list_operations(whole).items() if not tags.isdisjoint(operation["tags"])}
    assert _list_operations(part) == expected
    assert {tag["name"] for tag in part["tags"]} == {name for group in part["x-tagGroups"] for name in group["tags"]} == tags
    assert ("x-webhooks" in part) == ("Webhooks" in tags)
    text = json.dumps({**part, "components": {**part["components"], "securitySchemes": {}}})
    for kind, components in part["components"].items():
        for name, component in components.items():
            assert component == whole["components"][kind][name]
            if kind == "securitySchemes":
                assert any(name in choice for operation in expected.values() for choice in operation["security"])
            else:
                assert f'"#/components/{kind}/{name}"' in text


async def test_the_parts_of_all_tags_have_all_operations(instance: Instance) -> None:
    """Each operation is in the part of each of its tags, and each part is smaller than the whole."""
    response = await instance.admin.get(_PATHS[1])
    whole, operations = response.json(), set[tuple[str, str]]()
    for tag in whole["tags"]:
        part = await instance.admin.http.get(_PATHS[1], params={"tags": tag["name"]})
        operations |= _list_operations(part.json()).keys()
        assert len(part.content) < len(response.content) / 3, tag["name"]

    assert operations == _list_operations(whole).keys()


async def test_a_part_has_an_etag_of_its_own(instance: Instance) -> None:
    """RFC 9110, 8.8.3: the ETag of a part is the same for the same tags in any order, and no other part's or the whole's."""
    whole, memory, both, reordered = [
        (await instance.admin.get(_PATHS[1] + query)).headers["etag"]
        for query in ("", "?tags=Memory", "?tags=Memory,Plans", "?tags=plans&tags=Memory")
    ]
    unchanged, changed = [
        await instance.admin.http.get(f"{_PATHS[1]}?tags=Memory", headers={"If-None-Match": etag}) for etag in (memory, whole)
    ]

    assert len({whole, memory, both}) == 3
    assert both == reordered
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    assert (changed.status_code, changed.headers["etag"]) == (200, memory)


@pytest.mark.parametrize(
    ("query", "messages"),
    [
        ("tags=Memroy", ["'Memroy' is not a tag; did you mean 'Memory'? The tags are Memory, Execution, "]),
        ("tags=Memory,none", ["'none' is not a tag. The tags are Memory, Execution, ", ", Operation"]),
        ("tags=", ["must have at least 1 item"]),
        ("tag=Memory", ["did you mean 'tags'?"]),
    ],
)
async def test_an_unknown_tag_is_rejected_with_the_tags_that_exist(instance: Instance, query: str, messages: list[str]) -> None:
    """The answer names the tags that a document can be limited to."""
    response = await instance.admin.get(f"{_PATHS[1]}?{query}")

    assert (response.status_code, response.json()["error"]) == (422, "validation_error")
    for message in messages:
        assert message in response.text


async def test_the_document_is_compressed_if_the_client_accepts_gzip(instance: Instance) -> None:
    """RFC 9110, 12.5.3: only gzip is supported, and `Vary` has Accept-Encoding."""
    for accepted, is_packed in (
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("notgzip, gzip ; q=0.0, br", False),
        ("br,GZIP ;q=1", True),
    ):
        async with instance.admin.http.stream("GET", _PATHS[0], headers={"Accept-Encoding": accepted}) as response:
            raw = b"".join([part async for part in response.aiter_raw()])

        assert response.headers.get("content-encoding") == ("gzip" if is_packed else None), accepted
        assert json.loads(gzip.decompress(raw) if is_packed else raw)["info"]["title"] == "Rookery API"
        assert "Accept-Encoding" in response.headers["vary"]


@pytest.mark.parametrize(
    ("environment", "configured", "status"),
    [("development", None, 200), ("development", False, 404), ("production", None, 404), ("production", True, 200)],
)
async def test_the_documentation_is_off_in_production_by_default(
    settings: Settings, environment: str, configured: bool | None, status: int
) -> None:
    """Enabled by default outside of production only; when off, its routes are not found."""
    changed_settings = replace(settings, environment=environment, api_docs_enabled=configured, secret_key=Secret(_SECRET_KEY))
    async with run_instance(changed_settings) as instance:
        responses = [await instance.admin.get(path) for path in _PATHS]

    assert [response.status_code for response in responses] == [status] * 2
    if status == 404:
        assert {response.json()["error"] for response in responses} == {"not_found"}


@pytest.mark.parametrize(
    ("environ", "configured"),
    [
        ({}, None),
        ({"API_DOCS_ENABLED": "true"}, True),
        ({"ROOKERY_API_DOCS_ENABLED": "false"}, False),
        ({"API_DOCS_ENABLED": "true", "ROOKERY_API_DOCS_ENABLED": "false"}, False),
    ],
)
def test_the_setting_may_have_the_name_of_the_specification(environ: dict[str, str], configured: bool | None) -> None:
    """API_DOCS_ENABLED is accepted without the prefix; the prefixed name wins."""
    assert load_settings(environ).settings.api_docs_enabled is configured


def test_the_environment_wins_over_the_file_under_either_name(tmp_path: Path) -> None:
    """Environment variables override rookery.toml."""
    (tmp_path / "rookery.toml").write_text("api_docs_enabled = false", encoding="utf-8")

    loaded = load_settings({"ROOKERY_CONFIG": str(tmp_path / "rookery.toml"), "API_DOCS_ENABLED": "true"})

    assert loaded.settings.api_docs_enabled is True


def _list_operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (path, method): operation for path, item in document["paths"].items() for method, operation in item.items() if method != "servers"
    }
