"""The documentation matches the code: tables are compared with their source, and the product runs or parses each block."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import EnumType
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import rookery
from rookery.access.api.audit import ALL_CHAINS_SCOPE
from rookery.access.scopes import PRESETS, SCOPES
from rookery.agents.models.templates import Template
from rookery.agents.schemas.templates import parse_template
from rookery.agents.templates.render import list_unused_variables
from rookery.agents.templates.template_files import parse_template_file
from rookery.app import build_route_table
from rookery.domains import load_events
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import RookeryError, WrongSettings
from rookery.kernel.http.routes import RouteEndpoint
from rookery.kernel.secret import Secret
from rookery.memory.access_filter import ADMIN_SCOPE
from rookery.migrations.errors import MigrationFailed
from rookery.tools.discovery.client_guides import KEY_VARIABLE
from rookery.tools.entry_fields import EntryField, list_entry_fields
from rookery.tools.models import FailureCode, OAuthConfig, Root, Roots, ToolRules
from rookery.tools.servers.entries import FIELDS
from rookery.tools.servers.servers_file import parse_servers_file
from rookery.wiring import build_platform
from tests.conftest import SECRET_KEY
from tests.deadlines import HANG_S
from tests.documentation import (
    PAGES,
    ROOT,
    RUN,
    RUN_ELSEWHERE,
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

NOT_RAISED = "nothing raises it yet"
READER_VARIABLES = {"URL", "KEY", "NEW_KEY", "ID", "BACKUP", "SESSION", "RECALL", "MEMORY", "CAMPAIGN"}
"""Variables that a reader sets by hand and the terminal of the tests has."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> list[RouteEndpoint]:
    """Every route of the server; building them opens no store."""
    return build_route_table(build_platform(Settings(data_dir=tmp_path_factory.mktemp("unused")))).endpoints


def test_every_setting_is_in_the_reference() -> None:
    """settings.md has exactly the fields of Settings, with default and description."""
    real = [
        [f"`ROOKERY_{setting.name.upper()}`", _format_default(setting), setting.metadata["description"]]
        for setting in dataclasses.fields(Settings)
    ]

    assert table(REFERENCE / "settings.md", "Variable") == real


def test_every_error_code_is_in_the_reference() -> None:
    """errors.md has exactly the codes and statuses of all errors, including those of failed tool calls."""
    _import_everything()
    without_status = {WrongSettings, MigrationFailed}
    codes = {(error.code, str(error.status)) for error in _iter_subclasses(RookeryError) if error not in without_status}
    codes |= {(code, "500") for code in get_args(FailureCode)} | {(error.code, "none") for error in without_status}
    rows = [(row[0].strip("`"), row[1]) for row in table(REFERENCE / "errors.md", "Code")]

    assert (set(rows), len(rows)) == (codes, len(codes))


def test_every_event_is_in_the_reference() -> None:
    """events.md has exactly the event classes with their fields, and marks those that no code raises."""
    event_classes: dict[str, Any] = {event.__name__: event for event in load_events() if not event.__subclasses__()}
    raised = {name for name in event_classes if any(f"{name}(" in text_of(path) for path in _list_modules() if path.name != "events.py")}
    rows = table(REFERENCE / "events.md", "Event")

    assert {row[0].strip("`"): code(row[1]) for row in rows} == {
        name: [field.name for field in dataclasses.fields(event_class)] for name, event_class in event_classes.items()
    }
    assert {row[0].strip("`") for row in rows if row[2] != NOT_RAISED} == raised


def test_every_command_is_in_the_reference() -> None:
    """commands.md has exactly the commands, with arguments, options and the summary of their help."""
    rows = table(REFERENCE / "commands.md", "Command")

    assert {(row[0].strip("`"), frozenset(code(row[1]))) for row in rows} == set(all_commands())
    assert {row[0].strip("`"): row[2] for row in rows} == command_summaries()


def test_every_scope_is_in_the_reference(endpoints: list[RouteEndpoint]) -> None:
    """scopes.md has each scope, what it allows and whether a route requires it, and each preset."""
    required = {endpoint.route.required_scope for endpoint in endpoints} | {ADMIN_SCOPE, ALL_CHAINS_SCOPE}
    presets = {row[0].strip("`"): tuple(code(row[1])) for row in table(REFERENCE / "scopes.md", "Preset")}

    assert table(REFERENCE / "scopes.md", "Scope") == [
        [f"`{name}`", description, "yes" if name in required else "no"] for name, description in SCOPES.items()
    ]
    assert presets == dict(PRESETS)


def test_every_route_is_in_the_reference(endpoints: list[RouteEndpoint]) -> None:
    """routes.md has exactly the routes, with scope, status and summary, in their order in the route table."""
    assert table(REFERENCE / "routes.md", "Method and path") == [
        [f"`{endpoint.route.method} {endpoint.path}`", _required_key(endpoint), str(endpoint.route.status), endpoint.route.summary]
        for endpoint in endpoints
    ]


def test_every_metric_is_in_the_reference(tmp_path: Path) -> None:
    """metrics.md has exactly the metrics, with kind, labels and description."""
    metrics = sorted(build_platform(Settings(data_dir=tmp_path)).observability.metrics.list_descriptions(), key=lambda metric: metric.name)

    assert table(REFERENCE / "metrics.md", "Metric") == [
        [f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels) or "none", metric.help_text]
        for metric in metrics
    ]


def test_every_field_of_a_server_entry_is_in_the_reference() -> None:
    """servers-json.md has exactly the fields that the parser accepts, with their values, defaults and descriptions."""
    rules = {f"tools.{name}": field for name, field in list_entry_fields(ToolRules).items()}
    fields = {name: field for name, field in FIELDS.items() if name != "tools"} | rules

    assert table(REFERENCE / "servers-json.md", "Field") == [
        [f"`{name}`", _describe_values(field), _describe_default(field), field.description] for name, field in fields.items()
    ]


def test_every_block_of_a_servers_file_is_valid() -> None:
    """The parser accepts each block without warnings or faults."""
    json_blocks = [block for page in PAGES for block in blocks(page) if block.language == "json"]

    assert json_blocks
    for block in json_blocks:
        parsed = parse_servers_file(block.text.encode(), {"HOME": "/home", "SEARCH_TOKEN": "token"})
        assert (parsed.warnings, [server.fault for server in parsed.servers.values() if server.fault]) == ((), []), block.where
        assert parsed.servers, block.where


def test_every_block_of_a_template_is_valid() -> None:
    """The parser of `rookery templates check` accepts each block and finds no unused variable."""
    yaml_blocks = [block for page in PAGES for block in blocks(page) if block.language == "yaml"]

    assert yaml_blocks
    for block in yaml_blocks:
        body = parse_template(parse_template_file(block.text))
        assert list_unused_variables(Template.from_document(body.slug, body.to_document())) == [], block.where


def test_every_block_of_settings_is_valid(tmp_path: Path) -> None:
    """The settings files and variables of the pages load without warnings."""
    for block in (block for page in RUN for block in blocks(page)):
        names = re.findall(r"\$\{([A-Z]+_(?:PASSWORD|KEY))\}", block.text)
        variables = {"DB_PASSWORD": "secret", "OPENAI_KEY": "secret"} | dict.fromkeys(names, "secret")
        if block.language == "toml":
            path = tmp_path / "rookery.toml"
            path.write_text(block.text, encoding="utf-8")
            variables["ROOKERY_CONFIG"] = str(path)
        elif block.language == "sh":
            variables |= _parse_assignments(block.text)
        assert load_settings(variables).warnings == (), block.where


def test_every_documented_command_prints_the_documented_output(model_folder: Path, subtests: pytest.Subtests) -> None:
    """The commands of README, tutorial and how-tos run against a real server."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", text_of(ROOT / "Makefile"), re.MULTILINE))
    with open_terminal(model_folder) as terminal:
        for page in RUN:
            with subtests.test(page=page.name):
                for block in blocks(page):
                    assert block.language in {"sh", "console", "json", "toml", "text", "sql", "python", "yaml"}, block.where
                    for example in commands(block) if block.language in {"sh", "console"} else ():
                        words = shlex.split(example.command)
                        if words[0] == "make":
                            assert words[1] in targets, example.where
                        elif words[0] == "export" or "=" in words[0]:
                            assert (
                                _parse_assignments(example.command).keys() <= READER_VARIABLES | {"DB_PASSWORD"}
                                or "ROOKERY_" in example.command
                            ), example.where
                        else:
                            terminal.run(example)


def test_every_variable_of_a_page_is_set_by_a_line_before(subtests: pytest.Subtests) -> None:
    """A reader can paste the commands of a page in their order. `$URL` and `$KEY` are those of all guides."""
    for page in RUN:
        with subtests.test(page=page.name):
            assigned = {"URL", "KEY"}
            for block in blocks(page):
                for example in commands(block) if block.language in {"sh", "console"} else ():
                    used = set(re.findall(r"\$([A-Z_]+)\b", example.command)) & READER_VARIABLES
                    assert used <= assigned, example.where
                    if example.command.startswith("export "):
                        assigned |= _parse_assignments(example.command).keys()


def test_every_page_is_run_or_has_a_reason() -> None:
    """Every block of the documentation is run by the suite; a page that is not names who tests it, or why nothing is to run."""
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").rglob("*.md")}
    listed = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in PAGES if path.is_relative_to(ROOT / "docs")}

    assert pages == listed | RUN_ELSEWHERE.keys()


def test_documented_responses_are_compared_with_real_ones() -> None:
    """The comparison finds missing fields, longer lists and other values, and ignores values that vary."""
    shown: dict[str, object] = {"id": "a", "tags": ["x"], "text": "…", "took_ms": 3, "more": {"…": "…"}}

    assert list(differences(shown, {"id": "b", "tags": ["x"], "text": "other", "took_ms": 4, "more": {"k": 1}})) == []
    assert len(list(differences(shown, {"id": None, "tags": ["x", "y"], "text": 1, "took_ms": "4"}))) == 5
    assert list(differences({"count": 1}, {"count": True})) != []
    assert list(differences({"count": 1, "…": "…"}, {"count": 1, "other": 2})) == []
    assert len(list(differences({"count": 1, "gone": 2, "…": "…"}, {"count": 3}))) == 2


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.stem
)
def test_links_have_a_target(page: Path) -> None:
    """The page and the heading of a link within the repository exist."""
    broken: list[str] = []
    for target in re.findall(r"\]\(([^)]+)\)", prose(page)):
        path, _, heading = target.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        other = (page.parent / path).resolve() if path else page
        if not other.exists() or (heading and heading not in _headings(other)):
            broken.append(target)

    assert broken == []


def test_every_setting_and_command_in_the_pages_exists() -> None:
    """The pages name no setting and no command that does not exist."""
    variables = {f"ROOKERY_{setting.name.upper()}" for setting in dataclasses.fields(Settings)} | {"ROOKERY_CONFIG", KEY_VARIABLE}
    variables |= {f"ROOKERY_{setting.name.upper()}_FILE" for setting in dataclasses.fields(Settings) if "Secret" in str(setting.type)}
    command_names = {name for name, _ in all_commands()}
    names = {" ".join(word for word in name.split() if not word.isupper()) for name in command_names}
    names |= {" ".join(name.split()[:3]) for name in names}  # the groups in groups
    wrong: list[str] = []
    for page in PAGES:
        text = text_of(page).replace("ROOKERY_SERVICE_…", "").replace("ROOKERY_PORT=tcp", "")
        wrong += [f"{page.name}: {name}" for name in re.findall(r"ROOKERY_[A-Z][A-Z_]*", text) if name not in variables]
        for command in re.findall(r"(?:^|`|\$ )rookery ([a-z][a-z:-]*(?: [a-z][a-z-]*)?)", text, re.MULTILINE):
            words = command.replace("brain:", "brain ").split()
            if not names & {f"rookery {words[0]}", f"rookery {' '.join(words[:2])}"}:
                wrong.append(f"{page.name}: rookery {command}")

    assert wrong == []


def test_the_engines_of_the_readme_are_supported(tmp_path: Path) -> None:
    """The embedded address of each row works, and a planned engine is rejected."""
    for name, setting, embedded, distributed in table(ROOT / "README.md", "What"):
        field = code(setting)[0].removeprefix("ROOKERY_").lower()
        assert code(embedded)[0] == "embedded:", name
        build_platform(Settings(data_dir=tmp_path, **{field: Secret("embedded:")}))  # pyright: ignore[reportArgumentType] - a setting by name
        if code(distributed):
            build_platform(Settings(data_dir=tmp_path, secret_key=Secret(SECRET_KEY), **{field: Secret(code(distributed)[0])}))  # pyright: ignore[reportArgumentType] - as above
            continue
        scheme = {"Qdrant": "qdrant", "Elasticsearch": "elasticsearch", "Redis": "redis"}.get(distributed.split(": ")[1], "openai+https")
        with pytest.raises((WrongSettings, ValueError)):
            build_platform(Settings(data_dir=tmp_path, **{field: Secret(f"{scheme}://127.0.0.1/x")}))  # pyright: ignore[reportArgumentType] - as above


def _describe_values(field: EntryField) -> str:
    """Return the values that a field of a server entry accepts."""
    choices = get_args(field.type) if get_origin(field.type) is Literal else field.type if isinstance(field.type, EnumType) else None
    if choices is not None:
        return ", ".join(f"`{choice}`" for choice in choices)
    numbers = "" if field.minimum is None else f"{field.minimum:,} to {field.maximum:,}"
    texts: dict[object, str] = {
        str: "text",
        bool: "`true`, `false`",
        int: numbers,
        float: numbers,
        datetime: "a date or time",
        tuple[str, ...]: "list of texts",
        frozenset[int]: "list of workspace ids",
        Mapping[str, str]: "object of texts",
        Mapping[str, float]: f"object of patterns with seconds, {numbers}",
        OAuthConfig: f"`oauth`, or an object with {', '.join(f'`{name}`' for name in list_entry_fields(OAuthConfig))}",
        Roots: "`caller`, or a list of file URIs or of objects with " + ", ".join(f"`{name}`" for name in list_entry_fields(Root)),
    }
    return texts[field.type] + (", or null" if field.keeps_null else "")


def _describe_default(field: EntryField) -> str:
    if field.default in (None, "", (), {}):
        return ""
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{str(field.default).lower()}`"


def _format_default(setting: dataclasses.Field[object]) -> str:
    """Return a setting's default as the reference shows it."""
    value = setting.default
    if setting.name == "data_dir":
        return "the platform's user data folder"
    if value is None or value == ():
        return "none"
    text = value.reveal() if isinstance(value, Secret) else str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text}`"


def _required_key(endpoint: RouteEndpoint) -> str:
    route = endpoint.route
    return "none; no key either" if route.public else f"`{route.required_scope}`" if route.required_scope else "any key"


def _import_everything() -> None:
    """Import every module, except scripts and modules with effects at import, so that all subclasses exist."""
    for module in pkgutil.walk_packages(rookery.__path__, "rookery."):
        if not module.name.startswith("rookery.migrations") and not module.name.endswith(("__main__", "process_guard")):
            importlib.import_module(module.name)


def _iter_subclasses(root: type[RookeryError]) -> Iterator[type[RookeryError]]:
    for subclass in root.__subclasses__():
        if subclass.__module__.startswith("rookery."):  # tests define errors too
            yield subclass
        yield from _iter_subclasses(subclass)


def _list_modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _parse_assignments(text: str) -> dict[str, str]:
    """Return the variables that shell lines assign."""
    lines = (line.removeprefix("export ") for line in text.splitlines())
    return {
        name: _expand(value) if "$(" in value else "".join(shlex.split(value))
        for line in lines
        for name, mark, value in [line.partition("=")]
        if mark and re.fullmatch(r"[A-Z_]+", name)
    }


def _expand(value: str) -> str:
    """Return the value of an assignment that contains a command, as a shell expands it."""
    return subprocess.run(["sh", "-c", f"printf %s {value}"], capture_output=True, text=True, check=True, timeout=HANG_S).stdout


def _headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings in GitHub's form."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
