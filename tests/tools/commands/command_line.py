"""The commands for tool servers, run on a data folder."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import typer
from typer.testing import CliRunner, Result

from rookery.cli import add_commands
from rookery.kernel.config import Settings
from rookery.wiring import Rookery, build_platform


@dataclass
class Platform:
    """The platform object that each command receives; it builds the platform again for each command, as separate processes do."""

    settings: Settings

    def open(self, *, create: bool = False) -> AbstractAsyncContextManager[Rookery]:
        """Open the platform for one command. A missing store is created even without *create*."""
        del create
        return build_platform(self.settings).open_for_command()


class CommandLine:
    """A command line on one data folder; not on a terminal."""

    def __init__(self, data_dir: Path) -> None:
        self.settings = replace(Settings(), data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0)
        self.app = typer.Typer()
        add_commands(self.app, "servers", "tools")

    @property
    def file(self) -> Path:
        """The file of servers."""
        return self.settings.servers_file

    def run(self, *arguments: str) -> Result:
        """Run a command."""
        return CliRunner().invoke(self.app, list(arguments), obj=Platform(self.settings))

    def run_json(self, *arguments: str) -> object:
        """Run a command, which must succeed and print JSON; return the value."""
        result = self.run(*arguments)
        assert result.exit_code == 0, f"{result.output} {result.exception}"
        return cast("object", json.loads(result.stdout))

    def read_entries(self) -> dict[str, dict[str, object]]:
        """Return the entries of the file."""
        document = cast("dict[str, object]", json.loads(self.file.read_text(encoding="utf-8")))
        return cast("dict[str, dict[str, object]]", document["mcpServers"])
