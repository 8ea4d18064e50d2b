"""`rookery content`, without a server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import CommandContext, add_commands
from rookery.kernel.config import Settings
from rookery.kernel.errors import NotFound, ValidationFailed

_TEMPLATE: dict[str, object] = {
    "slug": "greet",
    "name": "Greet",
    "messages": [{"role": "user", "content": "Hi {{ name }}"}],
    "variables": {"name": {}},
}


class CommandLine:
    """A command line on one data folder with a workspace; not on a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = typer.Typer()
        add_commands(self.app, "content", "version")

    def run(self, *arguments: str, text: str | None = None) -> Result:
        """Run a command of `rookery content`."""
        return CliRunner().invoke(self.app, ["content", *arguments], obj=CommandContext(self.settings), input=text)

    def run_json(self, *arguments: str, text: str | None = None) -> object:
        """Run a command with --json, which must succeed; return the value."""
        result = self.run(*arguments, "--json", text=text)
        assert result.exit_code == 0, f"{result.stderr} {result.exception!r}"
        return cast("object", json.loads(result.stdout))


@pytest.fixture
def cli(data_dir: Path) -> CommandLine:
    """A command line after `rookery init`."""
    cli = CommandLine(Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0))

    async def create_keys() -> None:
        async with CommandContext(cli.settings).open() as rookery:
            await rookery.create_first_keys()

    asyncio.run(create_keys())
    return cli


def test_a_prompt_template_is_stored_listed_shown_and_deleted(cli: CommandLine) -> None:
    """The commands run the operations of the API, so they print what the API answers. A deletion prints nothing."""
    stored = cast("dict[str, object]", cli.run_json("put-template", "-", text=json.dumps(_TEMPLATE)))

    assert (stored["slug"], stored["version"]) == ("greet", 1)
    assert cli.run_json("templates") == [stored]
    assert cli.run_json("template", "greet", "--version", "1") == stored
    assert cli.run("templates").stdout.split("\t")[:4] == ["greet", "1", "Greet", "name"], "people see the names of the variables"
    assert isinstance(cli.run("template", "greet", "--version", "2").exception, NotFound)
    assert cli.run("delete-template", "greet").exit_code == 2, "without a terminal it needs --yes"
    deleted = cli.run("delete-template", "greet", "--yes")
    assert (deleted.exit_code, deleted.stdout) == (0, "")
    assert cli.run_json("templates") == []


def test_a_workspace_without_generations_has_empty_lists_and_one_budget(cli: CommandLine) -> None:
    """A day can be a number of days, as for every command. A wrong workspace is an error."""
    assert cli.run_json("list", "--status", "failed", "--since", "7d") == []
    assert cli.run_json("usage", "--since", "7d", "--limit", "3") == []
    assert [budget["scope"] for budget in cast("list[dict[str, object]]", cli.run_json("budgets"))] == ["workspace"]
    assert isinstance(cli.run("show", "missing").exception, NotFound)
    assert isinstance(cli.run("list", "--workspace", "missing").exception, NotFound)
    assert isinstance(cli.run("put-template", "-", text='{"slug": "a"}').exception, ValidationFailed)
