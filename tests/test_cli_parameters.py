"""The conversion of options without pydantic, and what Typer must offer or lack for it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import pytest
import typer
import typer.main
from typer.core import TyperArgument, TyperCommand, TyperOption

from rookery.cli.parameters import convert_on_demand
from tests.deadlines import HANG_S

_TYPER_SERIES = "0.29"

_HOOK_IMPORTS_PYDANTIC = """
import sys
import typer

app = typer.Typer()

@app.command()
def run(name: str = typer.Option("", {hook})) -> None:
    print("pydantic" in sys.modules)

app(["--name", "x"])
"""

app = typer.Typer(add_completion=False)


@app.command()
def run(
    word: Annotated[str, typer.Argument()],
    paths: Annotated[list[Path] | None, typer.Argument()] = None,
    *,
    name: Annotated[str, typer.Option()] = "default",
    tag: Annotated[list[str] | None, typer.Option()] = None,
    file: Annotated[Path | None, typer.Option()] = None,
    count: Annotated[int, typer.Option(min=1)] = 1,
    force: Annotated[bool, typer.Option("--force")] = False,
) -> tuple[object, ...]:
    """Return the values that the command receives."""
    return word, paths, name, tag, file, count, force


def _load_command() -> TyperCommand:
    command = typer.main.get_command(app)
    assert isinstance(command, TyperCommand)
    return command


def test_the_statements_about_typer_are_those_of_the_locked_version() -> None:
    """With another version, look for a public hook first; see `rookery.cli.parameters`."""
    assert version("typer").startswith(f"{_TYPER_SERIES}.")


@pytest.mark.parametrize("declare", [typer.Option, typer.Argument])
def test_typer_accepts_no_class_of_a_parameter(declare: object) -> None:
    """If Typer gets such a setting, use it and do not change the class of finished parameters."""
    assert callable(declare)
    assert {"cls", "param_cls", "click_type"} & inspect.signature(declare).parameters.keys() == set()


@pytest.mark.parametrize("hook", ["parser=str", "callback=lambda value: value"])
def test_the_public_hooks_of_a_parameter_import_pydantic(hook: str) -> None:
    """If a hook converts without pydantic, use it and do not change the class of finished parameters."""
    command = [sys.executable, "-c", _HOOK_IMPORTS_PYDANTIC.format(hook=hook)]

    assert subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S).stdout.strip() == "True"


def test_typer_creates_the_classes_that_are_changed() -> None:
    """`convert_on_demand` leaves other classes alone, and then the command imports pydantic."""
    assert {type(parameter) for parameter in _load_command().params} == {TyperArgument, TyperOption}

    command = _load_command()
    convert_on_demand(command)
    assert {type(parameter).__module__ for parameter in command.params} == {convert_on_demand.__module__}


@pytest.mark.parametrize(
    "arguments",
    [
        ["x"],
        ["x", "a", "b"],
        ["x", "--name", "n", "--tag", "a", "--tag", "b"],
        ["x", "--file", "missing.txt", "--count", "3", "--force"],
        ["x", "--name", "", "--file", "."],
        ["x", "--count", "0"],
        ["x", "--count", "many"],
        [],
        ["x", "--unknown"],
    ],
)
def test_commands_receive_the_values_that_typer_converts(arguments: list[str]) -> None:
    """The same values and the same errors, with and without the conversion of this package."""
    converted = _load_command()
    convert_on_demand(converted)

    received = _run(converted, arguments)
    assert isinstance(received, tuple)
    assert received == _run(_load_command(), arguments)


def _run(command: TyperCommand, arguments: list[str]) -> object:
    """Return the values that the command receives, or the error."""
    try:
        return command.main(arguments, prog_name="run", standalone_mode=False)
    except typer.TyperException as error:
        return type(error), error.format_message()
