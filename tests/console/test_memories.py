"""The section Memories: list, search, filters, page, and the forms that store, change, correct and delete."""

from __future__ import annotations

import re

import pytest

from rookery.console.rendering import MAX_PAGE_BYTES
from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text

NASTY = """<script>alert("1")</script> 'single' "double" {{ visit }} & ünïcödé"""


async def store(user: ConsoleUser, content: str, **fields: str) -> str:
    """Store a memory by the form; return its id."""
    response = await user.post("memories/new", {"content": content, "type": "fact", **fields})
    assert response.status_code == 303, get_text(response.text)[-800:]
    return response.headers["location"].rpartition("/")[2].partition("?")[0]


async def test_a_memory_is_stored_found_and_shown(user: ConsoleUser) -> None:
    """The list comes first, is searched and filtered on the server, and leads to the page of each memory."""
    memory_id = await store(user, "The crane on pier 3 lifts 40 tons.", project="cranes", tags="pier 3, heavy", confidence="0.9")
    await store(user, "Deploy on Tuesdays.", type="decision", project="shop")
    page = await user.read("memories")
    assert "The crane on pier 3" in page
    assert "Deploy on Tuesdays." in page
    assert "1–2 of 2" in page
    for query in (
        "type=fact",
        "project=cranes",
        "tag=pier+3",
        "q=crane",
        "scope=project&tag=heavy",
        "q=tons&type=fact",
        "since=2020-01-01&q=pier",
    ):
        page = await user.read(f"memories?{query}")
        assert ("The crane on" in page.replace("<mark>", ""), "Deploy on Tuesdays" in page, "1–1 of 1" in page) == (True, False, True), (
            query
        )
    page = await user.read(f"memories/{memory_id}")
    for text in ("The crane on pier 3 lifts 40 tons.", "heavy", "cranes", "90.0", memory_id):
        assert text in page, text


async def test_found_words_are_marked(user: ConsoleUser) -> None:
    """The words of a search are marked, and nothing else of a content is markup."""
    await store(user, f"The crane says {NASTY}")
    page = (await user.get("memories?q=crane")).text
    assert "<mark>crane</mark>" in page
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


async def test_a_list_is_paged_on_the_server(user: ConsoleUser) -> None:
    """Every list is paged on the server, and its count is that of all pages. The links keep the filters."""
    for number in range(27):
        await store(user, f"Crane number {number} stands.", project="cranes")
    first, second = await user.read("memories?project=cranes"), await user.read("memories?project=cranes&page=2")
    assert "1–25 of 27" in first
    assert "26–27 of 27" in second
    assert 'href="?project=cranes&amp;page=2"' in (await user.get("memories?project=cranes")).text
    assert "26–27 of 27" in await user.read("memories?q=crane&page=2")
    assert "This page is empty" in await user.read("memories?page=9")


async def test_a_list_without_matches_says_so(user: ConsoleUser) -> None:
    """An empty list says which filters it has, an empty workspace what to do, and an invalid filter why it is refused."""
    assert "No memories yet" in await user.read("memories")
    assert "No memory matches" in await user.read("memories?q=nothing")
    assert "type" in await user.read("memories?type=Not+A+Type")


async def test_a_refused_form_keeps_its_values(user: ConsoleUser) -> None:
    """A refused form is shown again with its values and a reason beside each field."""
    for fields, reason in (
        ({"content": " ", "type": "fact"}, "content"),
        ({"content": "Kept text.", "type": "Bad Type"}, "type"),
        ({"content": "Kept text.", "type": "fact", "confidence": "much"}, "must be a number"),
        ({"content": "Kept text.", "type": "fact", "metadata": "[1]"}, "must be a JSON object"),
        ({"content": "Kept text.", "type": "fact", "metadata": "{"}, "is not JSON"),
        ({"content": "Kept text.", "type": "fact", "memory_scope": "agent"}, "agent_id"),
    ):
        response = await user.post("memories/new", fields)
        assert (response.status_code, reason in response.text) == (422, True), fields
        assert fields["content"].strip() in response.text
    assert "No memories yet" in await user.read("memories")


async def test_a_memory_is_changed(user: ConsoleUser) -> None:
    """The form changes what differs, and clears what is emptied."""
    memory_id = await store(user, "Old text.", project="cranes", tags="one, two", metadata='{"ticket": 1}')
    form = (await user.get(f"memories/{memory_id}/edit")).text
    seen = (re.findall(r'name="seen" value="([^"]+)"', form) or [""])[0]
    fields = {"seen": seen, "content": "New text.", "type": "decision", "tags": "two", "project": "", "confidence": "0.5", "metadata": ""}
    response = await user.post(f"memories/{memory_id}/edit", fields)
    assert (response.status_code, response.headers["location"]) == (303, f"../../memories/{memory_id}?done=saved")
    page = await user.read(f"memories/{memory_id}?done=saved")
    assert ("Saved." in page, "New text." in page, "Old text." in page, "cranes" in page, "ticket" in page) == (
        True,
        True,
        False,
        False,
        False,
    )
    response = await user.post(f"memories/{memory_id}/edit", {**fields, "content": "Late text."})
    assert (response.status_code, "has changed since" in response.text, "New text." in response.text) == (409, True, True)


async def test_a_correction_supersedes(user: ConsoleUser) -> None:
    """Supersede writes a correction; the history of both is one."""
    old = await store(user, "The crane lifts 30 tons.")
    assert "The crane lifts 30 tons." in await user.read(f"memories/{old}/supersede")
    response = await user.post(f"memories/{old}/supersede", {"content": "The crane lifts 40 tons.", "type": "fact"})
    new = response.headers["location"].rpartition("/")[2].partition("?")[0]
    page = (await user.get(f"memories/{new}")).text
    assert f'href="../memories/{old}"' in page
    assert "content deleted" in get_text(page)
    assert (await user.get(f"memories/{old}")).status_code == 404


async def test_a_memory_is_archived_restored_and_forgotten(user: ConsoleUser) -> None:
    """Archive, restore and forget; what destroys asks first."""
    memory_id = await store(user, "The crane lifts 30 tons.")
    assert "Forget this memory?" in await user.read(f"memories/{memory_id}")
    await user.post(f"memories/{memory_id}/archive")
    assert "archived" in await user.read(f"memories/{memory_id}")
    assert "No memories yet" in await user.read("memories")
    assert "The crane" in await user.read("memories?state=archived")
    await user.post(f"memories/{memory_id}/restore")
    assert "The crane" in await user.read("memories")
    response = await user.post(f"memories/{memory_id}/delete")
    assert response.headers["location"] == "../../memories?done=deleted"
    assert (await user.get(f"memories/{memory_id}")).status_code == 404


async def test_controls_need_their_scopes(instance: Instance, user: ConsoleUser) -> None:
    """A control that the key may not use is not shown, and its request is refused."""
    memory_id = await store(user, "The crane lifts 30 tons.")
    key = await instance.api_key("console:read", "brain:read")
    async with ConsoleUser(instance.rookery) as reader:
        await reader.sign_in(key.key or "")
        page = await reader.read(f"memories/{memory_id}") + await reader.read("memories")
        for word in ("Edit", "Supersede", "Archive", "Forget", "New memory"):
            assert word not in page, word
        for action in ("edit", "supersede", "archive", "restore", "delete"):
            assert (await reader.post(f"memories/{memory_id}/{action}")).status_code == 403, action


async def test_memories_of_other_tenants_do_not_exist(instance: Instance, user: ConsoleUser) -> None:
    """The id of another workspace's memory leads to a page with 404."""
    memory_id = await store(user, "The crane lifts 30 tons.")
    key = await instance.api_key("*", workspace_id=await instance.workspace("Second"))
    async with ConsoleUser(instance.rookery) as stranger:
        await stranger.sign_in(key.key or "")
        for path in (f"memories/{memory_id}", f"memories/{memory_id}/edit", "memories/nonsense"):
            response = await stranger.get(path)
            assert (response.status_code, "crane" in response.text) == (404, False), path
        assert (await stranger.post(f"memories/{memory_id}/delete")).status_code == 404


@pytest.mark.parametrize("content", [NASTY, "x" * 50_000, "ab " * 16_000])
async def test_any_content_is_shown_as_text(user: ConsoleUser, content: str) -> None:
    """Nothing that a tenant wrote is markup, and pages have a bound."""
    memory_id = await store(user, content, tags='"><i>')
    for path in ("memories", f"memories/{memory_id}", f"memories/{memory_id}/edit", "memories?q=ab"):
        response = await user.get(path)
        assert (response.status_code, "<script>alert" in response.text, "<i>" in response.text) == (200, False, False), path
        assert len(response.content) < MAX_PAGE_BYTES


async def test_a_person_keeps_a_memory(person: BrowserUser) -> None:
    """Remember, search as one types, correct, and forget, in a real browser."""
    await person.go("memories/new")
    await person.type("#content", "The heron nests on the old crane.")
    await person.click("form.form button.primary")
    await person.wait_for_text("The heron nests on the old crane.")
    assert await person.find_faults() == []
    await person.go("memories")
    await person.type("input[name=q]", "heron")
    await person.wait_for("location.search.includes('q=heron') && document.querySelector('#results mark')?.textContent === 'heron'")
    assert await person.find_faults() == []
    await person.click("#results td a")
    await person.wait_for_text("History")
    await person.click("[commandfor=forget]")
    await person.click("#forget form button.danger")
    await person.wait_for_text("Deleted.")
    assert await person.find_faults() == []


async def test_a_former_memory_leads_to_its_successor(user: ConsoleUser, instance: Instance) -> None:
    """A memory that was superseded keeps its lineage, so that an old link says what replaced it. The content is gone."""
    old = await instance.admin.remember("The north door is locked at 18:00.")
    new = await instance.admin.remember("The north door is always open.", supersedes_id=old["id"])
    page = await user.get(f"memories/{old['id']}")
    text = get_text(page.text)
    assert (page.status_code, "Former memory" in text, "superseded" in text, "18:00" in text) == (404, True, True, False)
    assert f'href="../memories/{new["id"]}"' in page.text
    assert f'href="../memories/{old["id"]}"' in (await user.get(f"memories/{new['id']}")).text
    assert "There is no memory" in (await user.get("memories/01a1fbcc-0000-7000-8000-000000000000")).text
