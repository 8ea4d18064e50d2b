r"""
Variables and placeholders of templates of plans, notifications and prompts. `variables` validates. Pure: no I/O, no slow imports.

`{{ name }}` is the only syntax: there are no expressions and no conditions. Each placeholder is replaced once, and inserted values
are not scanned again, so a value may contain braces. `\{{` stands for two literal braces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from rookery.kernel.errors import ValidationFailed

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


NAME_PATTERN = r"[a-z][a-z0-9_]{0,63}"

MAX_RENDERED_LENGTH = 1024 * 1024
"""Maximum characters of all texts of a rendered template, as for a request body. Long values in many places could take gigabytes."""

_PLACEHOLDER = re.compile(r"(\\\{\{)|\{\{[ \t]{0,8}(" + NAME_PATTERN + r")[ \t]{0,8}\}\}|(\{\{)")
_MAX_QUOTED_LENGTH = 40
_ADVICE = r"is not a valid {{ name }}; a name is a lower-case letter, then lower-case letters, digits and _. For literal braces, write \{{"


def find_placeholder_names(value: object) -> set[str]:
    """Return the names of all placeholders in the texts of *value*, a JSON value."""
    names: set[str] = set()
    for _, text in _iter_texts(value, ""):
        names.update(match[2] for match in _PLACEHOLDER.finditer(text) if match[2] is not None)
    return names


def find_placeholder_faults(value: object, variables: Mapping[str, object], *, field: str = "") -> dict[str, list[str]]:
    """Return the malformed and unknown placeholders in the texts of *value*, as messages by field."""
    faults: dict[str, list[str]] = {}
    for place, text in _iter_texts(value, field):
        for match in _PLACEHOLDER.finditer(text):
            if match[3] is not None:
                quoted = text[match.start() : match.start() + _MAX_QUOTED_LENGTH].split("\n", 1)[0]
                faults.setdefault(place, []).append(f"{quoted!r} {_ADVICE}")
            elif match[2] is not None and match[2] not in variables:
                faults.setdefault(place, []).append(f"{{{{ {match[2]} }}}} is not a variable of the template")
    return faults


def fill_placeholders(value: object, values: Mapping[str, TemplateValue | None], *, typed_fields: Container[str] = ()) -> object:
    """
    Return *value*, a JSON value, with its placeholders replaced. *values* must have all names; None becomes the empty text.

    Args:
        typed_fields: Names of fields with a number. If a placeholder is their whole value, it is replaced by the number itself and
            not by its text.

    Raises:
        ValidationFailed: The texts would be longer than `MAX_RENDERED_LENGTH`.
    """
    texts = {name: to_text(value) for name, value in values.items()}
    left = MAX_RENDERED_LENGTH

    def insert(text: str) -> str:
        nonlocal left
        left -= len(text) + sum(len(texts[match[2]]) for match in _PLACEHOLDER.finditer(text) if match[2] is not None)
        if left < 0:
            raise ValidationFailed({"variables": [f"make the rendered template longer than {MAX_RENDERED_LENGTH:,} characters"]})
        return _PLACEHOLDER.sub(lambda match: "{{" if match[2] is None else texts[match[2]], text)

    return _fill(value, insert, values, typed_fields)


def to_text(value: TemplateValue | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fill(
    value: object,
    insert: Callable[[str], str],
    values: Mapping[str, TemplateValue | None],
    typed_fields: Container[str],
    *,
    is_typed: bool = False,
) -> object:
    if isinstance(value, str):
        match = _PLACEHOLDER.fullmatch(value.strip()) if is_typed else None
        return insert(value) if match is None or match[2] is None else values[match[2]]
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {name: _fill(value, insert, values, typed_fields, is_typed=name in typed_fields) for name, value in fields.items()}
    if isinstance(value, Sequence):
        return [_fill(item, insert, values, typed_fields) for item in cast("Sequence[object]", value)]
    return value


def _iter_texts(value: object, at: str) -> list[tuple[str, str]]:
    """Return the texts of *value* with their field names, as errors use them."""
    if isinstance(value, str):
        return [(at or "body", value)]
    dot = f"{at}." if at else ""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value).items()
        return [entry for name, item in fields for entry in _iter_texts(item, f"{dot}{name}")]
    if isinstance(value, Sequence):
        items = enumerate(cast("Sequence[object]", value))
        return [entry for index, item in items for entry in _iter_texts(item, f"{dot}{index}")]
    return []
