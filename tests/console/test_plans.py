"""The section Plans: list, forms, board, tasks, dependencies and events."""

from __future__ import annotations

import re

from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.console.views.plan_forms import parse_outline
from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text

NASTY = """<script>alert("1")</script> 'single' "double" {{ visit }} & ünïcödé"""
OUTLINE = "Prepare\n- dump the data\n- check the dump\nSwitch\n- change the address"


async def create(user: ConsoleUser, title: str, outline: str = OUTLINE, **fields: str) -> str:
    """Create a plan by the form; return its slug."""
    response = await user.post("plans/-/new", {"title": title, "outline": outline, **fields})
    assert response.status_code == 303, get_text(response.text)[-800:]
    return response.headers["location"].rpartition("/")[2].partition("?")[0]


async def find_task(user: ConsoleUser, slug: str, name: str) -> str:
    """Return the path of the page of a task, as the board links to it."""
    board = (await user.get(f"plans/{slug}")).text
    found = re.search(rf'href="\.\./(plans/[^"]+/tasks/[^"]+)">{re.escape(name)}<', board)
    assert found, get_text(board)
    return found[1]


def test_an_outline_is_phases_with_tasks() -> None:
    """A line is a phase, and a line with a mark is a task of the phase above it."""
    assert parse_outline("- first\n\nA\n* one\n-two\n-\nB") == [
        {"name": "Tasks", "tasks": ["first"]},
        {"name": "A", "tasks": ["one", "two"]},
        {"name": "B", "tasks": []},
    ]


async def test_a_plan_is_created_found_and_worked_on(user: ConsoleUser) -> None:
    """A plan goes from its form over the board to its end, by the verbs of the API."""
    slug = await create(user, "Move to PostgreSQL", project="shop")
    await create(user, "Another plan")
    for query in ("q=postgresql", "project=shop", "q=move&status=draft"):
        page = await user.read(f"plans?{query}")
        assert ("Move to PostgreSQL" in page, "Another plan" in page) == (True, False), query
    board = await user.read(f"plans/{slug}")
    for text in ("Prepare", "dump the data", "Switch", "0 of 3", "draft", "Start"):
        assert text in board, text
    assert (await user.post(f"plans/{slug}/status", {"status": "active"})).headers["location"] == f"../../plans/{slug}?done=started"
    task = await find_task(user, slug, "dump the data")
    assert "Complete" in await user.read(task)
    assert (await user.post(task, {"action": "complete", "note": "done by hand"})).status_code == 303
    board = await user.read(f"plans/{slug}")
    assert "1 of 3" in board
    for action, state in (
        ("reopen", "ready"),
        ("hold", "on hold"),
        ("reopen", "ready"),
        ("fail", "failed"),
        ("reopen", "ready"),
        ("skip", "skipped"),
    ):
        assert (await user.post(task, {"action": action, "note": "because"})).status_code == 303, action
        assert state in await user.read(task), action
    events = await user.read(f"plans/{slug}/events")
    assert "task.completed" in events
    for status, text in (("paused", "Resume"), ("active", "Pause"), ("archived", "Restore"), ("restored", "Pause")):
        assert (await user.post(f"plans/{slug}/status", {"status": status})).status_code == 303, status
        assert text in await user.read(f"plans/{slug}"), status
    for path, is_board in (("", True), ("/graph", False), ("/events", False)):
        page = (await user.get(f"plans/{slug}{path}")).text
        assert f'plans/{slug}{path}" aria-current="page"' in page, path
        assert ("Archive this plan?" in page) == is_board, path
    refused = await user.post(f"plans/{slug}/status", {"status": "completed"})
    assert (refused.status_code, 'class="alert"' in refused.text) == (409, True)


async def test_a_claimed_task_shows_its_holder(user: ConsoleUser, instance: Instance) -> None:
    """The card of a claimed task has its holder and its lease, and a person may take it back."""
    slug = await create(user, "Claimed", start="1")
    claimed = await instance.agent.post("/api/agent/tasks/claim-next", {"plan": slug})
    assert claimed.status_code == 200, claimed.text
    board = await user.read(f"plans/{slug}")
    assert "in progress" in board
    assert "lease ends" in board
    task = await find_task(user, slug, "dump the data")
    assert "takes it from its holder" in await user.read(task)
    assert (await user.post(task, {"action": "release"})).status_code == 303
    assert "lease ends" not in await user.read(f"plans/{slug}")


async def test_a_plan_comes_from_a_template(user: ConsoleUser) -> None:
    """The form has the variables of the template, and a refused one shows its values again."""
    assert "Bug fix" in await user.read("plans/-/templates")
    form = await user.read("plans/-/templates/bug-fix")
    assert "wrong behaviour in one line" in form
    refused = await user.post("plans/-/templates/bug-fix", {"variables.component": "the uploader", "variables.severity": "low"})
    assert (refused.status_code, "the uploader" in refused.text) == (422, True)
    fields = {"variables.component": "the uploader", "variables.severity": "low", "variables.summary": "Uploads stop", "start": "1"}
    response = await user.post("plans/-/templates/bug-fix", fields)
    assert response.status_code == 303, get_text(response.text)[-600:]
    slug = response.headers["location"].rpartition("/")[2].partition("?")[0]
    assert "from bug-fix" in await user.read(f"plans/{slug}")


async def test_dependencies_are_drawn_and_listed(user: ConsoleUser, instance: Instance) -> None:
    """The drawing is SVG of the server, with a list of the same for those who cannot see it."""
    body = {
        "title": "Graph",
        "phases": [{"name": "One", "tasks": ["a", {"name": NASTY, "depends_on": ["a"]}]}, {"name": "Two", "depends_on": ["One"]}],
    }
    slug = (await instance.admin.post("/api/agent/plans", body)).json()["slug"]
    page = (await user.get(f"plans/{slug}/graph")).text
    assert (page.count("<rect"), page.count('class="line"')) == (4, 2)
    assert "<script>alert" not in page
    assert "after 2" in get_text(page)


async def test_a_refused_plan_keeps_its_values(user: ConsoleUser) -> None:
    """A refused form is shown again with its values and errors."""
    response = await user.post("plans/-/new", {"title": "", "outline": "Kept phase", "project": "kept"})
    assert (response.status_code, "Kept phase" in response.text, "Check the marked fields" in response.text) == (422, True, True)
    assert "No plans yet" in await user.read("plans")


async def test_pages_of_large_plans_are_bounded(user: ConsoleUser, instance: Instance) -> None:
    """Every page has a bound, for 500 tasks with long names that must be escaped, and the board shows the first of each."""
    tasks = [{"name": f"{number} " + NASTY + '"' * 60, "description": '"' * 500, "key": f"k{number}"} for number in range(500)]
    phases = [{"name": f"Phase {index}", "tasks": tasks[index * 10 : index * 10 + 10]} for index in range(50)]
    created = await instance.admin.post("/api/agent/plans", {"title": NASTY, "slug": "large", "phases": phases})
    assert created.status_code == 201, created.text[:400]
    await instance.admin.post("/api/agent/plans", {"title": "One phase", "slug": "tall", "phases": [{"name": "Only", "tasks": tasks}]})
    for path in ("plans", "plans/large", "plans/large?page=5", "plans/large/graph", "plans/large/events", "plans/tall", "plans/tall/graph"):
        response = await user.get(path)
        assert response.status_code == 200, path
        assert len(response.content) < MAX_PAGE_BYTES, path
        assert "<script>alert" not in response.text, path
    assert "1–12 of 50" in await user.read("plans/large")
    assert "All 500 tasks" in await user.read("plans/tall")
    phase = re.search(r'href="\.\./(plans/tall/phases/[^"]+)"', (await user.get("plans/tall")).text)
    assert phase
    assert "26–50 of 500" in await user.read(f"{phase[1]}?page=2&state=ready")


async def test_a_task_with_long_texts_is_bounded(user: ConsoleUser, instance: Instance) -> None:
    """The page of a task cuts texts beyond its bound."""
    body = {
        "title": "Long",
        "slug": "long",
        "status": "active",
        "phases": [{"name": "One", "tasks": [{"name": "t", "description": '"' * 20_000, "notes": '"' * 20_000}]}],
    }
    assert (await instance.admin.post("/api/agent/plans", body)).status_code == 201
    response = await user.get(await find_task(user, "long", "t"))
    assert response.status_code == 200
    assert len(response.content) < MAX_PAGE_BYTES


async def test_a_key_sees_what_it_may_do(user: ConsoleUser, instance: Instance) -> None:
    """A control that the key may not use is not shown, and plans of others are not found."""
    slug = await create(user, "Mine")
    task = await find_task(user, slug, "dump the data")
    reader = await instance.api_key("console:read", "plans.read")
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    async with ConsoleUser(instance.rookery) as person:
        await person.sign_in(reader.key or "")
        for path, hidden in (("plans", "New plan"), (f"plans/{slug}", "Start"), (task, "Complete")):
            text = await person.read(path)
            assert hidden not in text.replace("Completed", ""), path
        assert (await person.post(task, {"action": "complete"})).status_code == 403
    async with ConsoleUser(instance.rookery) as person:
        await person.sign_in(other.key or "")
        for path in (f"plans/{slug}", task, f"plans/{slug}/graph", f"plans/{slug}/events"):
            assert (await person.get(path)).status_code == 404, path


async def test_a_person_runs_a_plan(person: BrowserUser) -> None:
    """Create, start, complete a task, and see the board change, in a browser."""
    await person.go("plans/-/new")
    await person.type("#title", "Paint the boat")
    await person.type("#outline", "Prepare\n- sand it\nPaint\n- first coat")
    await person.click("form.form button.primary")
    await person.wait_for_text("sand it")
    assert await person.find_faults() == []
    await person.click(".actions button[value=active]")
    await person.wait_for_text("Started.")
    await person.click(".task a")
    await person.wait_for("!!document.querySelector('button[value=complete]')")
    assert await person.find_faults() == []
    await person.click("button[value=complete]")
    await person.wait_for("!!document.querySelector('.task.completed')")
    await person.wait_for_text("1 of 2")
    await person.page.resize(360, 740)
    assert await person.find_faults() == []
    await person.click(".tabs a[href$=graph]")
    await person.wait_for("document.querySelectorAll('.graph rect').length === 4")
    assert await person.find_faults() == []
    await person.page.resize(1440, 900)


async def test_a_long_description_is_folded(user: ConsoleUser, instance: Instance) -> None:
    """The head of a plan has the first paragraph of its description; the rest is below it."""
    fields = {"title": "Unload", "description": "Lift the crates.\n\n## Rules\n\n- Two people"}
    plan = (await instance.admin.post("/v1/plans", fields)).json()["slug"]
    page = (await user.get(f"plans/{plan}")).text
    assert get_text(page.partition('class="lead"')[2].partition("</p>")[0].removeprefix(">")) == "Lift the crates."
    assert "The whole description" in page
    assert "## Rules" in page
