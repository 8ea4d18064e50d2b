"""Generations, prompt templates, usage and budgets in the console."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import ANSWER, KEY, ChatService, answer, build_events, hang, run_chat_service, stream_parts
from tests.conftest import Instance, eventually, run_instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.processes import Server, run_server
from tests.reference.browser import find_chromium

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

PRICES = (("*", 1_000, 2_000),)
TEMPLATE = {
    "slug": "note",
    "name": "Release note",
    "system": "Write in a {{ tone }} tone.",
    "prompt": "Write about {{ product }}.",
    "variables": '{"product": {"description": "Its name"}, "tone": {"default": "dry"}}',
}


@pytest.fixture
def provider() -> Iterator[ChatService]:
    """A scripted provider."""
    with run_chat_service() as service:
        yield service


@pytest.fixture
async def writer(settings: Settings, provider: ChatService) -> AsyncIterator[ConsoleUser]:
    """A person who is signed in to a server with the provider."""
    configured = replace(settings, generation=Secret(provider.url("ok", key=KEY)), generation_prices=PRICES)
    async with run_instance(configured) as instance, ConsoleUser(instance.rookery) as user:
        await user.sign_in(instance.admin.key or "")
        yield user


@pytest.fixture
def server(provider: ChatService, tmp_path: Path) -> Iterator[Server]:
    """A server in its own process, with the provider."""
    find_chromium()
    with run_server(tmp_path, generation=provider.url(), generation_prices="*=1/2") as server:
        yield server


async def _generate(user: ConsoleUser, **fields: str) -> str:
    """Submit the form and return the path of the page of its generation."""
    response = await user.post("content/new", {"prompt": "Say <b>hello</b>.", "mode": "sync"} | fields)
    assert response.status_code == 303, get_text(response.text)[-1000:]
    return response.headers["location"].partition("?")[0].removeprefix("../")


async def test_a_generation_shows_its_messages_answer_and_cost(writer: ConsoleUser) -> None:
    """The answer with tokens, cost and latency, its score, and a link to the section Scoring."""
    path = await _generate(writer, system="Be short.")
    page = (await writer.get(path)).text
    text = get_text(page)
    assert ANSWER in text
    assert "System Be short. User Say <b>hello</b>." in text
    assert "<b>hello" not in page
    assert "0.0000" in text
    assert f"scoring?generation={path.removeprefix('content/')}" in page
    assert "ok" in await writer.read("content?status=succeeded&mode=sync&since=1&model=ok")
    assert "No generation fits" in await writer.read("content?status=failed")


async def test_an_answer_of_json_is_shown_as_json(writer: ConsoleUser) -> None:
    """The output as JSON, with the schema that it matches."""
    path = await _generate(writer, schema='{"type": "object"}')
    page = await writer.read(path)
    assert "JSON schema" in page
    assert "json_schema" in page


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("schema", "{", "is not JSON"),
        ("schema", "[]", "must be a JSON object"),
        ("temperature", "warm", "must be a number; got"),
        ("temperature", "nan", "must be a number; got"),
        ("max_tokens", "0", "max_tokens"),
    ],
)
async def test_a_refused_form_keeps_its_values(writer: ConsoleUser, provider: ChatService, field: str, value: str, problem: str) -> None:
    """The form is shown again with what was written and the reason, and no provider is called. It is the same for a live answer."""
    for path in ("content/new", "content/stream"):
        response = await writer.post(path, {"prompt": "A heron", "mode": "stream", field: value})
        text = get_text(response.text)
        assert (response.status_code, "A heron" in text, problem in text) == (422, True, True)
    assert provider.requests == []


async def test_a_failed_generation_has_its_reason_and_can_be_repeated(writer: ConsoleUser) -> None:
    """The error with its reason; retry queues a copy."""
    path = await _generate(writer, model="no-such-model")
    assert "does not exist" in await writer.read(path)
    copy = (await writer.post(f"{path}/retry")).headers["location"]
    assert "Repeats an earlier generation" in await writer.read(copy.removeprefix("../../").partition("?")[0])


async def test_a_queued_generation_can_be_cancelled(writer: ConsoleUser, provider: ChatService) -> None:
    """The page of an unfinished generation repeats its request, and has a button that cancels."""
    path = await _generate(writer, mode="queued", model="hold")
    page = (await writer.get(path)).text
    assert "every 2s" in page
    await writer.post(f"{path}/cancel")
    page = (await writer.get(path)).text
    assert "cancelled" in page
    assert "every 2s" not in page
    provider.is_released.set()


async def test_a_live_answer_is_a_stream_of_events(writer: ConsoleUser) -> None:
    """The console passes on the events of the API."""
    response = await writer.post("content/stream", {"prompt": "A heron", "mode": "stream"})
    assert response.headers["content-type"].startswith("text/event-stream")
    assert re.findall("^event: (start|done)", response.text, re.MULTILINE) == ["start", "done"]
    assert response.text.count("event: delta") > 1


async def test_a_live_answer_is_shown_as_it_is_written(person: BrowserUser, server: Server, provider: ChatService) -> None:
    """The answer appears while the provider writes it, leaving the page cancels the call, and a whole answer has its page."""
    provider.queue.append(stream_parts(build_events()[:3], then=hang))
    await person.go("content/new")
    await person.type("#prompt", "A heron")
    await person.click("form[data-live] button.primary")
    await person.wait_for("document.querySelector('[data-live-text]').textContent === 'The heron '")
    assert provider.disconnects == 0
    await person.go("content")
    await eventually(lambda: provider.disconnects == 1)
    await eventually(lambda: server.client.get("/api/agent/content/generations").json()["data"][0]["status"] == "cancelled")

    await person.go("content/new")
    await person.type("#prompt", "A heron")
    await person.click("form[data-live] button.primary")
    await person.wait_for_text("succeeded, 17 output tokens")
    assert await person.page.evaluate("document.querySelector('[data-live-text]').textContent") == ANSWER
    assert await person.find_faults() == []
    await person.click("[data-live-link]")
    await person.wait_for("/content.[0-9a-f-]{36}$/.test(location.pathname)")
    await person.wait_for_text(ANSWER)


async def test_long_texts_are_cut(writer: ConsoleUser, provider: ChatService) -> None:
    """Every page has a bound in bytes, also with long hostile texts."""
    provider.queue.append(answer("<script>'\"&" * 10_000))
    path = await _generate(writer, prompt="<script>'\"&" * 9_000)
    response = await writer.get(path)
    assert response.status_code == 200
    assert len(response.content) < MAX_PAGE_BYTES
    assert "<script>'" not in response.text
    assert "more characters are not shown" in response.text


async def test_a_server_without_a_provider_says_which_settings_to_set(user: ConsoleUser) -> None:
    """503 `generation_not_configured` becomes a page with the settings."""
    for path in ("content/new", "content/stream"):
        response = await user.post(path, {"prompt": "A heron", "mode": "sync"})
        assert (response.status_code, "ROOKERY_GENERATION" in response.text) == (503, True)


async def test_a_template_is_written_previewed_and_used(writer: ConsoleUser) -> None:
    """Versions, a preview with variables, and generations by it."""
    assert (await writer.post("content/templates/new", TEMPLATE)).status_code == 303
    preview = await writer.post("content/templates/note", {"version": "1", "variable-product": "the <kettle>"})
    assert "Write about the <kettle>." in get_text(preview.text)
    assert (await writer.post("content/templates/note", {"version": "1"})).status_code == 422
    edit = (await writer.get("content/templates/note/edit")).text
    assert "Write in a {{ tone }} tone." in edit
    changed = TEMPLATE | {"prompt": "Praise {{ product }}.", "version": "1"}
    assert (await writer.post("content/templates/note/edit", changed)).status_code == 303
    assert (await writer.post("content/templates/note/edit", changed)).status_code == 409
    assert "Write about" in await writer.read("content/templates/note?version=1")
    assert "variable-product" in (await writer.get("content/new?template=note")).text
    path = await _generate(writer, **{"template": "note", "variable-product": "tea"})
    assert "Praise tea." in await writer.read(path)
    assert "note v2" in await writer.read("content?template=note")
    await writer.post("content/templates/note/delete")
    assert (await writer.get("content/templates/note")).status_code == 404


async def test_a_template_with_faults_is_shown_again(user: ConsoleUser) -> None:
    """Faults of JSON fields and of the API are beside the fields."""
    for fields in ({"variables": "{"}, {"messages": '[{"role": "cat"}]'}, {"slug": "No slug!"}):
        response = await user.post("content/templates/new", TEMPLATE | fields)
        assert (response.status_code, "Release note" in response.text) == (422, True)


async def test_usage_and_budgets(writer: ConsoleUser) -> None:
    """Usage by day with a chart, and budgets that are set and deleted."""
    await _generate(writer)
    page = (await writer.get("content/usage?days=7")).text
    assert "data-chart" in page
    assert "Requests 1 Failed 0" in get_text(page)
    assert "By day, key and model Day Key Model" in get_text(page)
    assert " first key ok 1 0 11 + 17 " in get_text(page)
    assert (await writer.post("content/budgets", {"key_id": "", "daily": "5"})).status_code == 303
    assert "Workspace set here 5.00" in await writer.read("content/budgets")
    assert (await writer.post("content/budgets", {"daily": "much"})).status_code == 422
    assert (await writer.post("content/budgets/delete", {"key_id": ""})).status_code == 303
    assert "set here" not in await writer.read("content/budgets")


async def test_templates_are_found_by_their_slug_or_name(user: ConsoleUser) -> None:
    """Every list is searched by the server. Wildcards of SQL are texts, and case does not matter."""
    for slug, name in (("weekly-report", "Report of the week"), ("poem", "A 100% rhyme")):
        await user.post("content/templates/new", TEMPLATE | {"slug": slug, "name": name})
    for words, expected in (("REPORT", (True, False)), ("poe", (False, True)), ("0%25", (False, True)), ("e%25", (False, False))):
        text = await user.read(f"content/templates?q={words}")
        assert ("Report of the week" in text, "rhyme" in text) == expected, words
    assert "No template matches" in await user.read("content/templates?q=e%25")


async def test_budgets_of_many_keys_have_names_pages_and_a_search(user: ConsoleUser, instance: Instance) -> None:
    """Every list is paged and searched by the server, also beyond 100 keys, and for keys of both kinds."""
    keys = [await instance.api_key("content.read") for _ in range(101)]
    agent = await instance.agent_key("content.read")
    for key in (*keys, agent):
        assert (await user.post("content/budgets", {"key_id": key.key_id, "daily": "2"})).status_code == 303
    first = (await user.get("content/budgets")).text
    assert ("1–25 of 104" in get_text(first), agent.key_id in first) == (True, True)
    last = await user.read("content/budgets?page=5")
    assert ("101–104 of 104" in last, keys[-1].key_id in last) == (True, False)
    found = get_text((await user.get("content/budgets?q=AGENT")).text)
    assert ("1–1 of 1" in found, "agent " in found) == (True, True)
    assert "No budget of such a key" in await user.read("content/budgets?q=nothing-like-this")


async def test_a_batch_has_its_progress(settings: Settings, provider: ChatService) -> None:
    """A batch with how many of its generations are at their end."""
    configured = replace(settings, generation=Secret(provider.url("ok", key=KEY)), generation_prices=PRICES)
    async with run_instance(configured) as instance, ConsoleUser(instance.rookery) as user:
        await user.sign_in(instance.admin.key or "")
        created = await instance.admin.post("/api/agent/content/batches", {"requests": [{"prompt": "a"}, {"prompt": "b"}]})
        path = f"content/batches/{created.json()['id']}"
        await eventually(lambda: _is_ended(user, path))
        await eventually(lambda: _is_listed(user, created.json()["id"]))
        assert "No batch is running" in await user.read("content/batches?status=running")


async def _is_listed(user: ConsoleUser, batch_id: str) -> bool:
    return batch_id in await user.read("content/batches?status=finished")


async def _is_ended(user: ConsoleUser, path: str) -> bool:
    return "2 of 2" in await user.read(path)


async def test_a_reader_sees_no_controls(instance: Instance) -> None:
    """A control that the key may not use is not shown."""
    key = await instance.api_key("console:read", "content.read")
    async with ConsoleUser(instance.rookery) as reader:
        await reader.sign_in(key.key or "")
        pages = [("content", "New generation"), ("content/templates", "New template"), ("content/budgets", "Set a budget")]
        assert [path for path, control in pages if control in await reader.read(path)] == []


async def test_content_of_other_workspaces_does_not_exist(instance: Instance, user: ConsoleUser) -> None:
    """Two tenants: no page and no action finds another workspace's template or generation."""
    await user.post("content/templates/new", TEMPLATE)
    other = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(other.key or "")
        assert (await stranger.get("content/templates/note")).status_code == 404
        assert (await stranger.post("content/templates/note/delete")).status_code == 404
        for path in ("content/01a208de-e933-71e1-bcf9-215c932a2131", "content/batches/01a208de-e933-71e1-bcf9-215c932a2131"):
            assert (await stranger.get(path)).status_code == 404
