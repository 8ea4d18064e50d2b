"""The variables of templates, which `variables` validates. Pure: no I/O, no settings, no slow imports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TemplateValue = str | int | float | bool
VariableType = Literal["string", "integer", "number", "boolean"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateVariable:
    """
    A variable of a template.

    Attributes:
        default: The value if none is given. Without a default, an optional variable is empty.
        enum: The allowed values. None allows any value of the type.
        pattern: An RE2 pattern that the whole text must match, in linear time. None allows any text.
    """

    description: str = ""
    type: VariableType = "string"
    required: bool = False
    default: TemplateValue | None = None
    enum: tuple[TemplateValue, ...] | None = None
    pattern: str | None = None
