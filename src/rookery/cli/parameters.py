"""Options and arguments whose values are converted only if they need to be: Typer converts by pydantic, which takes 60 ms to import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption


class _Unconverted:
    """Stands for a value that Typer must convert."""


_UNCONVERTED = _Unconverted()


class _Option(TyperOption):
    """An option."""

    def process_value(self, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - Typer exports no name for these types
        """Convert a value and check it."""
        converted = _converted(self, ctx, value)
        if converted is _UNCONVERTED:
            return super().process_value(ctx, value)
        return converted if self.callback is None else self.callback(ctx, self, converted)


class _Argument(TyperArgument):
    """An argument."""

    def process_value(self, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - as above
        """Convert a value and check it."""
        converted = _converted(self, ctx, value)
        if converted is _UNCONVERTED:
            return super().process_value(ctx, value)
        return converted if self.callback is None else self.callback(ctx, self, converted)


def convert_on_demand(command: TyperCommand | TyperGroup) -> None:
    """Have the parameters of a command, and of those in its group, import pydantic only for values that need it."""
    for parameter in (*command.params, command.get_help_option(typer.Context(command))):
        # Typer makes them, and has no way to be told of which class.
        if isinstance(parameter, TyperOption):
            parameter.__class__ = _Option
        elif isinstance(parameter, TyperArgument):
            parameter.__class__ = _Argument
    if isinstance(command, TyperGroup):
        for each in command.commands.values():
            if isinstance(each, TyperCommand | TyperGroup):
                convert_on_demand(each)


def _converted(parameter: TyperOption | TyperArgument, ctx: Any, value: Any) -> Any:  # noqa: ANN401 - as above
    """Return the value of a parameter as its command receives it, if that is plain; else `_UNCONVERTED`."""
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
    """Return whether a parameter takes any path, be there a file, a folder or nothing; only what is there must be readable."""
    return info.file_okay and info.dir_okay and not (info.exists or info.writable or info.resolve_path or info.allow_dash)
