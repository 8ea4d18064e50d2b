"""The documentation says what the code does: each table against its source, each block run or read by the product itself."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import rookery
from rookery.access.api.audit import ALL_CHAINS_SCOPE
from rookery.access.scopes import PRESETS, SCOPES
from rookery.agents.models.templates import Template
from rookery.agents.schemas.templates import parse_template
from rookery.agents.templates.render import list_unused_variables
from rookery.agents.templates.template_files import parse_template_file
from rookery.app import build_route_table
from rookery.kernel import events
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import RookeryError, WrongSettings
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.secret import Secret
from rookery.memory.access_filter import ADMIN_SCOPE
from rookery.tools.discovery.client_guides import KEY_VARIABLE
from rookery.tools.models import CommandTarget, FailureCode, HttpTarget, Server, ToolRules
from rookery.tools.servers.servers_file import parse_servers_file
from rookery.wiring import build_platform
from tests.conftest import SECRET_KEY
from tests.documentation import (
    PAGES,
    ROOT,
    RUN,
    all_commands,
    blocks,
    code,
    command_summaries,
    commands,
    differences,
    open_terminal,
    prose,
    table,
    text_of,
)

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "rookery"

NOTHING_RAISES_IT = "nothing raises it yet"
GIVEN = {"URL", "KEY", "NEW_KEY", "ID", "BACKUP", "SESSION", "RECALL", "MEMORY"}
"""What a reader puts into the environment by hand; here it is there."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """Every route of the server; building it opens nothing."""
    return build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("unused")))).endpoints


def test_every_setting_is_in_the_reference() -> None:
    """House 5.7: settings.md names each field of Settings with its default and what it says of itself, and nothing else."""
    real = [[f"`ROOKERY_{each.name.upper()}`", _default(each), each.metadata["description"]] for each in dataclasses.fields(Settings)]

    assert table(REFERENCE / "settings.md", "Variable") == real


def test_every_error_code_is_in_the_reference() -> None:
    """House 5.7, D-10: errors.md names the code and status of each error that is sent, of failed tool calls too, and nothing else."""
    _import_everything()
    sent = {(each.code, str(each.status)) for each in _below(RookeryError) if each is not WrongSettings}
    sent |= {(code, "500") for code in get_args(FailureCode)} | {(WrongSettings.code, "none")}
    shown = [(row[0].strip("`"), row[1]) for row in table(REFERENCE / "errors.md", "Code")]

    assert (set(shown), len(shown)) == (sent, len(sent))


def test_every_event_is_in_the_reference() -> None:
    """House 5.7, spec 6.1: events.md names each class with its fields, says of those that nothing raises so, and names nothing else."""
    classes = {each.__name__: each for each in vars(events).values() if isinstance(each, type) and each.__module__ == events.__name__}
    facts = {name: each for name, each in classes.items() if dataclasses.is_dataclass(each) and each is not events.EventBus}
    raised = {name for name in facts if any(f"{name}(" in text_of(path) for path in _modules() if path.name != "events.py")}
    rows = table(REFERENCE / "events.md", "Event")

    assert {row[0].strip("`"): code(row[1]) for row in rows} == {
        name: [each.name for each in dataclasses.fields(fact)] for name, fact in facts.items()
    }
    assert {row[0].strip("`") for row in rows if row[2] != NOTHING_RAISES_IT} == raised


def test_every_command_is_in_the_reference() -> None:
    """House 5.7, D-04: commands.md has each command with its arguments, its options and the summary of its help, and nothing else."""
    rows = table(REFERENCE / "commands.md", "Command")

    assert {(row[0].strip("`"), frozenset(code(row[1]))) for row in rows} == set(all_commands())
    assert {row[0].strip("`"): row[2] for row in rows} == command_summaries()


def test_every_scope_is_in_the_reference(endpoints: list[RouteEndpoint]) -> None:
    """House 5.7, D-23: scopes.md names each scope, what it allows and whether anything asks for it; presets likewise."""
    asked = {each.route.required_scope for each in endpoints} | {ADMIN_SCOPE, ALL_CHAINS_SCOPE}
    presets = {row[0].strip("`"): tuple(code(row[1])) for row in table(REFERENCE / "scopes.md", "Preset")}

    assert table(REFERENCE / "scopes.md", "Scope") == [
        [f"`{name}`", says, "yes" if name in asked else "no"] for name, says in SCOPES.items()
    ]
    assert presets == dict(PRESETS)


def test_every_route_is_in_the_reference(endpoints: list[RouteEndpoint]) -> None:
    """House 5.7: routes.md names each route with its scope, status and summary, in the order they are mounted, and nothing else."""
    assert table(REFERENCE / "routes.md", "Method and path") == [
        [f"`{each.route.method} {each.path}`", _needs(each), str(each.route.status), each.route.summary] for each in endpoints
    ]


def test_every_metric_is_in_the_reference(tmp_path: Path) -> None:
    """House 5.7, D-05: metrics.md names each metric with its kind, labels and what it says of itself, and nothing else."""
    real = sorted(build_platform(Settings(data_dir=tmp_path)).observability.metrics.list_descriptions(), key=lambda each: each.name)

    assert table(REFERENCE / "metrics.md", "Metric") == [
        [f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels) or "none", each.help_text] for each in real
    ]


def test_every_field_of_a_server_entry_is_in_the_reference() -> None:
    """D-31: the table of fields that work and the list of those that do not yet, together, are what the parser knows."""
    known = {each.name for kind in (Server, CommandTarget, HttpTarget) for each in dataclasses.fields(kind)}
    known -= {"id", "owner", "target", "rules", "fault", "kind", "secrets"}
    known |= {
        "type",
        *(f"tools.{each.name.removesuffix('_s') if each.name == 'timeouts_s' else each.name}" for each in dataclasses.fields(ToolRules)),
    }
    works = {name for row in table(REFERENCE / "servers-json.md", "Field") for name in code(row[0])}
    lines = text_of(REFERENCE / "servers-json.md").splitlines()
    idle = set(code(next((line for line in lines if line.startswith("These fields are read")), "")))
    readers = [
        path
        for path in _modules()
        if path.name not in {"models.py", "servers_file.py"} and not {"tools", "upstreams"}.isdisjoint(path.parts)
    ]
    used = {name for name in idle if any(re.search(rf"\.{name.removeprefix('tools.')}\b", text_of(path)) for path in readers)}

    assert (works | idle, works & idle, used) == (known, set(), set())


def test_every_block_of_a_servers_file_is_understood() -> None:
    """D-31: the product's own parser takes each, without a warning or a fault."""
    found = [block for page in PAGES for block in blocks(page) if block.language == "json"]

    assert found
    for block in found:
        read = parse_servers_file(block.text.encode(), {"HOME": "/home", "SEARCH_TOKEN": "token"})
        assert (read.warnings, [server.fault for server in read.servers.values() if server.fault]) == ((), []), block.where
        assert read.servers, block.where


def test_every_block_of_a_template_makes_a_plan() -> None:
    """D-63: the product's own reader takes each, as `rookery templates check` does, and asks for nothing that stands nowhere."""
    found = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]

    assert found
    for block in found:
        body = parse_template(parse_template_file(block.text))
        assert list_unused_variables(Template.from_document(body.slug, body.to_document())) == [], block.where


def test_every_block_of_settings_is_understood(tmp_path: Path) -> None:
    """D-02: files and variables that are shown load without a warning."""
    for block in (block for page in RUN for block in blocks(page)):
        variables = {"DB_PASSWORD": "secret"}
        if block.language == "toml":
            path = tmp_path / "rookery.toml"
            path.write_text(block.text, encoding="utf-8")
            variables["ROOKERY_CONFIG"] = str(path)
        elif block.language == "sh":
            variables |= _assigned(block.text)
        assert load_settings(variables).warnings == (), block.where


@pytest.mark.timeout(180)
def test_every_command_of_the_documentation_does_what_is_shown(model_folder: Path, subtests: pytest.Subtests) -> None:
    """House 6, README: its code is run by the tests; the tutorial's and the how-tos' likewise, against a real server."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", text_of(ROOT / "Makefile"), re.MULTILINE))
    with open_terminal(model_folder) as terminal:
        for page in RUN:
            with subtests.test(page=page.name):
                for block in blocks(page):
                    assert block.language in {"sh", "console", "json", "toml", "text", "sql", "python", "yaml"}, block.where
                    for shown in commands(block) if block.language in {"sh", "console"} else ():
                        words = shlex.split(shown.command)
                        if words[0] == "make":
                            assert words[1] in targets, shown.where
                        elif words[0] == "export" or "=" in words[0]:
                            assert _assigned(shown.command).keys() <= GIVEN | {"DB_PASSWORD"} or "ROOKERY_" in shown.command, shown.where
                        else:
                            terminal.run(shown)


def test_the_answers_that_are_shown_are_told_from_others() -> None:
    """House 6: the comparison above sees a missing field, a longer list and another value, and forgives what varies."""
    shown: dict[str, object] = {"id": "a", "tags": ["x"], "text": "…", "took_ms": 3, "more": {"…": "…"}}

    assert list(differences(shown, {"id": "b", "tags": ["x"], "text": "other", "took_ms": 4, "more": {"k": 1}})) == []
    assert len(list(differences(shown, {"id": None, "tags": ["x", "y"], "text": 1, "took_ms": "4"}))) == 5
    assert list(differences({"count": 1}, {"count": True})) != []
    assert list(differences({"count": 1, "…": "…"}, {"count": 1, "other": 2})) == []
    assert len(list(differences({"count": 1, "gone": 2, "…": "…"}, {"count": 3}))) == 2


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    """House 5.7: a link within the repository has its page, and its heading."""
    broken: list[str] = []
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, heading = target.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (heading and heading not in _headings(other)):
            broken.append(target)

    assert broken == []


def test_names_of_settings_and_commands_are_right_wherever_they_stand() -> None:
    """House 5.7: prose names no setting and no command that does not exist."""
    known = {f"ROOKERY_{each.name.upper()}" for each in dataclasses.fields(Settings)} | {"ROOKERY_CONFIG", KEY_VARIABLE}
    real = {name for name, _ in all_commands()}
    names = {" ".join(word for word in name.split() if not word.isupper()) for name in real}
    wrong: list[str] = []
    for page in PAGES:
        text = text_of(page).replace("ROOKERY_SERVICE_…", "").replace("ROOKERY_PORT=tcp", "")
        wrong += [f"{page.name}: {name}" for name in re.findall(r"ROOKERY_[A-Z][A-Z_]*", text) if name not in known]
        for said in re.findall(r"(?:^|`|\$ )rookery ([a-z][a-z:-]*(?: [a-z][a-z-]*)?)", text, re.MULTILINE):
            words = said.replace("brain:", "brain ").split()
            if not names & {f"rookery {words[0]}", f"rookery {' '.join(words[:2])}"}:
                wrong.append(f"{page.name}: rookery {said}")

    assert wrong == []


def test_the_engines_of_the_readme_are_those_that_open(tmp_path: Path) -> None:
    """D-02: each row's embedded address opens, and a planned engine is refused until then."""
    for name, setting, embedded, distributed in table(ROOT / "README.md", "What"):
        field = code(setting)[0].removeprefix("ROOKERY_").lower()
        assert code(embedded)[0] == "embedded:", name
        build_platform(Settings(data_dir=tmp_path, **{field: Secret("embedded:")}))  # pyright: ignore[reportArgumentType] - an address, by its name
        if code(distributed):
            build_platform(Settings(data_dir=tmp_path, secret_key=Secret(SECRET_KEY), **{field: Secret(code(distributed)[0])}))  # pyright: ignore[reportArgumentType] - as above
            continue
        scheme = {"Qdrant": "qdrant", "Elasticsearch": "elasticsearch", "Redis": "redis"}.get(distributed.split(": ")[1], "openai+https")
        with pytest.raises((WrongSettings, ValueError)):
            build_platform(Settings(data_dir=tmp_path, **{field: Secret(f"{scheme}://127.0.0.1/x")}))  # pyright: ignore[reportArgumentType] - as above


def test_every_decision_that_the_code_names_is_told() -> None:
    """House 5.7: decisions.md has each number once, built or not yet, in their order."""
    text = text_of(ROOT / "docs" / "decisions.md")
    answered = re.findall(r"^### (D-\d\d)", text, re.MULTILINE)
    waiting = re.findall(r"D-\d\d", text.rpartition("## Not built yet")[2])
    named = {number for path in _modules() for number in re.findall(r"\bD-\d\d\b", text_of(path))}

    assert len({*answered, *waiting}) == len(answered) + len(waiting)
    assert waiting == sorted(waiting)
    assert named - {*answered, *waiting} == set()


def _default(setting: dataclasses.Field[object]) -> str:
    """Return a setting's default as the reference shows it."""
    value = setting.default
    if setting.name == "data_dir":
        return "the platform's user data folder"
    if value is None or value == ():
        return "none"
    text = value.reveal() if isinstance(value, Secret) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def _needs(endpoint: RouteEndpoint) -> str:
    route = endpoint.route
    return "none; no key either" if route.public else f"`{route.required_scope}`" if route.required_scope else "any key"


def _import_everything() -> None:
    """Import every module, so that every class is known; those that are scripts or act at import are left out."""
    for found in pkgutil.walk_packages(rookery.__path__, "rookery."):
        if not found.name.startswith("rookery.migrations") and not found.name.endswith(("__main__", "process_guard")):
            importlib.import_module(found.name)


def _below(root: type[RookeryError]) -> Iterator[type[RookeryError]]:
    for each in root.__subclasses__():
        if each.__module__.startswith("rookery."):  # tests have errors of their own
            yield each
        yield from _below(each)


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _assigned(text: str) -> dict[str, str]:
    """Return the variables that lines of a shell assign."""
    lines = (line.removeprefix("export ") for line in text.splitlines())
    return {
        name: _printed(value) if "$(" in value else "".join(shlex.split(value))
        for line in lines
        for name, mark, value in [line.partition("=")]
        if mark and re.fullmatch(r"[A-Z_]+", name)
    }


def _printed(value: str) -> str:
    """Return what a shell makes of the value of an assignment that has a command in it."""
    return subprocess.run(["sh", "-c", f"printf %s {value}"], capture_output=True, text=True, check=True, timeout=30).stdout


def _headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in found}
