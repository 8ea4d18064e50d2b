"""Keys in the console: create with one-time reveal, rotate, suspend, revoke; only what the own key may do."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

AGENT = {"kind": "agent", "name": "reviewer", "preset": "agent", "rate_limit": "60", "ip_list": "10.0.0.0/8\n192.0.2.1"}


async def _create(user: ConsoleUser, fields: dict[str, str]) -> tuple[str, str]:
    """Create a key; return its secret and the path of its page."""
    response = await user.post(f"keys/{fields['kind']}/new", fields)
    secret = re.search(r"(?:sk_live_|ak_)[A-Za-z0-9]{32}", response.text)
    path = re.search(r'href="\.\./\.\./(keys/(?:api|agent)/[^"?]+)"', response.text)
    assert secret is not None, get_text(response.text)
    assert path is not None
    return secret.group(), path.group(1)


async def test_a_key_is_created_and_shown_once(instance: Instance, user: ConsoleUser) -> None:
    """The secret is in the response that creates the key, and on no page after it."""
    secret, path = await _create(user, {"kind": "api", "name": "billing", "scopes": "brain:read", "expires_at": "30"})
    assert (await instance.caller(secret).get("/v1/brain/tags")).status_code == 200
    page = (await user.get(path)).text
    assert secret not in page
    assert "billing" in await user.read("keys")
    assert "<dt>Expires</dt><dd>never" not in page


async def test_an_agent_key_has_its_limits(user: ConsoleUser) -> None:
    """The form sets the preset, the rate limit and the addresses."""
    _, path = await _create(user, AGENT)
    text = await user.read(path)
    assert "60 a minute" in text
    assert "10.0.0.0/8, 192.0.2.1" in text
    assert "reviewer" in await user.read("keys?kind=agent")


async def test_a_refused_form_keeps_its_values(user: ConsoleUser) -> None:
    """Faults are at their fields, and nothing that was typed is lost."""
    response = await user.post("keys/agent/new", AGENT | {"ip_list": "10.0.0.0/8\nnonsense", "rate_limit": "many"})
    assert (response.status_code, "must be an integer; got" in response.text, "nonsense" in response.text) == (422, True, True)


async def test_a_key_is_changed_rotated_suspended_and_revoked(instance: Instance, user: ConsoleUser) -> None:
    """Each change is that of the API, with its effect at once."""
    secret, path = await _create(user, {"kind": "agent", "name": "bot", "permissions": "brain:read", "rate_limit": "600"})
    await user.post(f"{path}/edit", [("name", "robot"), ("permissions", "brain:read"), ("permissions", "mcp:read")])
    assert "robot" in await user.read(path)
    rotated = await user.post(f"{path}/rotate", {"grace_period_hours": "0"})
    new_secret = re.search(r"ak_[A-Za-z0-9]{32}", rotated.text)
    new_path = re.search(r'href="(?:\.\./)+(keys/agent/[^"?]+)"', rotated.text)
    assert new_secret is not None
    assert new_path is not None
    path = new_path.group(1)
    assert (await instance.caller(secret).get("/v1/brain/tags")).status_code == 401
    key = instance.caller(new_secret.group())
    assert (await key.get("/v1/brain/tags")).status_code == 200
    await user.post(f"{path}/state", {"action": "suspend"})
    assert "Suspended" in await user.read(path)
    await user.post(f"{path}/state", {"action": "resume"})
    await user.post(f"{path}/delete")
    assert (await key.get("/v1/brain/tags")).status_code == 401
    assert "Revoked" in await user.read(path)


async def test_controls_are_shown_to_those_who_may_use_them(instance: Instance) -> None:
    """A control that the key may not use is not shown; the API refuses it as well."""
    key = await instance.api_key("console:read", "keys:read")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        listed = (await user.get("keys")).text
        page = (await user.get(f"keys/api/{key.key_id}")).text
        assert [word for word in ("New key", "Rotate", "Suspend", "Revoke", "Save") if re.search(rf"{word}\s*<", listed + page)] == []
        assert (await user.post("keys/agent/new", AGENT)).status_code == 403


async def test_keys_of_other_workspaces_do_not_exist(instance: Instance, user: ConsoleUser) -> None:
    """Two tenants: the page of another workspace's key is 404."""
    other = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    assert (await user.get(f"keys/api/{other.key_id}")).status_code == 404
    assert (await user.post(f"keys/api/{other.key_id}/delete")).status_code == 404


async def test_names_are_texts(user: ConsoleUser) -> None:
    """Names with markup and quotes are shown as they are."""
    name = """<script>alert("1")</script> & 'co'"""
    _, path = await _create(user, {"kind": "api", "name": name, "scopes": "brain:read"})
    for page in ("keys", path, "audit"):
        assert "<script>alert" not in (await user.get(page)).text


async def test_a_key_is_created_and_revoked_in_a_browser(person: BrowserUser) -> None:
    """Create and revoke a key."""
    await person.go("keys/api/new")
    await person.type("#name", "nightly import")
    await person.click("input[value='brain:read']")
    assert await person.find_faults() == []
    await person.click("main button.primary")
    await person.wait_for_text("Copy the key now")
    assert await person.find_faults() == []
    await person.click("main a.primary")
    await person.wait_for_text("Facts")
    await person.click("[commandfor=revoke]")
    await person.wait_for("document.querySelector('#revoke').open")
    assert await person.find_faults() == []
    await person.click("#revoke form[method=post] button")
    await person.wait_for_text("Revoked.")


async def test_keys_are_found_by_their_name(user: ConsoleUser, instance: Instance) -> None:
    """Lists are searched by the server. Wildcards of SQL are texts, and case does not matter."""
    for name in ("Billing 100%", "billing_2", "import"):
        await _create(user, {"kind": "api", "name": name, "scopes": "brain:read"})
    found = {text: (await instance.admin.get(f"/api/v1/api-keys?q={text}")).json()["data"] for text in ("BILL", "100%25", "g_2", "%25%25")}
    assert {text: sorted(key["name"] for key in keys) for text, keys in found.items()} == {
        "BILL": ["Billing 100%", "billing_2"],
        "100%25": ["Billing 100%"],
        "g_2": ["billing_2"],
        "%25%25": [],
    }
    text = await user.read("keys?q=bill")
    assert ("billing_2" in text, "import" in text) == (True, False)


async def test_a_form_without_a_name_is_shown_again(user: ConsoleUser) -> None:
    """A request that no page sends gets a page that says what was wrong."""
    response = await user.post("keys/api/new", {"scopes": "brain:read"})
    assert (response.status_code, "New API key" in response.text) == (422, True)


async def test_a_suspended_key_can_be_resumed_and_revoked(user: ConsoleUser) -> None:
    """A suspended key is labelled Revoked by the API. Its page still has the buttons for it; that of a revoked key has none."""
    _, path = await _create(user, {"kind": "agent", "name": "bot", "permissions": "brain:read", "rate_limit": "600"})
    await user.post(f"{path}/state", {"action": "suspend"})
    page = (await user.get(path)).text
    assert [word for word in ("Resume", "Revoke", "Save") if re.search(rf">{word}<", page)] == ["Resume", "Revoke", "Save"]
    assert not re.search(r">Rotate<", page)
    await user.post(f"{path}/delete")
    page = (await user.get(path)).text
    assert [word for word in ("Resume", "Revoke", "Save", "Rotate") if re.search(rf">{word}<", page)] == []


async def test_a_refused_change_keeps_its_values(user: ConsoleUser) -> None:
    """Faults of a change are at their fields."""
    _, path = await _create(user, {"kind": "api", "name": "billing", "scopes": "brain:read"})
    response = await user.post(f"{path}/edit", [("name", "x" * 300), ("scopes", "mcp:read")])
    assert (response.status_code, "x" * 300 in response.text, 'class="error"' in response.text) == (422, True, True)
    assert re.search(r'value="mcp:read" checked', response.text)
    without = await user.post(f"{path}/edit", [("name", "billing"), ("shown", '{"scopes": "1"}')])
    assert (without.status_code, 'class="error"' in without.text) == (422, True)
    await user.post(f"{path}/edit", [("name", "billing"), ("scopes", "mcp:read"), ("expires_at", "30")])
    assert "<dt>Expires</dt><dd>never" not in (await user.get(path)).text


async def test_only_scopes_that_can_be_granted_are_offered(user: ConsoleUser) -> None:
    """Only the command line grants platform scopes, so that the form does not offer what would fail."""
    page = (await user.get("keys/api/new")).text
    assert 'value="brain:read"' in page
    assert 'value="platform:' not in page
