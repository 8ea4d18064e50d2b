"""Forms made from operations: they have every field of the API, send only what was changed, and show what they do not change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from inspect import signature
from typing import Any

import pytest

from rookery.console.operation_forms import ResourceForm
from rookery.console.views.campaigns import CAMPAIGN_FORM
from rookery.console.views.keys import KEY_FORMS
from rookery.console.views.subscribers import SUBSCRIBER_FORM
from rookery.console.views.webhooks import WEBHOOK_FORM
from rookery.kernel.config import Settings
from rookery_client import AsyncRookery
from tests.conftest import Instance
from tests.console.browsing import ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

_PUSH_KEYS = {
    "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
    "auth": "BTBZMqHH6r4Tts7J_aSIgg",
}
_RESTRICTIONS = {"servers": ["brain"], "tools": [], "orgs": ["acme"], "projects": None, "tool_limits": {"brain/*": 60}}
RESOURCES: dict[str, tuple[ResourceForm, str, dict[str, Any]]] = {
    "webhook": (
        WEBHOOK_FORM,
        "/api/v1/webhooks",
        {"url": "http://127.0.0.1:9/hook", "events": ["memory.*", "plan.created"], "description": "Chat", "concurrency": 2},
    ),
    "campaign": (
        CAMPAIGN_FORM,
        "/api/agent/notify/campaigns",
        {
            "name": "News",
            "title": "Hello",
            "body": "One\n\n  two\nthree",
            "url": "https://example.com/{{first_name}}",
            "audience": {"tags": ["beta", "alpha"]},
            "channels": ["email", "webhook"],
            "variables": {"number": 5, "text": "5", "is_new": True},
            "rate_per_second": 0.5,
            "ttl_s": 60,
            "schedule": {"at": f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}T10:00", "time_zone": "Europe/Berlin"},
        },
    ),
    "subscriber": (
        SUBSCRIBER_FORM,
        "/api/agent/notify/subscribers",
        {
            "external_id": "ada",
            "tags": ["beta", "alpha"],
            "attributes": {"first_name": "Ada", "age": 36},
            "locale": "de-AT",
            "channels": [
                {"type": "email", "address": "ada@example.com"},
                {"type": "webhook", "url": "http://127.0.0.1:9/hook?token=secret"},
                {"type": "webpush", "endpoint": "http://127.0.0.1:9/push", "keys": _PUSH_KEYS},
            ],
        },
    ),
    "api key": (KEY_FORMS["api"], "/api/v1/api-keys", {"name": "billing", "scopes": ["brain:read"], "agent_id": "ada", **_RESTRICTIONS}),
    "agent key": (
        KEY_FORMS["agent"],
        "/api/v1/agent-keys",
        {"name": "bot", "permissions": ["brain:read", "mcp:*"], "rate_limit": 60, "ip_list": ["10.0.0.0/8"], **_RESTRICTIONS},
    ),
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings that let addresses be on this host."""
    return replace(settings, egress_allow=("127.0.0.0/8",))


class _FormParser(HTMLParser):
    """Collects the fields that a browser would send for the last form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.fields = list[tuple[str, str]]()
        self._name = self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect a control."""
        each = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.names, self.fields = set[str](), []
        if tag in {"input", "textarea", "select"} and "name" in each:
            self.names.add(each["name"])
        if tag == "textarea":
            self._name, self._text = each["name"], ""
        elif tag == "select":
            self._name = each["name"]
        elif tag == "option" and "selected" in each and self._name:
            self.fields.append((self._name, each["value"]))
        elif tag == "input" and "name" in each and ("checked" in each or each.get("type") not in {"checkbox", "radio"}):
            self.fields.append((each["name"], each.get("value", "")))

    def handle_data(self, data: str) -> None:
        """Collect the text of a text area."""
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        """End a text area, without the line break after its tag."""
        if tag == "textarea":
            self.fields.append((self._name, self._text.removeprefix("\n").replace("\n", "\r\n")))
        if tag in {"textarea", "select"}:
            self._name = ""


async def _read_form(user: ConsoleUser, path: str) -> _FormParser:
    parser = _FormParser()
    response = await user.get(path)
    assert response.status_code == 200, get_text(response.text)
    parser.feed(response.text)
    return parser


def _change(fields: list[tuple[str, str]], values: Mapping[str, str | list[str]]) -> list[tuple[str, str]]:
    """Return the fields of a form with other values."""
    new = [(name, text) for name, value in values.items() for text in ([value] if isinstance(value, str) else value)]
    return [*((name, value) for name, value in fields if name not in values), *new]


async def _create(instance: Instance, kind: str) -> tuple[str, str, dict[str, Any]]:
    """Create a resource by the API; return its path, that of its form, and the resource."""
    form, path, fields = RESOURCES[kind]
    response = await instance.admin.post(path, fields)
    assert response.status_code == 201, response.text
    one = f"{path}/{response.json()['id']}"
    return one, f"{form.path}/{response.json()['id']}/edit", (await instance.admin.get(one)).json()


@pytest.mark.parametrize("kind", RESOURCES)
async def test_forms_have_every_field(instance: Instance, user: ConsoleUser, kind: str) -> None:
    """Each field of the bodies of create and change has a control, except those for which a page has a button."""
    form = RESOURCES[kind][0]
    _, path, _ = await _create(instance, kind)
    for operation, page in ((form.create, f"{form.path}/new"), (form.change, path)):
        parameters = signature(getattr(getattr(AsyncRookery("http://localhost", "key"), form.client), operation)).parameters.values()
        fields = {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} - {"if_match", "idempotency_key"} - form.hidden
        controls = {name.partition(".")[0].partition("-")[0] for name in (await _read_form(user, page)).names}
        assert controls == fields | {"shown"}


@pytest.mark.parametrize("kind", RESOURCES)
async def test_an_unchanged_form_changes_nothing(instance: Instance, user: ConsoleUser, kind: str) -> None:
    """Every value survives its way through the controls, so that a form that nobody touched sends nothing."""
    one, path, before = await _create(instance, kind)
    form = await _read_form(user, path)
    count = (await instance.admin.get("/api/v1/audit")).json()["meta"]["total"]
    assert (await user.post(path, form.fields)).status_code == 303
    assert (await instance.admin.get(one)).json() == before
    assert (await instance.admin.get("/api/v1/audit")).json()["meta"]["total"] == count


async def test_two_people_change_different_fields(instance: Instance, user: ConsoleUser) -> None:
    """A form sends only the controls that were changed, so that the one who saves last does not undo the change of another."""
    one, path, _ = await _create(instance, "campaign")
    form = await _read_form(user, path)
    await instance.admin.send("PATCH", one, {"title": "Hi", "audience": {"all": True}})
    await user.post(path, _change(form.fields, {"body": "They nest on the roof.", "variables": "number: 6"}))
    campaign = (await instance.admin.get(one)).json()
    assert (campaign["title"], campaign["body"], campaign["variables"]) == ("Hi", "They nest on the roof.", {"number": 6})
    assert campaign["audience"]["all"] is True


async def test_restrictions_of_a_key_are_chosen_and_shown(instance: Instance, user: ConsoleUser) -> None:
    """All, some and none differ. The page of the key says which one holds."""
    one, path, _ = await _create(instance, "agent key")
    form = await _read_form(user, path)
    assert ("servers", "brain") in form.fields
    limits = ["brain/*", "6", "web/*", "7"]
    tools = {"tools-choice": "[]", "tools": "brain/*", "tools-lines": "web/a\r\nweb/b"}
    changes = {"servers-choice": "[*]", "projects-choice": "[]", "tool_limits": limits, **tools}
    assert (await user.post(path, _change(form.fields, changes))).status_code == 303
    key = (await instance.admin.get(one)).json()
    assert {name: key[name] for name in _RESTRICTIONS} == {
        "servers": None,
        "tools": ["brain/*", "web/a", "web/b"],
        "orgs": ["acme"],
        "projects": [],
        "tool_limits": {"brain/*": 6, "web/*": 7},
    }
    text = await user.read(path.removesuffix("/edit"))
    assert "Tools brain/*, web/a, web/b Orgs acme Projects none Limits of tools brain/*: 6 a minute, web/*: 7 a minute" in text
    refused = await user.post(path, _change(form.fields, {"tool_limits": ["web/*", "many"]}))
    assert (refused.status_code, 'value="many"' in refused.text) == (422, True)


async def test_no_item_lifts_or_widens_a_restriction(instance: Instance, user: ConsoleUser) -> None:
    """Anyone who stores memories names an org. A box stands for that name exactly, whatever it is."""
    for org in ("[*]", "[]", "acme", "acme ", "team\nsecret"):
        await instance.admin.post("/v1/brain/remember", {"type": "fact", "content": f"A note of {org!r}.", "org": org})
    path = "keys/api/new"
    form = await _read_form(user, path)
    fields = _change(form.fields, {"name": "bot", "scopes": "brain:read", "orgs-choice": "[]"})
    for box in ("acme", "[*]", "acme "):
        response = await user.post(path, [*fields, ("orgs", box)])
        keys = (await instance.admin.get("/api/v1/api-keys")).json()["data"]
        assert (response.status_code < 400, [box] in [key["orgs"] for key in keys]) == (True, True), get_text(response.text)
    refused = await user.post(path, [*fields, ("orgs", "team\r\nsecret")])

    assert ("orgs", "[*]") not in form.fields
    assert (refused.status_code, "must have entries of 1 to 256 printable characters" in refused.text) == (422, True)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"orgs-choice": "[*]", "orgs": "acme"}, "has items, and also 'All'"),
        ({"orgs-choice": [], "orgs": "acme"}, "choose 'All' or 'Only these'"),
        ({"orgs-choice": []}, "choose 'All' or 'Only these'"),
        ({"expires_at": ["at", ""]}, "choose a time, or 'never'"),
    ],
)
async def test_a_contradiction_never_means_no_restriction(
    instance: Instance, user: ConsoleUser, values: dict[str, str | list[str]], text: str
) -> None:
    """A browser may show the boxes beside the choice of all, or send nothing of a choice."""
    form = await _read_form(user, "keys/api/new")
    count = (await instance.admin.get("/api/v1/api-keys")).json()["meta"]["total"]
    response = await user.post("keys/api/new", _change(form.fields, {"name": "bot", "scopes": "brain:read", **values}))

    assert (response.status_code, text in get_text(response.text)) == (422, True)
    assert (await instance.admin.get("/api/v1/api-keys")).json()["meta"]["total"] == count


async def test_what_a_key_may_not_read_it_cannot_overwrite(instance: Instance) -> None:
    """Without audit:read the API tells no addresses. An empty field would look like an empty list."""
    one, path, _ = await _create(instance, "agent key")
    key = await instance.api_key("console:read", "keys:*", "brain:*", "mcp:*")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        form = await _read_form(user, path)
        await user.post(path, _change(form.fields, {"name": "renamed"}))
    after = (await instance.admin.get(one)).json()

    assert "ip_list" not in {name.partition("-")[0] for name in form.names}
    assert (after["name"], after["ip_list"]) == ("renamed", ["10.0.0.0/8"])


async def test_a_time_that_is_hidden_by_never_does_not_count(instance: Instance, user: ConsoleUser) -> None:
    """The field of the time keeps its text while another choice hides it."""
    one, path, _ = await _create(instance, "api key")
    await instance.admin.send("PATCH", one, {"expires_at": "2099-01-01T00:00:00Z"})
    form = await _read_form(user, path)
    await user.post(path, _change(form.fields, {"expires_at": ["", "2099-01-01T00:00"]}))

    assert (await instance.admin.get(one)).json()["expires_at"] is None


async def test_a_subscriber_is_created_and_changed(instance: Instance, user: ConsoleUser) -> None:
    """Channels are lines. Those that stay keep their id, also if a part of their address is hidden."""
    one, path, before = await _create(instance, "subscriber")
    form = await _read_form(user, path)
    lines = next(value for name, value in form.fields if name == "channels")
    assert "secret" not in lines
    changed = await user.post(path, _change(form.fields, {"channels": lines.replace("email: ada@", "email: lovelace@"), "locale": ""}))
    assert changed.headers["location"] == "../../subscribers?done=saved"
    after = (await instance.admin.get(one)).json()
    assert [channel["id"] for channel in after["channels"][1:]] == [channel["id"] for channel in before["channels"][1:]]
    assert (after["channels"][0]["address"], after["locale"], after["tags"]) == ("lovelace@example.com", None, before["tags"])
    fields = {"external_id": "bob", "channels": "fax: 1"}
    refused = await user.post("subscribers/new", fields)
    assert (refused.status_code, "fax: 1" in refused.text, "0.type" in refused.text) == (422, True, True)
    assert (await user.post("subscribers/new", fields | {"channels": "email: bob@example.com"})).status_code == 303
    assert "bob" in await user.read("subscribers?q=bob")
