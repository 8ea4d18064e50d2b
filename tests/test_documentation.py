"""The documentation matches the code: tables are compared with their source, and the product runs or parses each block."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from distribution.reference_pages import write_pages
from rookery.agents.models.templates import Template
from rookery.agents.schemas.templates import parse_template
from rookery.agents.templates.render import list_unused_variables
from rookery.agents.templates.template_files import parse_template_file
from rookery.domains import load_events
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret
from rookery.tools.discovery.client_guides import KEY_VARIABLE
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
    commands,
    differences,
    open_terminal,
    prose,
    table,
    text_of,
)

REFERENCE = ROOT / "docs" / "reference"
SOURCE = ROOT / "src" / "rookery"

READER_VARIABLES = {"URL", "KEY", "NEW_KEY", "ID", "BACKUP", "SESSION", "RECALL", "MEMORY", "CAMPAIGN"}
"""Variables that a reader sets by hand and the terminal of the tests has."""


def test_the_tables_of_the_reference_are_those_of_the_declarations() -> None:
    """`make reference` would change no page."""
    changed = [path.name for path, text in write_pages().items() if text != text_of(path)]

    assert changed == [], "run `make reference`"


def test_every_event_is_raised() -> None:
    """Some code outside `events` creates each event."""
    classes = [event.__name__ for event in load_events() if not event.__subclasses__()]
    texts = [text_of(path) for path in _list_modules() if path.name != "events.py"]

    assert [name for name in classes if not any(f"{name}(" in text for text in texts)] == []


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
