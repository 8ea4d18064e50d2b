r"""
How values come into a template's texts (D-63). Pure: no I/O, no settings.

`{{ name }}` is all there is: no expressions, no conditions. A value is inserted once and never read again, so that one that
has braces itself stays what it is. `\{{` stands for two braces that mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from rookery.agents.models.templates import TemplateValue
from rookery.kernel.errors import ValidationFailed

NAME_PATTERN = r"[a-z][a-z0-9_]{0,63}"

MAX_RENDERED_LENGTH = 1024 * 1024
"""Characters of all texts of a template that is filled in: a body's own bound. Placeholders of ten kilobytes could fill gigabytes."""

_PLACEHOLDER = re.compile(r"(\\\{\{)|\{\{[ \t]{0,8}(" + NAME_PATTERN + r")[ \t]{0,8}\}\}|(\{\{)")
_MAX_QUOTED_LENGTH = 40
_TYPED_FIELDS = frozenset({"priority"})
"""Fields that are no texts: a placeholder that is all of one leaves the value the number that it is."""

_ADVICE = r"is no {{ name }}: a small letter, then small letters, digits and _; \{{ stands for two braces that mean nothing"


def find_placeholder_names(value: object) -> set[str]:
    """Return the names of all placeholders in the texts of *value*, a JSON value."""
    found: set[str] = set()
    for _, text in _iter_texts(value, ""):
        found.update(match[2] for match in _PLACEHOLDER.finditer(text) if match[2] is not None)
    return found


def find_placeholder_faults(value: object, known: Mapping[str, object], *, field: str = "") -> dict[str, list[str]]:
    """Return what is wrong with the placeholders in the texts of *value*, by the field that has them: not of that form, or unknown."""
    faults: dict[str, list[str]] = {}
    for place, text in _iter_texts(value, field):
        for match in _PLACEHOLDER.finditer(text):
            if match[3] is not None:
                said = text[match.start() : match.start() + _MAX_QUOTED_LENGTH].split("\n", 1)[0]
                faults.setdefault(place, []).append(f"{said!r} {_ADVICE}")
            elif match[2] is not None and match[2] not in known:
                faults.setdefault(place, []).append(f"{{{{ {match[2]} }}}} is none of the template's variables")
    return faults


def fill_placeholders(value: object, values: Mapping[str, TemplateValue | None]) -> object:
    """
    Return *value*, a JSON value, with its placeholders filled in from *values*, which has them all; None is the empty text.

    Raises:
        ValidationFailed: It would be longer than `MAX_RENDERED_LENGTH`.
    """
    shown = {name: to_text(each) for name, each in values.items()}
    left = MAX_RENDERED_LENGTH

    def insert(text: str) -> str:
        nonlocal left
        left -= len(text) + sum(len(shown[match[2]]) for match in _PLACEHOLDER.finditer(text) if match[2] is not None)
        if left < 0:
            raise ValidationFailed({"variables": [f"filled in, the template is longer than {MAX_RENDERED_LENGTH:,} characters"]})
        return _PLACEHOLDER.sub(lambda match: "{{" if match[2] is None else shown[match[2]], text)

    return _fill(value, insert, values)


def to_text(value: TemplateValue | None) -> str:
    """Return how a value stands in a text."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _fill(value: object, insert: Callable[[str], str], values: Mapping[str, TemplateValue | None], *, is_typed: bool = False) -> object:
    if isinstance(value, str):
        whole = _PLACEHOLDER.fullmatch(value.strip()) if is_typed else None
        return insert(value) if whole is None or whole[2] is None else values[whole[2]]
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {name: _fill(each, insert, values, is_typed=name in _TYPED_FIELDS) for name, each in fields.items()}
    if isinstance(value, Sequence):
        return [_fill(each, insert, values) for each in cast("Sequence[object]", value)]
    return value


def _iter_texts(value: object, at: str) -> list[tuple[str, str]]:
    """Return the texts of *value*, each with where it is, as in an error's field."""
    if isinstance(value, str):
        return [(at or "body", value)]
    dot = f"{at}." if at else ""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value).items()
        return [found for name, each in fields for found in _iter_texts(each, f"{dot}{name}")]
    if isinstance(value, Sequence):
        items = enumerate(cast("Sequence[object]", value))
        return [found for index, each in items for found in _iter_texts(each, f"{dot}{index}")]
    return []
