"""Templates over HTTP and by command, on a whole server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import httpx2
import pytest
from typer.testing import CliRunner

from rookery.access.models import KeyRestrictions
from rookery.agents.api.templates import TemplateApi
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
from rookery.kernel.domain import Domain
from tests.agents.test_template_texts import EIGHT
from tests.conftest import OPERATOR, Caller, Instance

Json = dict[str, object]

HOTFIX: Json = {
    "slug": "hotfix",
    "name": "Hotfix",
    "description": "When production is down and the way to repair it is known.",
    "category": "operations",
    "variables": {
        "what": {"description": "What is broken."},
        "level": {"enum": ["low", "high"], "default": "high"},
        "urgency": {"type": "integer", "default": 0},
    },
    "guidelines": ["One change, and how to undo it."],
    "plan": {"title": "Repair {{ what }}", "metadata": {"level": "{{ level }}"}},
    "phases": [
        {"key": "repair", "name": "Repair {{ what }}", "tasks": ["Find it", {"name": "Undo it", "priority": "{{ urgency }}"}]},
        {"name": "Tell", "depends_on": ["repair"], "acceptance_criteria": ["Everybody knows."], "tasks": ["Write to users"]},
    ],
}


async def _add(by: Caller, prefix: str = "/v1", **fields: object) -> httpx2.Response:
    return await by.post(f"{prefix}/templates", {**HOTFIX, **fields})


def _fields(response: httpx2.Response) -> dict[str, list[str]]:
    assert response.status_code == 422, response.text
    return response.json()["errors"]


@pytest.mark.parametrize("prefix", ["/api/agent", "/v1"])
async def test_templates_are_included(instance: Instance, prefix: str) -> None:
    """Eight are included; a list shows their variables, and each can be fetched completely."""
    listing = (await instance.agent.get(f"{prefix}/templates")).json()
    template = (await instance.agent.get(f"{prefix}/templates/bug-fix")).json()

    assert [template_["slug"] for template_ in listing["data"]] == EIGHT
    assert listing["meta"]["total"] == 8
    assert {template_["source"] for template_ in listing["data"]} == {"shipped"}
    assert listing["data"][0]["variables"]["summary"]["required"] is True
    assert [phase["name"] for phase in template["phases"]] == listing["data"][0]["phase_names"]
    assert template["version"] == listing["data"][0]["version"]


async def test_a_list_can_be_filtered_and_paged(instance: Instance) -> None:
    """By category and by text, over the included templates and the workspace's own."""
    assert (await _add(instance.admin)).status_code == 201

    operations = (await instance.agent.get("/v1/templates?category=operations&per_page=2")).json()
    matching = (await instance.agent.get("/v1/templates?q=production%20repair")).json()

    assert [template["slug"] for template in operations["data"]] == ["hotfix", "incident"]
    assert (operations["meta"]["total"], operations["links"]["next"] is None) == (3, False)
    assert [template["slug"] for template in matching["data"]] == ["hotfix"]


async def test_a_workspace_has_templates_of_its_own(instance: Instance) -> None:
    """Added, shown, replaced by another version, deleted. A version can be read while it is stored."""
    creation = await _add(instance.admin)
    first = creation.json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    replacement = await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Quick fix"})
    repeated = await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Quick fix"})

    assert (creation.status_code, creation.json()["source"], creation.headers["etag"]) == (201, "workspace", f'"{first}"')
    assert (replacement.status_code, replacement.json()["name"]) == (200, "Quick fix")
    assert replacement.json()["version"] == repeated.json()["version"] != first
    assert replacement.json()["updated_at"] == repeated.json()["updated_at"]
    versions = (await instance.agent.get("/v1/templates/hotfix/versions")).json()["data"]
    assert [(version["version"], version["in_use"]) for version in versions] == [(replacement.json()["version"], True), (first, False)]
    assert (await instance.agent.get(f"/v1/templates/hotfix?version={first}")).json()["name"] == "Hotfix"
    assert (await instance.agent.get("/v1/templates/hotfix?version=0123456789abcdef")).status_code == 404
    assert (await instance.admin.send("DELETE", "/v1/templates/hotfix")).status_code == 204
    assert (await instance.agent.get("/v1/templates/hotfix")).status_code == 404
    assert (await instance.agent.get("/v1/templates/hotfix/versions")).status_code == 404


async def test_the_same_content_has_the_same_version(instance: Instance) -> None:
    """Content that was stored before gets its former version."""
    first = (await _add(instance.admin)).json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": "Other"})

    replacement = await instance.admin.send("PUT", "/v1/templates/hotfix", dict(reversed(document.items())))

    assert replacement.json()["version"] == first
    assert (await instance.agent.get("/v1/templates/hotfix/versions")).json()["meta"]["total"] == 2


async def test_a_change_of_an_older_version_is_rejected(instance: Instance) -> None:
    """If-Match → 412 with the current version."""
    creation = await _add(instance.admin)
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    old_etag = {"If-Match": '"0123456789abcdef"'}

    for method, body in (("PUT", {**document, "name": "X"}), ("DELETE", None)):
        response = await instance.admin.send(method, "/v1/templates/hotfix", body, **old_etag)
        assert (response.status_code, response.json()["error"], response.json()["etag"]) == (
            412,
            "precondition_failed",
            creation.headers["etag"],
        )
    with_current_etag = await instance.admin.send(
        "PUT", "/v1/templates/hotfix", {**document, "name": "X"}, **{"If-Match": creation.headers["etag"]}
    )
    assert with_current_etag.status_code == 200


async def test_an_included_template_is_read_only_and_can_be_copied(instance: Instance) -> None:
    """A copy has the same content, so it has the same version, under another slug."""
    included = (await instance.admin.get("/v1/templates/bug-fix")).json()
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}

    for response in (
        await instance.admin.send("PUT", "/v1/templates/bug-fix", document),
        await instance.admin.send("DELETE", "/v1/templates/bug-fix"),
    ):
        assert (response.status_code, response.json()["error"]) == (409, "template_read_only")
    assert (await _add(instance.admin, slug="bug-fix")).json()["error"] == "slug_taken"
    copy_response = await instance.admin.post("/v1/templates/bug-fix/copies", {"slug": "our-bug-fix"})
    assert (copy_response.status_code, copy_response.json()["version"], copy_response.json()["source"]) == (
        201,
        included["version"],
        "workspace",
    )
    renamed_copy = await instance.admin.post("/v1/templates/our-bug-fix/copies", {"slug": "third", "name": "Third"})
    assert (renamed_copy.json()["name"], renamed_copy.json()["phases"]) == ("Third", included["phases"])


async def test_a_recorded_version_of_an_included_template_can_be_read_after_an_upgrade(instance: Instance, tmp_path: Path) -> None:
    """A plan names the version that it was made from, so its text stays."""
    variables = {"variables": {"summary": "No tea", "component": "the kitchen"}}
    plan = (await instance.agent.post("/v1/templates/bug-fix/plans", variables)).raise_for_status().json()
    old = (await instance.agent.get("/v1/templates/bug-fix")).json()
    version = plan["template"]["version"]

    async with _upgraded(instance, tmp_path) as upgraded:
        new = (await upgraded.get("/v1/templates/bug-fix")).json()
        stored = (await upgraded.get(f"/v1/templates/bug-fix?version={version}")).raise_for_status().json()
        versions = (await upgraded.get("/v1/templates/bug-fix/versions")).json()["data"]
        response = await upgraded.post("/v1/templates/bug-fix/plans", {**variables, "version": version})
        unused = await upgraded.get("/v1/templates/feature/versions")
        removed = (await upgraded.get("/v1/templates/incident")).status_code

    assert (old["version"], new["version"] == version, new["name"]) == (version, False, "Defect")
    assert stored == old
    assert [(listed["version"], listed["in_use"]) for listed in versions] == [(new["version"], True), (version, False)]
    assert (response.status_code, response.json()["template"]["version"]) == (201, version)
    assert unused.json()["meta"]["total"] == 1
    assert removed == 404


async def test_a_recorded_version_of_a_removed_template_can_be_read(instance: Instance, tmp_path: Path) -> None:
    """Also if the new Rookery has no template of that slug; the slug is then free."""
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
    upgraded = copy(instance.rookery)
    templates = Templates(upgraded.db, upgraded.access.audit, upgraded.clock, shipped=read_templates(folder))
    upgraded.domains = [Domain(operations=[("/v1", TemplateApi(templates=templates, plans=upgraded.agents.plans).operations())])]
    caller = Caller(httpx2.ASGITransport(create_app(upgraded)), instance.admin.key)
    async with caller.http:
        yield caller


async def test_a_copy_is_validated_like_a_new_template(instance: Instance) -> None:
    """A name that is too long for the title of its plans, or has unknown placeholders, is rejected."""
    assert (await _add(instance.admin, plan={})).status_code == 201

    for name in ("n" * 300, "{{ nobody }}"):
        response = await instance.admin.post("/v1/templates/hotfix/copies", {"slug": "other", "name": name})
        assert response.status_code == 422, response.text


async def test_a_preview_is_the_plan_without_storing_it(instance: Instance) -> None:
    """With the values inserted; it needs only the permission to read."""
    await _add(instance.admin)
    reader = await instance.agent_key("templates.read")

    preview = await reader.post("/v1/templates/hotfix/preview", {"variables": {"what": "the {{ level }}", "urgency": 1}})

    assert preview.status_code == 200, preview.text
    plan = preview.json()["plan"]
    assert plan["title"] == "Repair the {{ level }}"
    assert plan["description"] == "## Guidelines\n\n- One change, and how to undo it."
    assert plan["metadata"] == {"level": "high"}
    assert plan["phases"][0]["tasks"] == [{"name": "Find it"}, {"name": "Undo it", "priority": 1}]
    assert preview.json()["variables"] == {"what": "the {{ level }}", "level": "high", "urgency": 1}


async def test_invalid_variables_are_reported_by_name(instance: Instance) -> None:
    """An unknown, missing or invalid variable is 422."""
    await _add(instance.admin)

    response = await instance.agent.post("/v1/templates/hotfix/preview", {"variables": {"waht": "x", "level": "hihg", "urgency": "1"}})

    assert _fields(response) == {
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


async def test_an_invalid_template_is_rejected(instance: Instance) -> None:
    """With the fields, so that the author can correct them."""
    for field, fields in _BAD:
        document: dict[str, object] = {"slug": "bad", "name": "Bad", "phases": [{"name": "a"}], **fields}

        assert field in _fields(await instance.admin.post("/v1/templates", document)), fields
    assert (await instance.admin.get("/v1/templates/bad")).status_code == 404


async def test_templates_have_permissions_of_their_own(instance: Instance) -> None:
    """templates.read lists and previews, templates.write writes; the preset agent may not write."""
    assert (await _add(instance.agent)).json()["required_permission"] == "templates.write"
    assert (await instance.agent.post("/v1/templates/bug-fix/copies", {"slug": "x"})).json()["required_permission"] == "templates.write"
    writer = await instance.agent_key("templates.write")
    assert (await _add(writer)).status_code == 201
    assert (await writer.get("/v1/templates/hotfix")).json()["required_permission"] == "templates.read"


async def test_templates_are_hidden_from_other_tenants(instance: Instance) -> None:
    """Another workspace and the sandbox have their own templates, and may use the same slug."""
    await _add(instance.admin)
    other_caller = await instance.api_key(workspace_id=await instance.workspace("other"))
    tester = await instance.api_key(environment="test")

    for caller in (other_caller, tester):
        assert (await caller.get("/v1/templates?q=hotfix")).json()["data"] == []
        assert (await caller.send("DELETE", "/v1/templates/hotfix")).status_code == 404
        assert (await _add(caller, name="Theirs")).status_code == 201
    assert (await instance.admin.get("/v1/templates/hotfix")).json()["name"] == "Hotfix"


async def test_the_number_of_templates_and_versions_is_limited(instance: Instance) -> None:
    """A workspace has at most 200 templates, each with its latest 50 versions."""
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    assert (await _add(instance.admin)).status_code == 201
    for number in range(MAX_VERSIONS_PER_TEMPLATE):
        assert (await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "name": f"n{number}"})).status_code == 200
    versions = (await instance.admin.get("/v1/templates/hotfix/versions")).json()
    assert versions["meta"]["total"] == MAX_VERSIONS_PER_TEMPLATE
    assert versions["data"][0]["in_use"] is True

    small: dict[str, object] = {"name": "a", "phases": [{"name": "a"}]}
    for number in range(MAX_TEMPLATES_PER_WORKSPACE - 1):
        assert (await instance.admin.post("/v1/templates", {**small, "slug": f"t{number}"})).status_code == 201
    response = await instance.admin.post("/v1/templates", {**small, "slug": "more"})
    assert (response.status_code, response.json()["error"]) == (409, "too_many")


async def test_every_change_is_in_the_audit_log(instance: Instance) -> None:
    """With its actor, as templates affect how all agents work."""
    template = (await _add(instance.admin)).json()
    await instance.admin.send("DELETE", "/v1/templates/hotfix")

    entries = (await instance.admin.get("/api/v1/audit?per_page=2")).json()["data"]

    assert [(entry["action"], entry["subject"]["id"]) for entry in entries] == [
        ("template.deleted", "hotfix"),
        ("template.created", "hotfix"),
    ]
    assert template["version"] in json.dumps(entries)


async def test_deleting_a_workspace_deletes_its_templates(instance: Instance) -> None:
    """Every row."""
    number = await instance.workspace("gone")
    assert (await _add(await instance.api_key(workspace_id=number))).status_code == 201

    deletion = await instance.rookery.access.workspaces.delete(number, by=OPERATOR)

    assert deletion.row_count is not None
    assert deletion.row_count >= 2


@dataclass(frozen=True)
class _Shell:
    """A command line on a store with one workspace."""

    settings: Settings
    folder: Path

    def __call__(self, *arguments: str, exit_code: int = 0, text: str | None = None) -> str:
        """Run `rookery templates …` and return its standard output and standard error."""
        result = CliRunner().invoke(app, list(arguments), obj=CommandContext(self.settings), input=text)
        assert result.exit_code == exit_code, (result.output, result.exception)
        return result.output if result.exception is None or isinstance(result.exception, SystemExit) else str(result.exception)

    def write(self, name: str, text: str) -> str:
        """Write a file and return its path."""
        (self.folder / name).write_text(text, encoding="utf-8")
        return str(self.folder / name)


@pytest.fixture
def shell(data_dir: Path, tmp_path: Path) -> _Shell:
    """The commands, on an embedded store."""
    settings = Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0)

    async def create_keys() -> None:
        async with CommandContext(settings).open() as rookery:
            await rookery.create_first_keys()

    asyncio.run(create_keys())
    return _Shell(settings, tmp_path)


def test_files_are_checked_added_and_replaced_with_commands(shell: _Shell) -> None:
    """An included template is saved, changed, checked, previewed and added under another slug; a second change is a new version."""
    file = shell.write("ours.yaml", shell("show", "bug-fix").replace("slug: bug-fix", "slug: ours").replace("name: Bug fix", "name: Ours"))

    assert shell("check", file) == f"{file}: valid\n"
    assert "# Fix: No tea" in shell("preview", file, "--var", "summary=No tea", "--var", "component=kitchen")
    assert "Would add ours" in shell("add", file, "--dry-run")
    assert [load["slug"] for load in json.loads(shell("list", "--json"))] == EIGHT
    added = json.loads(shell("add", file, "--json"))
    assert shell("add", file, exit_code=1).startswith("The workspace already has a template with the slug 'ours'")
    assert shell("add", file, "--dry-run", exit_code=1).startswith("The workspace already has a template with the slug 'ours'")
    assert "Would add ours" in shell("add", file, "--dry-run", "--replace")
    changed_file = shell.write("ours.yaml", Path(file).read_text(encoding="utf-8").replace("name: Ours", "name: Our own bug fix"))
    replaced = json.loads(shell("add", changed_file, "--replace", "--json"))

    assert (replaced["name"], replaced["version"] != added["version"]) == ("Our own bug fix", True)
    assert [load["slug"] for load in json.loads(shell("list", "--json"))] == sorted([*EIGHT, "ours"])
    assert "name: Our own bug fix" in shell("show", "ours")


def test_an_invalid_file_is_reported_by_line_and_field(shell: _Shell) -> None:
    """All files and all their errors; exit code 1, or 0 if there are only warnings."""
    broken = shell.write("broken.yaml", "name: x\nname: y")
    invalid = shell.write("wrong.json", json.dumps({"name": "x", "phases": [{"name": "{{ who }}"}], "colour": "red"}))
    with_warning = shell.write("idle.yaml", "name: Idle\nvariables: {who: {}}\nphases: [{name: a, tasks: [b]}]")

    output = shell("check", broken, invalid, with_warning, "--json", exit_code=1)

    results = {Path(result["file"]).name: result for result in json.loads(output)}
    assert results["broken.yaml"]["errors"] == {"file": ["line 2: 'name' occurs twice"]}
    assert list(results["wrong.json"]["errors"]) == ["colour"]
    assert (results["idle.yaml"]["ok"], results["idle.yaml"]["warnings"]) == (True, ["The variable 'who' is not used in the template."])
    assert "Cannot read" in shell("check", "nowhere.yaml", exit_code=1)


def test_the_preview_command_names_every_invalid_variable(shell: _Shell) -> None:
    """A number is parsed as one; errors name the variable."""
    preview = json.loads(shell("preview", "release", "--var", "product=tea", "--var", "version=1.2", "--var", "soak_hours=3", "--json"))
    output = shell("preview", "release", "--var", "product=tea", "--var", "version=new", "--var", "soak=3", exit_code=1)

    assert preview["variables"]["soak_hours"] == 3
    assert "variables.version: must match" in output
    assert "variables.soak: unknown variable; did you mean 'soak_hours'?" in output


@pytest.mark.parametrize("prefix", ["/api/agent", "/v1"])
async def test_a_plan_is_created_from_a_template(instance: Instance, prefix: str) -> None:
    """With templates.instantiate only. The plan stores the template, its version and the values."""
    user = await instance.agent_key("templates.instantiate")
    version = (await _add(instance.admin)).json()["version"]

    response = await user.post(
        f"{prefix}/templates/hotfix/plans",
        {"variables": {"what": "login"}, "org": "acme", "project": "web", "status": "active", "metadata": {"by": "kim"}},
    )

    assert response.status_code == 201, response.text
    plan = response.json()
    assert (plan["title"], plan["slug"], plan["status"], plan["org"]) == ("Repair login", "repair-login", "active", "acme")
    assert plan["template"] == {"slug": "hotfix", "version": version}
    assert plan["variables"] == {"what": "login", "level": "high", "urgency": 0}
    assert plan["metadata"] == {"level": "high", "by": "kim"}
    first_phase, second_phase = plan["phases"]
    assert [(task["name"], task["priority"]) for task in first_phase["tasks"]] == [("Find it", 2), ("Undo it", 0)]
    assert (first_phase["name"], second_phase["depends_on"], second_phase["blocked"]) == ("Repair login", [first_phase["id"]], True)
    assert second_phase["acceptance_criteria"] == [{"text": "Everybody knows.", "checked": False}]
    assert (await instance.agent.get(f"{prefix}/plans/repair-login")).json()["template"] == plan["template"]


async def test_every_included_template_creates_a_plan(instance: Instance) -> None:
    """With only the required variables. Its first phase is ready, and a later version of the template changes no plan."""
    for slug in EIGHT:
        variables = (await instance.agent.get(f"/v1/templates/{slug}")).json()["variables"]
        values = {name: "1.2" if variable["pattern"] else "tea" for name, variable in variables.items() if variable["required"]}
        response = await instance.agent.post(f"/v1/templates/{slug}/plans", {"variables": values, "status": "active"})
        assert response.status_code == 201, (slug, response.text)
        assert response.json()["phases"][0]["ready"] is True, slug
        assert "{{" not in response.text, slug
    assert (await instance.agent.get("/v1/plans")).json()["meta"]["total"] == len(EIGHT)


async def test_a_plan_can_be_created_from_an_older_version(instance: Instance) -> None:
    """A stored version can be used although another one is current."""
    first = (await _add(instance.admin)).json()["version"]
    document = {name: value for name, value in HOTFIX.items() if name != "slug"}
    await instance.admin.send("PUT", "/v1/templates/hotfix", {**document, "phases": [{"name": "Other"}]})

    current = (await instance.admin.post("/v1/templates/hotfix/plans", {"variables": {"what": "a"}})).json()
    older = (await instance.admin.post("/v1/templates/hotfix/plans", {"variables": {"what": "a"}, "version": first})).json()

    assert [phase["name"] for phase in current["phases"]] == ["Other"]
    assert [phase["name"] for phase in older["phases"]] == ["Repair a", "Tell"]
    assert older["template"]["version"] == first != current["template"]["version"]


async def test_a_filled_template_must_fit_the_limits_of_a_plan(instance: Instance) -> None:
    """Inserted first, validated after. A rejected plan is not stored, and a preview returns the same error."""
    await _add(instance.admin)
    for variables, field in (({"what": "x" * 300}, "title"), ({"what": "x", "urgency": 9}, "phases.0.tasks.1.priority")):
        for action in ("plans", "preview"):
            assert field in _fields(await instance.admin.post(f"/v1/templates/hotfix/{action}", {"variables": variables})), action
    cycle: Json = {
        "slug": "circle",
        "name": "Circle",
        "phases": [{"key": "a", "name": "A", "depends_on": ["b"]}, {"key": "b", "name": "B", "depends_on": ["a"]}],
    }
    assert "depends_on" in _fields(await instance.admin.post("/v1/templates", cycle))
    cycle["phases"] = [{"name": "A", "depends_on": ["nobody"]}]
    assert "phases.0.depends_on" in _fields(await instance.admin.post("/v1/templates", cycle))
    assert (await instance.admin.get("/v1/plans")).json()["data"] == []


async def test_a_repeated_request_creates_one_plan(instance: Instance) -> None:
    """POST …/plans creates, so it accepts an Idempotency-Key."""
    await _add(instance.admin)
    body = {"variables": {"what": "login"}}

    first = await instance.admin.post("/v1/templates/hotfix/plans", body, **{"Idempotency-Key": "once"})
    repeated = await instance.admin.post("/v1/templates/hotfix/plans", body, **{"Idempotency-Key": "once"})

    assert (repeated.json()["id"], repeated.headers["idempotent-replay"]) == (first.json()["id"], "true")
    assert (await instance.admin.get("/v1/plans")).json()["meta"]["total"] == 1


async def test_a_key_of_one_org_creates_plans_only_there(instance: Instance) -> None:
    """A template does not bypass the key's orgs."""
    await _add(instance.admin)
    caller = await instance.agent_key("templates.instantiate", restrictions=KeyRestrictions(orgs=frozenset({"acme"})))
    body: Json = {"variables": {"what": "login"}}

    rejected = await caller.post("/v1/templates/hotfix/plans", {**body, "org": "other"})
    created = await caller.post("/v1/templates/hotfix/plans", {**body, "org": "acme"})

    assert (rejected.status_code, created.status_code) == (403, 201)
