"""`rookery connect`, run in this process in a project folder and with a home folder of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import typer
from typer.testing import CliRunner, Result

from rookery.cli import CommandContext, add_commands
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError


class ConnectCommand:
    """The command on one data folder, not on a terminal."""

    def __init__(self, data_dir: Path, home: Path, **variables: str) -> None:
        self.settings = replace(Settings(), data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0)
        self.app = typer.Typer()
        self.home = home
        self.variables: Mapping[str, str | None] = {
            "HOME": str(home),
            **dict.fromkeys(
                (
                    "XDG_CONFIG_HOME",
                    "CODEX_HOME",
                    "CLAUDE_CONFIG_DIR",
                    "COPILOT_HOME",
                    "GEMINI_CLI_HOME",
                    "QWEN_HOME",
                    "ROOKERY_HOOKS",
                    "ROOKERY_KEY",
                ),
                None,
            ),
            **variables,
        }
        add_commands(self.app, "connect", "version")  # with one command alone, Typer takes its name for an argument

    def run(self, *arguments: str) -> Result:
        """Run the command."""
        return CliRunner().invoke(self.app, ["connect", *arguments], obj=CommandContext(self.settings), env=self.variables)

    def run_json(self, *arguments: str) -> dict[str, object]:
        """Run the command with --json and return what it prints, whatever its exit code."""
        result = self.run(*arguments, "--json")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return cast("dict[str, object]", json.loads(result.stdout))

    def check(self, *arguments: str) -> set[str]:
        """Run --check and return the codes of the problems; the exit code says the same."""
        result = self.run(*arguments, "--check", "--json")
        report = cast("dict[str, object]", json.loads(result.stdout))
        findings = cast("list[dict[str, object]]", report["findings"])
        problems = {str(finding["code"]) for finding in findings if finding["is_problem"]}
        assert (result.exit_code, report["ok"]) == (1 if problems else 0, not problems), report
        return problems


def get_error(result: Result) -> str:
    """Return the message with which a command failed, in one line."""
    if isinstance(result.exception, RookeryError):
        return result.exception.message
    return " ".join(result.stderr.replace("│", "").split())
