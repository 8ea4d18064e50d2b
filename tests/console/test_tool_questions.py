"""A tool that asks for input, answered in the playground."""

from __future__ import annotations

import html
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rookery.console.views.tool_questions import InvalidQuestions, QuestionForm, read_questions, read_submitted
from rookery.kernel.config import Settings
from tests.conftest import Instance, eventually, run_instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.processes import Server, run_server
from tests.reference.browser import find_chromium
from tests.tools.makers import SERVERS

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

TALKER = {"mcpServers": {"talker": {"command": sys.executable, "args": [str(SERVERS / "talker.py")]}}}
SAMPLING = {"method": "sampling/createMessage", "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}]}}


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A server with a tool server whose tools ask for input."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings.servers_file.write_text(json.dumps(TALKER))
    async with run_instance(settings) as opened:

        async def count_tools() -> int:
            return int((await opened.admin.get("/api/v1/mcp/servers/talker/tools")).json()["count"])

        await eventually(count_tools)
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process with the same tool server."""
    find_chromium()
    folder = tmp_path_factory.mktemp("asking")
    Path(folder, "servers.json").write_text(json.dumps(TALKER), encoding="utf-8")
    with run_server(folder) as server:
        yield server


def read_hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of the form of answers, as a browser sends them."""
    form = page.partition("data-answer")[2].partition("</form>")[0]
    pairs = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form)
    return {name: html.unescape(value) for name, value in pairs}


async def start(user: ConsoleUser) -> str:
    """Call the tool that asks, without scripts, and return the page."""
    response = await user.post("tools/talker/invite", {"do": "run", "arguments": '{"event": "tea"}', "base": ""})
    assert (response.status_code, "data-answer" in response.text) == (200, True), get_text(response.text)
    return response.text


async def test_questions_are_answered_without_scripts(user: ConsoleUser) -> None:
    """The questions are a form of their schemas with defaults; the call is repeated with the answers and the state unchanged."""
    page = await start(user)
    text = get_text(page)
    for part in ("input required", "Whom do we invite?", "Only people of this house.", "https://calendar.example/confirm?a=1&b=2"):
        assert part in text, part
    seats = page.split('name="f/input_responses/guest/seats"')[1].split(">")[0]
    assert 'value="2"' in seats
    fields = {"f/input_responses/guest/name": "Ada", "f/input_responses/guest/meal": "1", "do": "accept"}
    again = (await user.post("tools/talker/invite", read_hidden(page) | fields)).text
    done = await user.post("tools/talker/invite", read_hidden(again) | {"do": "decline"})
    outcome = json.loads(html.unescape(re.findall(r"<code>(\{.*?\})</code>", done.text.split('id="output"')[1], re.DOTALL)[0]))
    first = {"date": {"action": "accept"}, "guest": {"action": "accept", "content": {"name": "Ada", "seats": 2, "meal": "greens"}}}
    assert outcome == {"event": "tea", "first": first, "second": {"guest": {"action": "decline"}}}


async def test_wrong_answers_are_shown_at_their_fields(user: ConsoleUser) -> None:
    """A missing value and an invalid number are marked, the input stays, and nothing is sent."""
    page = await start(user)
    fields = {"f/input_responses/guest/name": "", "f/input_responses/guest/seats": "many", "do": "accept"}
    refused = (await user.post("tools/talker/invite", read_hidden(page) | fields)).text
    text = get_text(refused)
    assert ("This field is required." in text, "This is not a number." in text, "many" in text) == (True, True, True)
    fields = {"f/input_responses/guest/name": "<i>Bo</i>", "f/input_responses/guest/seats": "3", "do": "accept"}
    second = await user.post("tools/talker/invite", read_hidden(refused) | fields)
    assert "Whom do we invite?" in second.text
    cancelled = await user.post("tools/talker/invite", read_hidden(second.text) | {"do": "cancel"})
    assert ("successful" in get_text(cancelled.text), "<i>Bo" in cancelled.text) == (True, False)


@pytest.mark.parametrize("fields", [{"questions": ""}, {"questions": "[]"}, {"questions": "{}", "value": "7"}, {"questions": "{"}])
async def test_forms_that_no_page_sends_are_refused(user: ConsoleUser, fields: dict[str, str]) -> None:
    """No request is an internal error."""
    response = await user.post("tools/talker/invite", {"arguments": "{}", "do": "accept"} | fields)
    assert (response.status_code, "Run it again" in response.text) == (422, True)


def test_other_questions_have_forms_too() -> None:
    """The methods of the protocol that ask a model or for folders; their answers have the form of docs/how-to/tool-calls.md."""
    result: dict[str, object] = {"inputRequests": {"model": SAMPLING, "where": {"method": "roots/list"}}}
    form = read_questions(result, "{}")
    assert (form.can_decline, "Hi" in form.list_questions()[0].prompt) == (False, True)
    fields = {"questions": form.questions_text, "value": form.value_text, "arguments": "{}"}
    grown, action = read_submitted(fields | {"edit": "add:/input_responses/where/uris"})
    assert (action, grown.value["where"]) == (None, {"uris": [""]})
    answers = {"f/input_responses/model/text": "Hello", "f/input_responses/where/uris/0": "file:///a", "do": "accept"}
    ended, action = read_submitted(fields | {"value": grown.value_text} | answers)
    assert action == "accept"
    assert ended.build_responses("accept") == {
        "model": {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "person"},
        "where": {"roots": [{"uri": "file:///a"}]},
    }


@pytest.mark.parametrize("requests", [{}, {"a": 7}, {"a": {"method": 1, "params": []}}, {"a": {"params": {"requestedSchema": []}}}])
def test_a_question_of_any_shape_has_a_form(requests: dict[str, object]) -> None:
    """No shape of a question fails: tool servers are not trusted."""
    form = read_questions({"inputRequests": requests, "requestState": 7}, "{}")
    assert [question.name for question, _ in form.list_controls()] == list(requests)
    assert form.state is None


def test_long_questions_have_no_form() -> None:
    """A page has a bound in bytes; the answer is given by the API."""
    assert QuestionForm("{}", {"a": {"params": {"message": "x" * 70_000}}}, None, {}).is_too_long
    with pytest.raises(InvalidQuestions):
        read_submitted({"questions": "[" * 100_000})


async def test_a_person_answers_a_tool(person: BrowserUser) -> None:
    """In a real browser, the answer streams its output in the same place, and nothing violates the policy."""
    await person.go("tools/talker/invite")
    await person.type('[name="f/event"]', "tea")
    await person.wait_for("document.querySelector('#arguments').value.includes('tea')")
    await person.click("#call .primary")
    await person.wait_for_text("Whom do we invite?")
    assert await person.find_faults() == []
    await person.click("[data-answer] .primary")
    await person.wait_for_text("This field is required.")
    await person.type('[name="f/input_responses/guest/name"]', "Ada")
    await person.click("[data-answer] .primary")
    await person.wait_for("!document.body.innerText.includes('calendar.example') && !!document.querySelector('[data-answer]')")
    await person.type('[name="f/input_responses/guest/name"]', "Bo")
    await person.click("[data-answer] .primary")
    await person.wait_for_text("successful")
    await person.wait_for("document.querySelector('#output').innerText.includes('Bo')")
    assert await person.find_faults() == []


_KEEP_STREAMS_OPEN = """
const send = window.fetch;
window.fetch = async (...request) => {
  const response = await send(...request);
  const forward = (controller) => response.body.pipeTo(
    new WritableStream({ write: (part) => controller.enqueue(part) }));  // does not close it
  return new Response(new ReadableStream({ start: (controller) => void forward(controller) }), response);
};
"""


async def test_a_person_answers_before_the_stream_ends(person: BrowserUser) -> None:
    """A form of questions can be sent as soon as it is there."""
    await person.go("tools/talker/invite")
    await person.type('[name="f/event"]', "tea")
    await person.wait_for("document.querySelector('#arguments').value.includes('tea')")
    await person.page.evaluate(_KEEP_STREAMS_OPEN)
    await person.click("#call .primary")
    await person.type('[name="f/input_responses/guest/name"]', "Ada")
    await person.click("[data-answer] .primary")
    await person.wait_for("!document.body.innerText.includes('calendar.example') && !!document.querySelector('[data-answer]')")
