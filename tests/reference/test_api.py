"""Access to the OpenAPI document and its transfer (spec 4.5, D-83)."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.kernel.config import load_settings
from rookery.kernel.secret import Secret
from tests.conftest import Instance, Settings, run_instance

_PATHS = ("/api/docs/openapi", "/docs/openapi.json")
_SECRET_KEY = "the secret key of these tests, 0123456789"


async def test_the_document_is_for_keys_that_may_view_it(instance: Instance) -> None:
    """Spec 4.5: when enabled it is guarded by authentication and a view permission."""
    viewer, other = await instance.api_key("docs:read"), await instance.api_key("brain:read")
    for path in _PATHS:
        answers = [await each.get(path) for each in (viewer, other, instance.agent, instance.caller(None))]

        assert [each.status_code for each in answers] == [200, 403, 403, 401]
        assert answers[0].json()["openapi"] == "3.0.3"
        assert answers[1].json()["required_scope"] == "docs:read"


async def test_both_addresses_show_the_same_document(instance: Instance) -> None:
    """D-83: GET /docs/openapi.json is the same as /api/docs/openapi."""
    one, other = [await instance.admin.get(path) for path in _PATHS]

    assert one.content == other.content
    assert one.headers["etag"] == other.headers["etag"]


async def test_a_document_that_was_seen_is_not_sent_again(instance: Instance) -> None:
    """RFC 9110, 13.1.2: If-None-Match with the ETag is answered 304, in whatever form it was seen; another one is sent all."""
    etag = (await instance.admin.get(_PATHS[0])).headers["etag"]

    seen = [await instance.admin.http.get(_PATHS[1], headers={"If-None-Match": each}) for each in (etag, etag.removeprefix("W/"), "*")]
    unseen = await instance.admin.http.get(_PATHS[1], headers={"If-None-Match": '"another"'})

    assert [(each.status_code, each.content, each.headers["etag"]) for each in seen] == [(304, b"", etag)] * 3
    assert unseen.status_code == 200


async def test_the_document_is_packed_for_who_takes_it_packed(instance: Instance) -> None:
    """RFC 9110, 12.5.3: gzip alone if it is accepted, and caches are told that it depends."""
    for accepted, is_packed in (
        ("gzip", True),
        ("br, gzip;q=0.5", True),
        ("identity", False),
        ("gzip;q=0", False),
        ("notgzip, gzip ; q=0.0, br", False),
        ("br,GZIP ;q=1", True),
    ):
        async with instance.admin.http.stream("GET", _PATHS[0], headers={"Accept-Encoding": accepted}) as answer:
            raw = b"".join([part async for part in answer.aiter_raw()])

        assert answer.headers.get("content-encoding") == ("gzip" if is_packed else None), accepted
        assert json.loads(gzip.decompress(raw) if is_packed else raw)["info"]["title"] == "Rookery API"
        assert "Accept-Encoding" in answer.headers["vary"]


@pytest.mark.parametrize(
    ("environment", "wanted", "status"),
    [("development", None, 200), ("development", False, 404), ("production", None, 404), ("production", True, 200)],
)
async def test_the_documentation_is_off_in_production_unless_it_is_wanted(
    settings: Settings, environment: str, wanted: bool | None, status: int
) -> None:
    """Spec 4.5: enabled by default outside production and disabled by default in production; off, nothing of it is there."""
    chosen = replace(settings, environment=environment, api_docs_enabled=wanted, secret_key=Secret(_SECRET_KEY))
    async with run_instance(chosen) as instance:
        answers = [await instance.admin.get(path) for path in _PATHS]

    assert [each.status_code for each in answers] == [status] * 2
    if status == 404:
        assert {each.json()["error"] for each in answers} == {"not_found"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, None),
        ({"API_DOCS_ENABLED": "true"}, True),
        ({"ROOKERY_API_DOCS_ENABLED": "false"}, False),
        ({"API_DOCS_ENABLED": "true", "ROOKERY_API_DOCS_ENABLED": "false"}, False),
    ],
)
def test_the_setting_has_the_specifications_name_too(environ: dict[str, str], wanted: bool | None) -> None:
    """Spec 4.5, D-02: API_DOCS_ENABLED, also without the prefix; with it, it wins."""
    assert load_settings(environ).settings.api_docs_enabled is wanted


def test_the_environment_wins_over_the_file_under_either_name(tmp_path: Path) -> None:
    """D-02: variables come over rookery.toml."""
    (tmp_path / "rookery.toml").write_text("api_docs_enabled = false", encoding="utf-8")

    found = load_settings({"ROOKERY_CONFIG": str(tmp_path / "rookery.toml"), "API_DOCS_ENABLED": "true"})

    assert found.settings.api_docs_enabled is True
