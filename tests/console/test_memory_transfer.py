"""Export and import of memories in the console."""

from __future__ import annotations

import html
import json

import pytest

from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser
from tests.processes import Server

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

MEM0_ID = "0d3e7d2c-6f7e-4a0e-9c53-5e8c9b1f0a11"
CHOOSE_FILE = """
(() => {
  const chosen = new DataTransfer(), input = document.getElementById("file");
  chosen.items.add(new File([%(content)s], "%(name)s"));
  input.files = chosen.files;
  input.dispatchEvent(new Event("change", {bubbles: true}));
})()
"""
MEMORIES = (
    {"type": "decision", "content": "We deploy on Tuesdays.", "project": "infra", "tags": ["deploy"], "confidence": 0.9},
    {"type": "fact", "content": "Die Brücke — “quoted”, \u2028 and <b>bold</b>.", "memory_scope": "shared", "org": "heronry"},
)


async def test_an_export_is_imported_elsewhere(instance: Instance, user: ConsoleUser) -> None:
    """The lines of an export store the same memories in another workspace."""
    lines = "\n".join(json.dumps(memory, ensure_ascii=False) for memory in MEMORIES)
    assert "2 stored" in (await user.post("memories/transfer", {"lines": lines})).text
    export = await user.get("memories/export")
    assert export.headers["content-disposition"] == 'attachment; filename="memories.jsonl"'
    contents = sorted(str(json.loads(line)["content"]) for line in export.text.strip().split("\n"))
    assert contents == sorted(str(memory["content"]) for memory in MEMORIES)
    assert "Tuesdays" not in (await user.get("memories/export?project=other")).text

    other = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(other.key or "")
        assert (await stranger.get("memories/export")).text == ""
        await stranger.post("memories/transfer", {"lines": export.text})
        assert (await stranger.get("memories/export")).text.count("\n") == len(MEMORIES)


async def test_lines_with_faults_are_named(user: ConsoleUser) -> None:
    """Good lines are stored, and each bad one has its number and reason."""
    lines = ['{"type": "fact", "content": "good"}', "no json", "[1]", '{"type": "fact"}', "", "[" * 100_000]
    response = await user.post("memories/transfer", {"lines": "\n".join(lines)})
    for text in ("1 stored", "4 with faults", "Line 2: is not JSON", "Line 3: is not a JSON object", "Line 4:", "Line 6: is not JSON"):
        assert text in response.text, text


async def test_a_reader_cannot_import(instance: Instance) -> None:
    """The form is not shown to a key that may only read, and its request is refused."""
    reader = await instance.api_key("console:read", "brain:read")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(reader.key or "")
        assert "Import" not in (await user.get("memories/transfer")).text.replace("Export and import", "")
        assert (await user.post("memories/transfer", {"lines": "{}"})).status_code == 403


async def test_lines_with_faults_stay_for_another_try(user: ConsoleUser) -> None:
    """The lines that were not stored are in the form again, in their order; those that were stored are not."""
    lines = ["not JSON", '{"type": "fact", "content": "Stored."}', '{"type": "no type!", "content": "x"}', "[]"]
    page = (await user.post("memories/transfer", {"lines": "\n".join(lines)})).text
    textarea = html.unescape(page.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0])
    assert textarea.split("\n") == [lines[0], lines[2], lines[3]]


async def test_a_check_stores_nothing(user: ConsoleUser) -> None:
    """A check lists what would be stored, names the faults, and leaves the text for the import."""
    lines = '{"type": "fact", "content": "Herons nest in colonies."}\nno json'
    page = (await user.post("memories/transfer", {"lines": lines, "check": "1"})).text
    for text in (
        "1 memory can be imported, 1 with faults. Nothing was stored.",
        "Line 2: is not JSON",
        "<td>Herons nest in colonies.</td>",
    ):
        assert text in page, text
    assert html.escape(lines, quote=False) in html.unescape(page.partition("<textarea")[2])
    assert (await user.get("memories/export")).text == ""
    assert "1 stored" in (await user.post("memories/transfer", {"lines": lines})).text


FILES = {
    "memories.json": (
        json.dumps({"results": [{"id": MEM0_ID, "memory": "Kim prefers tea.", "user_id": "kim"}]}),
        "mem0",
        "Kim prefers tea.",
    ),
    "CLAUDE.md": ("# Rules\n\n- Use tabs.\n- No sleeps in tests.\n", "", "No sleeps in tests."),
    "deploy.md": ("---\ntype: decision\nproject: shop\n---\nWe deploy on Tuesdays.\n", "", "We deploy on Tuesdays."),
    "memory.jsonl": (
        '{"type": "entity", "name": "Kim", "entityType": "person", "observations": ["likes tea"]}\n',
        "server-memory",
        "likes tea",
    ),
}


@pytest.mark.parametrize("name", FILES)
async def test_files_of_other_programs_are_imported_once(user: ConsoleUser, name: str) -> None:
    """A file is recognised as by `rookery import`, a check shows its first words, and a second import stores nothing twice."""
    text, program, words = FILES[name]
    fields = {"lines": text, "file_name": name}
    check = html.unescape((await user.post("memories/transfer", {**fields, "check": "1"})).text)
    assert program in check
    assert words in check.partition("Found in the file")[2].partition("</table>")[0]
    for _ in range(2):
        assert "0 with faults" in (await user.post("memories/transfer", fields)).text
    memories = [json.loads(line) for line in (await user.get("memories/export")).text.splitlines()]
    assert sum(words in memory["content"] for memory in memories) == 1
    assert len({memory["content"] for memory in memories}) == len(memories)
    assert all("rookery-import" not in str(memory) for memory in memories), "no memory has the name of a temporary folder"


async def test_a_file_that_is_not_known_is_refused(user: ConsoleUser) -> None:
    """An unknown format is refused with the reason, also under a name that leaves its folder."""
    for name in ("../../etc/cron.d/x", "..", ".hidden", "x" * 5_000, "picture.png", "a\0b"):
        response = await user.post("memories/transfer", {"lines": "neither JSON nor notes", "file_name": name})
        assert response.status_code == 422, name
        assert "the file is neither JSON" in html.unescape(response.text)
    assert (await user.get("memories/export")).text == ""


async def test_a_file_that_would_compute_for_long_is_read_in_part(user: ConsoleUser) -> None:
    """The first 5,000 entries of a file are read, and a long note is refused; both name the command that reads all."""
    entries = json.dumps([{"id": f"{number}", "memory": f"Fact {number}.", "user_id": "kim"} for number in range(5_001)])
    page = html.unescape((await user.post("memories/transfer", {"lines": entries, "file_name": "mem0.json", "check": "1"})).text)
    assert "5\u202f000 memories can be imported, 1 with faults. Nothing was stored." in page
    assert "choose the file again to import it" in page
    assert "only the first 5,000 entries are read; `rookery import` reads all" in page
    refused = await user.post("memories/transfer", {"lines": "word " * 50_000, "file_name": "book.md"})
    assert refused.status_code == 422
    assert "the note has more than 200,000 characters; divide it, or use `rookery import`" in html.unescape(refused.text)


async def test_a_chosen_file_is_imported(person: BrowserUser, server: Server) -> None:
    """In a browser, a chosen file fills the form, is checked and imported; one that is no text or too large is refused."""
    await person.go("memories/transfer")
    await person.page.evaluate(CHOOSE_FILE % {"name": "CLAUDE.md", "content": "'- The harbour closes at nine.'"})
    await person.wait_for("document.getElementById('lines').value.includes('harbour')")
    await person.click("button[name=check]")
    await person.wait_for_text("Nothing was stored.")
    assert await person.find_faults() == []
    await person.click("main form.form button.primary")
    await person.wait_for_text("1 stored")
    listed = server.client.get("/v1/brain/memories").json()["data"]
    assert [memory["content"] for memory in listed] == ["The harbour closes at nine."]
    for content in ("'a\\0b'", "'x'.repeat(4000001)"):
        await person.go("memories/transfer")
        await person.page.evaluate(CHOOSE_FILE % {"name": "memory.db", "content": content})
        await person.wait_for_text("Use the command rookery import.")
        await person.wait_for("document.getElementById('lines').value === ''")
