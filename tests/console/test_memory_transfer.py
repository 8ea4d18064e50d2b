"""Export and import of memories in the console (issue 21)."""

from __future__ import annotations

import html
import json

import pytest

from tests.conftest import Instance
from tests.console.browsing import ConsoleUser

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

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
