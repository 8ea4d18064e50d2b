"""
Options and arguments that are converted without pydantic if possible, because its import by Typer takes 60 ms.

Typer 0.29 has no public hook for this. It creates `TyperOption` and `TyperArgument` itself, and `typer.Option` and `typer.Argument` accept
no class. `parser=` and `callback=` run inside or after the conversion by pydantic. A command class (`cls=`) receives finished parameters,
which cannot be built again from their attributes. So this module overrides the public method `process_value` in subclasses, and changes the
class of the finished parameters. `tests/test_cli_parameters.py` checks each of these statements for the locked version of Typer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class _Unconverted:
    """A marker for values that Typer must convert."""


_UNCONVERTED = _Unconverted()


class _Option(TyperOption):
    """An option that is converted without pydantic if possible."""

    def process_value(self, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - Typer exports no name for these types
        """Convert a value and check it."""
        converted = _convert(self, ctx, value)
        if converted is _UNCONVERTED:
            return super().process_value(ctx, value)
        return converted if self.callback is None else self.callback(ctx, self, converted)


class _Argument(TyperArgument):
    """An argument that is converted without pydantic if possible."""

    def process_value(self, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - as above
        """Convert a value and check it."""
        converted = _convert(self, ctx, value)
        if converted is _UNCONVERTED:
            return super().process_value(ctx, value)
        return converted if self.callback is None else self.callback(ctx, self, converted)


def convert_on_demand(command: TyperCommand | TyperGroup) -> None:
    """Make the parameters of a command, and of the commands in its group, import pydantic only for values that need it."""
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        # The subclasses add no attributes, so the class of an instance may be changed.
        if isinstance(parameter, TyperOption):
            parameter.__class__ = _Option
        elif isinstance(parameter, TyperArgument):
            parameter.__class__ = _Argument
    if isinstance(command, TyperGroup):
        for subcommand in command.commands.values():
            if isinstance(subcommand, TyperCommand | TyperGroup):
                convert_on_demand(subcommand)


def _convert(parameter: TyperOption | TyperArgument, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - as above
    """Return the value of a parameter as its command receives it, or `_UNCONVERTED` if pydantic must convert it."""
    descriptor = parameter.type_descriptor
    is_many = bool(getattr(parameter, "multiple", False)) or parameter.nargs == -1
    if value is None:
        return _UNCONVERTED if parameter.required else () if is_many else None
    if ctx.get_parameter_source(parameter.name).name == "DEFAULT":
        return value
    if descriptor.annotation is str and isinstance(value, str):
        return value
    if descriptor.annotation == list[str] and not isinstance(value, str) and value:
        return list(cast("list[str]", value))
    if descriptor.annotation is Path and isinstance(value, str) and _has_no_condition(descriptor.parameter_info):
        return Path(value) if not os.path.exists(value) or os.access(value, os.R_OK) else _UNCONVERTED  # noqa: PTH110 - never raises
    return _UNCONVERTED


def _has_no_condition(info: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether a parameter accepts any path: a file, a folder, or a missing one. Only an existing path must be readable."""
    return info.file_okay and info.dir_okay and not (info.exists or info.writable or info.resolve_path or info.allow_dash)
