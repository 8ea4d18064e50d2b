"""Sign in to the console: with a key, sealed in a cookie, limited and audited."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx2
import pytest

from rookery.kernel.config import Settings
from tests.conftest import Instance, run_instance
from tests.console.browsing import ConsoleUser

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store


async def test_a_key_signs_in_and_out(instance: Instance) -> None:
    """The cookie is HttpOnly and SameSite=Strict, holds the key encrypted, and ends with the sign-out."""
    async with ConsoleUser(instance.rookery) as user:
        assert (await user.get("")).headers["location"] == "./sign-in"
        response = await user.sign_in(instance.admin.key or "", "settings")
        cookie = response.headers["set-cookie"]
        assert (response.status_code, response.headers["location"]) == (303, "settings")
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        assert "Path" not in cookie, "the browser takes the folder of the URL, with the prefix of a proxy"
        assert (instance.admin.key or "")[8:] not in cookie
        assert "first key" in await user.read("")
        await user.post("sign-out")
        assert (await user.get("memories")).headers["location"] == "./sign-in?next=memories"


async def test_a_copied_cookie_is_refused_after_sign_out_in_every_process_and_after_a_restart(settings: Settings) -> None:
    """Before, a copy worked until its key ended or 12 hours had passed. The key itself can sign in again."""
    async with run_instance(settings) as first, run_instance(settings) as second:
        key = first.admin.key or ""
        async with ConsoleUser(first.rookery) as user, ConsoleUser(second.rookery) as thief:
            await user.sign_in(key)
            copy = thief.http.cookies = httpx2.Cookies(user.http.cookies)
            assert "first key" in await thief.read("settings")
            await user.post("sign-out")
            refused = await thief.get("settings")
            await thief.post("switch", {"key": "0"})
            still_refused = await thief.get("settings")
            await user.sign_in(key)
            assert "first key" in await user.read("settings")
    async with run_instance(settings) as third, ConsoleUser(third.rookery) as thief:
        thief.http.cookies = copy
        after_restart = await thief.get("settings")

    locations = [response.headers["location"] for response in (refused, still_refused, after_restart)]
    assert locations == ["./sign-in?next=settings"] * 3


async def test_a_sign_out_ends_its_key_in_every_cookie_of_the_session_and_no_other_key(instance: Instance, user: ConsoleUser) -> None:
    """Each key of a session is signed in by itself, and earlier cookies of the session have it too."""
    other = await instance.workspace("Second")
    key = await instance.api_key("*", workspace_id=other)
    alone = httpx2.Cookies(user.http.cookies)
    await user.sign_in(instance.admin.key or "")
    await user.sign_in(key.key or "")
    both = httpx2.Cookies(user.http.cookies)
    await user.post("switch", {"key": "0"})
    await user.post("sign-out")

    async with ConsoleUser(instance.rookery) as thief:
        thief.http.cookies = alone
        assert (await thief.get("settings")).status_code == 303
        thief.http.cookies = both
        page = await thief.read("settings")
    assert ("Workspace Second" in page, "Workspace default" in page) == (True, False)


async def test_the_cookie_is_secure_on_https(instance: Instance) -> None:
    """Secure on https, also behind a proxy that ends TLS."""
    async with ConsoleUser(instance.rookery) as user:
        user.http.headers["X-Forwarded-Proto"] = "https"
        response = await user.sign_in(instance.admin.key or "")
        assert "Secure" in response.headers["set-cookie"]


async def test_several_keys_are_signed_in_at_once(instance: Instance, user: ConsoleUser) -> None:
    """Several keys; the menu changes between them, and a sign-out forgets only the active one."""
    other = await instance.workspace("Second")
    key = await instance.api_key("*", workspace_id=other)
    await user.sign_in(key.key or "")
    assert "Second" in await user.read("settings")
    await user.post("switch", {"key": "0"})
    assert "Workspace default" in await user.read("")
    await user.post("sign-out")
    assert "Workspace Second" in await user.read("")


async def test_a_key_without_the_scope_cannot_sign_in(instance: Instance) -> None:
    """`console:read` is needed, and the page says so."""
    async with ConsoleUser(instance.rookery) as user:
        response = await user.sign_in(instance.agent.key or "")
        assert (response.status_code, "console:read" in response.text, "set-cookie" in response.headers) == (403, True, False)


async def test_failed_attempts_are_limited_and_audited(instance: Instance, user: ConsoleUser) -> None:
    """Failed sign-ins of one address are limited, also for a correct key, and stand in the audit log as successful ones do."""
    async with ConsoleUser(instance.rookery) as stranger:
        for _ in range(10):
            assert (await stranger.sign_in("ak_" + "x" * 32)).status_code == 401
        response = await stranger.sign_in(instance.admin.key or "")
        assert (response.status_code, "Too many failed attempts" in response.text) == (429, True)
    platform = await instance.admin.get("/api/v1/audit?workspace_id=0&action=console.sign_in_failed")
    assert platform.json()["meta"]["total"] == 10, platform.text
    own = await instance.admin.get("/api/v1/audit?action=console.signed_in")
    assert own.json()["data"][0]["actor"]["name"] == "first key", own.text


async def test_parallel_attempts_are_limited_as_exactly(instance: Instance) -> None:
    """An attempt counts before its key is checked, so that attempts at the same time are not all checked."""
    async with ConsoleUser(instance.rookery) as stranger:
        responses = await asyncio.gather(*(stranger.sign_in("ak_" + "x" * 32) for _ in range(60)))

    assert Counter(response.status_code for response in responses) == {401: 10, 429: 50}


async def test_correct_keys_do_not_use_up_the_limit_of_failed_attempts(instance: Instance) -> None:
    """People behind one address sign in at the same time, also after nine mistakes."""
    async with ConsoleUser(instance.rookery) as stranger:
        for _ in range(9):
            assert (await stranger.sign_in("ak_" + "x" * 32)).status_code == 401
        responses = await asyncio.gather(*(stranger.sign_in(instance.admin.key or "") for _ in range(30)))
        last_mistakes = [(await stranger.sign_in("ak_" + "x" * 32)).status_code for _ in range(2)]

    assert Counter(response.status_code for response in responses) == {303: 30}
    assert last_mistakes == [401, 429]


async def test_a_revoked_key_is_signed_out(instance: Instance) -> None:
    """A session ends with its key."""
    key = await instance.api_key("*")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        await instance.admin.send("DELETE", f"/api/v1/api-keys/{key.key_id}")
        response = await user.get("settings")
        assert response.headers["location"] == "./sign-in?next=settings&refused=yes"
        assert "no longer accepted" in (await user.get("sign-in?refused=yes")).text


async def test_forms_of_other_sites_are_refused(instance: Instance, user: ConsoleUser) -> None:
    """A request that changes something comes from a page of this server."""
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {}):
        async with ConsoleUser(instance.rookery, headers) as stranger:
            stranger.http.cookies = user.http.cookies
            assert (await stranger.post("sign-out")).status_code == 403
    assert (await user.get("")).status_code == 200


async def test_a_link_of_another_site_reloads_once(instance: Instance) -> None:
    """A browser withholds a strict cookie when another site links here; the page asks once more by itself."""
    async with ConsoleUser(instance.rookery) as user:
        response = await user.get("settings", {"Sec-Fetch-Site": "cross-site"})
        assert (response.status_code, 'http-equiv="refresh"' in response.text) == (200, True)


async def test_sign_in_leads_to_no_other_site(instance: Instance) -> None:
    """A link to the sign-in page cannot lead away."""
    async with ConsoleUser(instance.rookery) as user:
        for page in ("//evil.example", "https://evil.example", "/servers", "a//b", "../servers"):
            response = await user.sign_in(instance.admin.key or "", page)
            assert response.headers["location"] == "./", page


async def test_a_changed_cookie_is_signed_out(user: ConsoleUser) -> None:
    """A cookie that was not sealed here opens nothing."""
    for value in ("", "x", "AAAA", "ä".encode().hex(), (user.http.cookies["rookery_console"] or "")[:-4] + "AAAA"):
        user.http.cookies.clear()
        user.http.headers["Cookie"] = f"rookery_console={value}"
        assert (await user.get("settings")).status_code == 303, value


async def test_pages_do_not_use_up_the_limit_of_the_key(instance: Instance) -> None:
    """Calls of the console have a limit of their own."""
    key = await instance.agent_key("console:read", "brain:read", rate_limit=1)
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        for _ in range(3):
            assert (await user.get("")).status_code == 200
    assert (await key.get("/v1/brain/tags")).status_code == 200
    assert (await key.get("/v1/brain/tags")).status_code == 429


async def test_a_key_that_loses_the_scope_is_signed_out(instance: Instance) -> None:
    """`console:read` is needed for every page, not only at sign-in."""
    key = await instance.api_key("console:read", "brain:read")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        assert (await user.get("memories")).status_code == 200
        changed = await instance.admin.send("PATCH", f"/api/v1/api-keys/{key.key_id}", {"scopes": ["brain:read"]})
        assert changed.status_code == 200, changed.text
        assert "refused" in (await user.get("memories")).headers["location"]
