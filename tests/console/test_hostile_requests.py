"""Requests that no page of the console sends: each gets a page that says what was wrong, and no internal error."""

from __future__ import annotations

import pytest

from tests.conftest import Instance
from tests.console.browsing import ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store


@pytest.mark.parametrize("path", ["memories/%2e%2e", "memories/%2e%2e/edit", "webhooks/%2e%2e", "keys/api/%2e%2e", "scoring?generation=.."])
async def test_dot_segments_lead_to_no_other_route(user: ConsoleUser, path: str) -> None:
    """An id of dots is the id of nothing."""
    response = await user.get(path)
    assert (response.status_code, "does not exist" in get_text(response.text)) == (404, True)


@pytest.mark.parametrize("path", ["memories/new", "sign-in", "switch"])
async def test_forms_with_too_many_fields_are_refused(user: ConsoleUser, path: str) -> None:
    """The number of fields has a bound, and the page says so."""
    response = await user.post(path, [("a", "")] * 2_001)
    assert (response.status_code, "fields" in get_text(response.text)) == (422, True)


async def test_an_origin_that_is_no_url_is_refused(instance: Instance) -> None:
    """Only a page of this server may change something."""
    for origin in ("http://[", "null", "http://localhost.evil.example"):
        async with ConsoleUser(instance.rookery, {"Origin": origin}) as stranger:
            assert (await stranger.post("sign-out")).status_code == 403, origin


@pytest.mark.parametrize("host", ["a b", "[::1", "a:99999999", "x/y?z"])
async def test_a_host_that_is_no_name_is_no_internal_error(user: ConsoleUser, host: str) -> None:
    """The name by which a browser calls this server decides nothing about the calls of its pages."""
    assert (await user.get("settings", {"Host": host})).status_code < 500


async def test_the_index_of_a_key_has_a_bound(user: ConsoleUser) -> None:
    """An index that names no key of the session changes nothing."""
    for index in ("9" * 5_000, "7", "-1", "x"):
        assert (await user.post("switch", {"key": index})).status_code == 303
    assert "first key" in await user.read("")
