"""Templates over HTTP and by command, on a whole server (D-63, D-65)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from rookery.access.models import KeyRestrictions
from rookery.agents.commands.templates import app
from rookery.agents.templates.library import (
    MAX_TEMPLATES_PER_WORKSPACE,
    MAX_VERSIONS_PER_TEMPLATE,
    Templates,
    read_templates,
)
from rookery.app import create_app
from rookery.cli import CommandContext
from rookery.kernel.config import Settings
from tests.agents.test_template_texts import EIGHT
from tests.conftest import OPERATOR, Caller, Instance

Json = dict[str, object]

HOTFIX: Json = {
    "slug": "hotfix",
    "name": "Hotfix",
    "description": "When production is down and the way to mend it is known.",
    "category": "operations",
    "variables": {
        "what": {"description": "What is broken."},
        "level": {"enum": ["low", "high"], "default": "high"},
        "urgency": {"type": "integer", "default": 0},
    },
    "guidelines": ["One change, and how to undo it."],
    "plan": {"title": "Mend {{ what }}", "metadata": {"level": "{{ level }}"}},
    "phases": [
        {"key": "mend", "name": "Mend {{ what }}", "tasks": ["Find it", {"name": "Undo it", "priority": "{{ urgency }}"}]},
        {"name": "Tell", "depends_on": ["mend"], "acceptance_criteria": ["Everybody knows."], "tasks": ["Write to users"]},
    ],
}


async def _add(by: Caller, prefix: str = "/v1", **fields: object) -> httpx2.Response:
    return await by.post(f"{prefix}/templates", {**HOTFIX, **fields})


def _fields(answer: httpx2.Response) -> dict[str, list[str]]:
    assert answer.status_code == 422, answer.text
    return answer.json()["errors"]


@pytest.mark.parametrize("prefix", ["/api/agent", "/v1"])
async def test_templates_come_with_rookery(instance: Instance, prefix: str) -> None:
    """D-63: eight ship; they are listed with what they ask, and shown whole."""
    listed = (await instance.agent.get(f"{prefix}/templates")).json()
    shown = (await instance.agent.get(f"{prefix}/templates/bug-fix")).json()

    assert [each["slug"] for each in listed["data"]] == EIGHT
    assert listed["meta"]["total"] == 8
    assert {each["source"] for each in listed["data"]} == {"shipped"}
    assert listed["data"][0]["variables"]["summary"]["required"] is True
    assert [phase["name"] for phase in shown["phases"]] == listed["data"][0]["phases"]
    assert shown["version"] == listed["data"][0]["version"]


async def test_a_list_can_be_narrowed_and_paged(instance: Instance) -> None:
    """D-12: by category and by words, over those that ship and the workspace's own together."""
    assert (await _add(instance.admin)).status_code == 201

    operations = (await instance.agent.get("/v1/templates?category=operations&per_page=2")).json()
    found = (await instance.agent.get("/v1/templates?q=production%20mend")).json()

    assert [each["slug"] for each in operations["data"]] == ["hotfix", "incident"]
    assert (operations["meta"]["total"], operations["links"]["next"] is None) == (3, False)
    assert [each["slug"] for each in found["data"]] == ["hotfix"]


async def test_a_workspace_writes_its_own(instance: Instance) -> None:
    """D-63, D-65: added, shown, replaced by another version, deleted; each version can still be read while it is kept."""
    made = await _add(instance.admin)
    first = made.json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    changed = await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Quick fix"})
    again = await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Quick fix"})

    assert (made.status_code, made.json()["source"], made.headers["etag"]) == (201, "workspace", f'"{first}"')
    assert (changed.status_code, changed.json()["name"]) == (200, "Quick fix")
    assert changed.json()["version"] == again.json()["version"] != first
    assert changed.json()["updated_at"] == again.json()["updated_at"]
    versions = (await instance.agent.get("/v1/templates/hotfix/versions")).json()["versions"]
    assert [(each["version"], each["in_use"]) for each in versions] == [(changed.json()["version"], True), (first, False)]
    assert (await instance.agent.get(f"/v1/templates/hotfix?version={first}")).json()["name"] == "Hotfix"
    assert (await instance.agent.get("/v1/templates/hotfix?version=0123456789abcdef")).status_code == 404
    assert (await instance.admin.send("DELETE", "/v1/templates/hotfix")).status_code == 204
    assert (await instance.agent.get("/v1/templates/hotfix")).status_code == 404
    assert (await instance.agent.get("/v1/templates/hotfix/versions")).status_code == 404


async def test_the_content_is_the_version(instance: Instance) -> None:
    """D-63: what was put in use once before has its version again."""
    first = (await _add(instance.admin)).json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Other"})

    back = await instance.admin.send("PUT", "/v1/templates/hotfix", dict(reversed(document.items())))

    assert back.json()["version"] == first
    assert (await instance.agent.get("/v1/templates/hotfix/versions")).json()["count"] == 2


async def test_an_author_who_knows_an_older_version_is_refused(instance: Instance) -> None:
    """D-64: If-Match → 412 with what it is now."""
    made = await _add(instance.admin)
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    stale = {"If-Match": '"0123456789abcdef"'}

    for method, body in (("PUT", {**document, "name": "X"}), ("DELETE", None)):
        refused = await instance.admin.send(method, "/v1/templates/hotfix", body, **stale)
        assert (refused.status_code, refused.json()["error"], refused.json()["etag"]) == (412, "precondition_failed", made.headers["etag"])
    taken = await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "X"}, **{"If-Match": made.headers["etag"]})
    assert taken.status_code == 200


async def test_what_ships_is_read_only_and_can_be_copied(instance: Instance) -> None:
    """D-63, issue 6: a copy says the same, so it is the same version, under another slug."""
    shipped = (await instance.admin.get("/v1/templates/bug-fix")).json()
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}

    for answer in (
        await instance.admin.send("PUT", "/v1/templates/bug-fix", document),
        await instance.admin.send("DELETE", "/v1/templates/bug-fix"),
    ):
        assert (answer.status_code, answer.json()["error"]) == (409, "template_read_only")
    assert (await _add(instance.admin, slug="bug-fix")).json()["error"] == "slug_taken"
    copied = await instance.admin.post("/v1/templates/bug-fix/copies", {"slug": "our-bug-fix"})
    assert (copied.status_code, copied.json()["version"], copied.json()["source"]) == (201, shipped["version"], "workspace")
    renamed = await instance.admin.post("/v1/templates/our-bug-fix/copies", {"slug": "third", "name": "Third"})
    assert (renamed.json()["name"], renamed.json()["phases"]) == ("Third", shipped["phases"])


async def test_a_recorded_version_of_a_shipped_template_can_be_read_after_an_upgrade(instance: Instance, tmp_path: Path) -> None:
    """D-63: a plan names the version that it was made from, so its text stays."""
    variables = {"variables": {"summary": "No tea", "component": "the kitchen"}}
    plan = (await instance.agent.post("/v1/templates/bug-fix/plans", variables)).raise_for_status().json()
    old = (await instance.agent.get("/v1/templates/bug-fix")).json()
    recorded = plan["template"]["version"]

    async with _upgraded(instance, tmp_path) as upgraded:
        new = (await upgraded.get("/v1/templates/bug-fix")).json()
        stored = (await upgraded.get(f"/v1/templates/bug-fix?version={recorded}")).raise_for_status().json()
        versions = (await upgraded.get("/v1/templates/bug-fix/versions")).json()["data"]
        again = await upgraded.post("/v1/templates/bug-fix/plans", {**variables, "version": recorded})
        unused = await upgraded.get("/v1/templates/feature/versions")
        removed = (await upgraded.get("/v1/templates/incident")).status_code

    assert (old["version"], new["version"] == recorded, new["name"]) == (recorded, False, "Defect")
    assert stored == old
    assert [(each["version"], each["in_use"]) for each in versions] == [(new["version"], True), (recorded, False)]
    assert (again.status_code, again.json()["template"]["version"]) == (201, recorded)
    assert unused.json()["meta"]["total"] == 1
    assert removed == 404


async def test_a_recorded_version_of_a_template_that_no_longer_ships_can_be_read(instance: Instance, tmp_path: Path) -> None:
    """D-63: also if the new Rookery has no template of that slug; the slug is then free."""
    fields = {"variables": {"title": "No tea", "impact": "Everybody"}}
    plan = (await instance.agent.post("/v1/templates/incident/plans", fields)).raise_for_status().json()

    async with _upgraded(instance, tmp_path) as upgraded:
        path = f"/v1/templates/incident?version={plan['template']['version']}"
        stored = await upgraded.get(path)
        added = await upgraded.post("/v1/templates", {**HOTFIX, "slug": "incident"})
        deleted = await upgraded.send("DELETE", "/v1/templates/incident")
        after = await upgraded.get(path)

    assert (stored.status_code, stored.json()["source"]) == (200, "shipped")
    assert (added.status_code, deleted.status_code) == (201, 204)
    assert after.json() == stored.json()


@asynccontextmanager
async def _upgraded(instance: Instance, folder: Path) -> AsyncGenerator[Caller]:
    """Serve the store with other shipped templates: `bug-fix` has another name, and `incident` is missing."""
    for file in (resources.files("rookery.agents") / "shipped").iterdir():
        if file.name != "incident.yaml":
            text = file.read_text(encoding="utf-8").replace("name: Bug fix\n", "name: Defect\n")
            (folder / file.name).write_text(text, encoding="utf-8")
    rookery = instance.rookery
    templates = Templates(rookery.db, rookery.access.audit, rookery.clock, shipped=read_templates(folder))
    upgraded = replace(rookery, agents=replace(rookery.agents, templates=templates))
    caller = Caller(httpx2.ASGITransport(create_app(upgraded)), instance.admin.key)
    async with caller.http:
        yield caller


async def test_a_copy_is_asked_what_a_new_one_is(instance: Instance) -> None:
    """D-63: a name that is too long for the title of its plans, or has unknown placeholders, makes no template."""
    assert (await _add(instance.admin, plan={})).status_code == 201

    for name in ("n" * 300, "{{ nobody }}"):
        refused = await instance.admin.post("/v1/templates/hotfix/copies", {"slug": "other", "name": name})
        assert refused.status_code == 422, refused.text


async def test_a_preview_is_the_plan_that_would_be(instance: Instance) -> None:
    """D-63: filled in, nothing kept, and it needs no more than reading."""
    await _add(instance.admin)
    reader = await instance.agent_key("templates.read")

    preview = await reader.post("/v1/templates/hotfix/preview", {"variables": {"what": "the {{ level }}", "urgency": 1}})

    assert preview.status_code == 200, preview.text
    plan = preview.json()["plan"]
    assert plan["title"] == "Mend the {{ level }}"
    assert plan["description"] == "## Guidelines\n\n- One change, and how to undo it."
    assert plan["metadata"] == {"level": "high"}
    assert plan["phases"][0]["tasks"] == [{"name": "Find it"}, {"name": "Undo it", "priority": 1}]
    assert preview.json()["variables"] == {"what": "the {{ level }}", "level": "high", "urgency": 1}


async def test_wrong_variables_are_told_by_name(instance: Instance) -> None:
    """D-63: unknown or missing is 422, and so is what a variable may not be."""
    await _add(instance.admin)

    wrong = await instance.agent.post("/v1/templates/hotfix/preview", {"variables": {"waht": "x", "level": "hihg", "urgency": "1"}})

    assert _fields(wrong) == {
        "variables.waht": ["unknown variable; did you mean 'what'?"],
        "variables.what": ["is required: What is broken."],
        "variables.level": ["must be one of 'low', 'high'"],
        "variables.urgency": ["must be an integer"],
    }


_BAD: list[tuple[str, dict[str, object]]] = [
    ("phases.0.name", {"phases": [{"name": "{{ nobody }}"}]}),
    ("plan.title", {"plan": {"title": "{{ what | upper }}"}}),
    ("guidelines.0", {"guidelines": ["{{ }}"]}),
    ("variables.v", {"variables": {"v": {"pattern": "(?=a)"}}}),
    ("variables.v", {"variables": {"v": {"required": True, "default": "x"}}}),
    ("variables.Big.[key]", {"variables": {"Big": {}}}),
    ("variables.v.type", {"variables": {"v": {"type": "date"}}}),
    ("phases", {"phases": []}),
    ("phases.0.tasks.0.name", {"phases": [{"name": "a", "tasks": [{"title": "b"}]}]}),
    ("phases.0.tasks.0.priority", {"phases": [{"name": "a", "tasks": [{"name": "b", "priority": "soon"}]}]}),
    ("slug", {"slug": "No Slug"}),
    ("owner", {"owner": "me"}),
]


async def test_a_template_that_could_not_work_is_refused_when_it_is_written(instance: Instance) -> None:
    """D-63: by field, at the time when its author is there to mend it."""
    for field, fields in _BAD:
        bad: dict[str, object] = {"slug": "bad", "name": "Bad", "phases": [{"name": "a"}], **fields}

        assert field in _fields(await instance.admin.post("/v1/templates", bad)), fields
    assert (await instance.admin.get("/v1/templates/bad")).status_code == 404


async def test_who_may_do_what(instance: Instance) -> None:
    """D-65: templates.read lists and previews, templates.write writes; the preset agent may not write."""
    assert (await _add(instance.agent)).json()["required_permission"] == "templates.write"
    assert (await instance.agent.post("/v1/templates/bug-fix/copies", {"slug": "x"})).json()["required_permission"] == "templates.write"
    writer = await instance.agent_key("templates.write")
    assert (await _add(writer)).status_code == 201
    assert (await writer.get("/v1/templates/hotfix")).json()["required_permission"] == "templates.read"


async def test_no_other_tenant_sees_a_template(instance: Instance) -> None:
    """Spec 2.8, D-25: another workspace and the sandbox have shelves of their own, and may use the same slug."""
    await _add(instance.admin)
    other = await instance.api_key(workspace_id=await instance.workspace("other"))
    tester = await instance.api_key(environment="test")

    for stranger in (other, tester):
        assert (await stranger.get("/v1/templates?q=hotfix")).json()["data"] == []
        assert (await stranger.send("DELETE", "/v1/templates/hotfix")).status_code == 404
        assert (await _add(stranger, name="Theirs")).status_code == 201
    assert (await instance.admin.get("/v1/templates/hotfix")).json()["name"] == "Hotfix"


async def test_templates_and_their_versions_are_bounded(instance: Instance) -> None:
    """D-17: a workspace has at most 200, and of each the latest 50 versions are kept."""
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    assert (await _add(instance.admin)).status_code == 201
    for number in range(MAX_VERSIONS_PER_TEMPLATE):
        assert (await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": f"n{number}"})).status_code == 200
    versions = (await instance.admin.get("/v1/templates/hotfix/versions")).json()
    assert versions["count"] == MAX_VERSIONS_PER_TEMPLATE
    assert versions["versions"][0]["in_use"] is True

    small: dict[str, object] = {"name": "a", "phases": [{"name": "a"}]}
    for number in range(MAX_TEMPLATES_PER_WORKSPACE - 1):
        assert (await instance.admin.post("/v1/templates", {**small, "slug": f"t{number}"})).status_code == 201
    full = await instance.admin.post("/v1/templates", {**small, "slug": "more"})
    assert (full.status_code, full.json()["error"]) == (409, "too_many")


async def test_every_change_is_in_the_audit_log(instance: Instance) -> None:
    """D-29: who changed what is part of how everybody works."""
    made = (await _add(instance.admin)).json()
    await instance.admin.send("DELETE", "/v1/templates/hotfix")

    noted = (await instance.admin.get("/api/v1/audit?per_page=2")).json()["data"]

    assert [(each["action"], each["subject"]["id"]) for each in noted] == [("template.deleted", "hotfix"), ("template.created", "hotfix")]
    assert made["version"] in json.dumps(noted)


async def test_a_deleted_workspace_leaves_no_template(instance: Instance) -> None:
    """D-52: every row of it goes."""
    number = await instance.workspace("gone")
    assert (await _add(await instance.api_key(workspace_id=number))).status_code == 201

    gone = await instance.rookery.access.workspaces.delete(number, by=OPERATOR)

    assert gone.row_count is not None
    assert gone.row_count >= 2


@dataclass(frozen=True)
class _Shell:
    """A command line on a store with one workspace."""

    settings: Settings
    folder: Path

    def __call__(self, *arguments: str, says: int = 0, into: str | None = None) -> str:
        """Run `rookery templates …` and return its standard output and standard error."""
        done = CliRunner().invoke(app, list(arguments), obj=CommandContext(self.settings), input=into)
        assert done.exit_code == says, (done.output, done.exception)
        return done.output if done.exception is None or isinstance(done.exception, SystemExit) else str(done.exception)

    def write(self, name: str, text: str) -> str:
        """Write a file and return where it is."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)


@pytest.fixture
def shell(data_dir: Path, tmp_path: Path) -> _Shell:
    """The commands, on an embedded store."""
    settings = Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0)

    async def make() -> None:
        async with CommandContext(settings).open() as rookery:
            await rookery.create_first_keys()

    asyncio.run(make())
    return _Shell(settings, tmp_path)


def test_files_are_checked_added_and_replaced_by_command(shell: _Shell) -> None:
    """D-63: what ships is saved, changed, checked, tried and added under another slug; again it is another version."""
    file = shell.write("ours.yaml", shell("show", "bug-fix").replace("slug: bug-fix", "slug: ours").replace("name: Bug fix", "name: Ours"))

    assert shell("check", file) == f"{file}: valid\n"
    assert "# Fix: No tea" in shell("preview", file, "--var", "summary=No tea", "--var", "component=kitchen")
    assert "Would add ours" in shell("add", file, "--dry-run")
    assert [each["slug"] for each in json.loads(shell("list", "--json"))] == EIGHT
    added = json.loads(shell("add", file, "--json"))
    assert shell("add", file, says=1).startswith("The workspace already has a template with the slug 'ours'")
    assert shell("add", file, "--dry-run", says=1).startswith("The workspace already has a template with the slug 'ours'")
    assert "Would add ours" in shell("add", file, "--dry-run", "--replace")
    changed = shell.write("ours.yaml", Path(file).read_text(encoding="utf-8").replace("name: Ours", "name: All of ours"))
    replaced = json.loads(shell("add", changed, "--replace", "--json"))

    assert (replaced["name"], replaced["version"] != added["version"]) == ("All of ours", True)
    assert [each["slug"] for each in json.loads(shell("list", "--json"))] == sorted([*EIGHT, "ours"])
    assert "name: All of ours" in shell("show", "ours")


def test_a_file_that_cannot_be_used_is_told_by_line_and_field(shell: _Shell) -> None:
    """D-63: all files and all errors in each; exit code 1, or 0 if there are only warnings."""
    broken = shell.write("broken.yaml", "name: x\nname: y")
    wrong = shell.write("wrong.json", json.dumps({"name": "x", "phases": [{"name": "{{ who }}"}], "colour": "red"}))
    idle = shell.write("idle.yaml", "name: Idle\nvariables: {who: {}}\nphases: [{name: a, tasks: [b]}]")

    told = shell("check", broken, wrong, idle, "--json", says=1)

    found = {Path(each["file"]).name: each for each in json.loads(told)}
    assert found["broken.yaml"]["errors"] == {"file": ["line 2: 'name' occurs twice"]}
    assert list(found["wrong.json"]["errors"]) == ["colour"]
    assert (found["idle.yaml"]["ok"], found["idle.yaml"]["warnings"]) == (True, ["The variable 'who' is not used in the template."])
    assert "Cannot read" in shell("check", "nowhere.yaml", says=1)


def test_a_preview_by_command_names_every_wrong_variable(shell: _Shell) -> None:
    """D-63: a number is read as one; what is wrong is told with its name."""
    shown = json.loads(shell("preview", "release", "--var", "product=tea", "--var", "version=1.2", "--var", "soak_hours=3", "--json"))
    wrong = shell("preview", "release", "--var", "product=tea", "--var", "version=new", "--var", "soak=3", says=1)

    assert shown["variables"]["soak_hours"] == 3
    assert "variables.version: must match" in wrong
    assert "variables.soak: unknown variable; did you mean 'soak_hours'?" in wrong


@pytest.mark.parametrize("prefix", ["/api/agent", "/v1"])
async def test_a_plan_is_made_of_a_template(instance: Instance, prefix: str) -> None:
    """D-63, D-65: by templates.instantiate alone, whole, and it keeps the template, its version and the values."""
    user = await instance.agent_key("templates.instantiate")
    version = (await _add(instance.admin)).json()["version"]

    made = await user.post(
        f"{prefix}/templates/hotfix/plans",
        {"variables": {"what": "login"}, "org": "acme", "project": "web", "status": "active", "metadata": {"by": "kim"}},
    )

    assert made.status_code == 201, made.text
    plan = made.json()
    assert (plan["title"], plan["slug"], plan["status"], plan["org"]) == ("Mend login", "mend-login", "active", "acme")
    assert plan["template"] == {"slug": "hotfix", "version": version}
    assert plan["variables"] == {"what": "login", "level": "high", "urgency": 0}
    assert plan["metadata"] == {"level": "high", "by": "kim"}
    mend, tell = plan["phases"]
    assert [(task["name"], task["priority"]) for task in mend["tasks"]] == [("Find it", 2), ("Undo it", 0)]
    assert (mend["name"], tell["depends_on"], tell["blocked"]) == ("Mend login", [mend["id"]], True)
    assert tell["acceptance_criteria"] == [{"text": "Everybody knows.", "checked": False}]
    assert (await instance.agent.get(f"{prefix}/plans/mend-login")).json()["template"] == plan["template"]


async def test_every_template_that_ships_makes_a_plan(instance: Instance) -> None:
    """Issue 6: with nothing but what it requires; its first phase is ready, and a later version of it changes no plan."""
    for slug in EIGHT:
        variables = (await instance.agent.get(f"/v1/templates/{slug}")).json()["variables"]
        given = {name: "1.2" if each["pattern"] else "tea" for name, each in variables.items() if each["required"]}
        made = await instance.agent.post(f"/v1/templates/{slug}/plans", {"variables": given, "status": "active"})
        assert made.status_code == 201, (slug, made.text)
        assert made.json()["phases"][0]["ready"] is True, slug
        assert "{{" not in made.text, slug
    assert (await instance.agent.get("/v1/plans")).json()["meta"]["total"] == len(EIGHT)


async def test_a_pinned_version_makes_the_plan_that_it_said(instance: Instance) -> None:
    """D-63: a version that is kept can be used although another one is in use."""
    first = (await _add(instance.admin)).json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "phases": [{"name": "Other"}]})

    now = (await instance.admin.post("/v1/templates/hotfix/plans", {"variables": {"what": "a"}})).json()
    then = (await instance.admin.post("/v1/templates/hotfix/plans", {"variables": {"what": "a"}, "version": first})).json()

    assert [phase["name"] for phase in now["phases"]] == ["Other"]
    assert [phase["name"] for phase in then["phases"]] == ["Mend a", "Tell"]
    assert then["template"]["version"] == first != now["template"]["version"]


async def test_what_comes_of_values_is_held_against_a_plans_bounds(instance: Instance) -> None:
    """D-63: inserted first, validated after; a refusal leaves no plan, and a preview tells the same."""
    await _add(instance.admin)
    for variables, field in (({"what": "x" * 300}, "title"), ({"what": "x", "urgency": 9}, "phases.0.tasks.1.priority")):
        for action in ("plans", "preview"):
            assert field in _fields(await instance.admin.post(f"/v1/templates/hotfix/{action}", {"variables": variables})), action
    circle: Json = {
        "slug": "circle",
        "name": "Circle",
        "phases": [{"key": "a", "name": "A", "depends_on": ["b"]}, {"key": "b", "name": "B", "depends_on": ["a"]}],
    }
    assert "depends_on" in _fields(await instance.admin.post("/v1/templates", circle))
    circle["phases"] = [{"name": "A", "depends_on": ["nobody"]}]
    assert "phases.0.depends_on" in _fields(await instance.admin.post("/v1/templates", circle))
    assert (await instance.admin.get("/v1/plans")).json()["data"] == []


async def test_a_repeated_request_makes_one_plan(instance: Instance) -> None:
    """D-14: POST …/plans creates, so it takes an Idempotency-Key."""
    await _add(instance.admin)
    body = {"variables": {"what": "login"}}

    first = await instance.admin.post("/v1/templates/hotfix/plans", body, **{"Idempotency-Key": "once"})
    again = await instance.admin.post("/v1/templates/hotfix/plans", body, **{"Idempotency-Key": "once"})

    assert (again.json()["id"], again.headers["idempotent-replay"]) == (first.json()["id"], "true")
    assert (await instance.admin.get("/v1/plans")).json()["meta"]["total"] == 1


async def test_a_key_of_one_org_makes_plans_there_only(instance: Instance) -> None:
    """D-23: a template is no way around the key's orgs."""
    await _add(instance.admin)
    narrow = await instance.agent_key("templates.instantiate", restrictions=KeyRestrictions(orgs=frozenset({"acme"})))
    body: Json = {"variables": {"what": "login"}}

    refused = await narrow.post("/v1/templates/hotfix/plans", {**body, "org": "other"})
    made = await narrow.post("/v1/templates/hotfix/plans", {**body, "org": "acme"})

    assert (refused.status_code, made.status_code) == (403, 201)
