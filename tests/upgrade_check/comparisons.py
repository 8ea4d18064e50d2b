"""Comparisons of the answers of two versions, and the table of their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

_LENGTH = 160

ANNOUNCED = {("key 'limited': statuses of 11 requests", 6): ("200", "403 permission_denied")}
"""
Changes that are meant: an element of an answer, with its value in older versions and now.

- Reading in an org or project that the key excludes is 403. Before, the answer was empty.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """
    One comparison after one way of upgrading.

    Attributes:
        difference: The first difference, or an empty text.
    """

    way: str
    name: str
    difference: str


def compare_readings(way: str, old: Mapping[str, object], new: Mapping[str, object]) -> list[Comparison]:
    """Compare what an older version answered with the answers now."""
    return [Comparison(way, name, describe_difference(_announce(name, value), new.get(name))) for name, value in old.items()]


def _announce(name: str, answer: object) -> object:
    """Return an answer of an older version as it is expected now."""
    if not isinstance(answer, list):
        return answer
    elements = list(cast("list[object]", answer))
    for (answer_name, number), (before, now) in ANNOUNCED.items():
        if answer_name == name and elements[number : number + 1] == [before]:
            elements[number] = now
    return elements


def compare_outcomes(way: str, outcomes: Mapping[str, tuple[object, object]]) -> list[Comparison]:
    """Compare what was expected with what came."""
    return [Comparison(way, name, describe_difference(*pair)) for name, pair in outcomes.items()]


def describe_difference(old: object, new: object, place: str = "") -> str:
    """
    Return the first difference of two answers, or an empty text.

    A newer version may answer more fields, and none less: an object that has all fields of the old one with their values is the same.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        fields = cast("dict[str, object]", new)
        for name, value in cast("dict[str, object]", old).items():
            if name not in fields:
                return f"{place or 'answer'}: the field {name!r} is missing"
            if difference := describe_difference(value, fields[name], f"{place}.{name}" if place else name):
                return difference
        return ""
    if isinstance(old, list) and isinstance(new, list):
        before, after = cast("list[object]", old), cast("list[object]", new)
        if len(before) != len(after):
            return f"{place or 'answer'}: {len(before)} elements before, {len(after)} now"
        for number, (value, other) in enumerate(zip(before, after, strict=True)):
            if difference := describe_difference(value, other, f"{place}[{number}]"):
                return difference
        return ""
    return "" if old == new else f"{place or 'answer'}: {_shorten(cast('object', old))} before, {_shorten(new)} now"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LENGTH else f"{text[:_LENGTH]}…"


def render_table(comparisons: Sequence[Comparison], ways: Sequence[str]) -> str:
    """Return a table with a row for each comparison and a column for each way of upgrading, and the differences below it."""
    names = list(dict.fromkeys(comparison.name for comparison in comparisons))
    results = {(comparison.way, comparison.name): comparison.difference for comparison in comparisons}
    width = max(map(len, ["comparison", *names]))
    columns = [max(len(way), len("differs")) for way in ways]
    lines = ["  ".join(["comparison".ljust(width), *(way.ljust(column) for way, column in zip(ways, columns, strict=True))]).rstrip()]
    lines.append("  ".join(["-" * width, *("-" * column for column in columns)]))
    for name in names:
        cells = [_render_cell(results.get((way, name))).ljust(column) for way, column in zip(ways, columns, strict=True)]
        lines.append("  ".join([name.ljust(width), *cells]).rstrip())
    differences = [comparison for comparison in comparisons if comparison.difference]
    if differences:
        lines += ["", "Differences:", *(f"  {one.name}, {one.way}: {one.difference}" for one in differences)]
    counts = ", ".join(f"{way}: {sum(one.way == way for one in comparisons)}" for way in ways)
    lines += ["", f"{len(comparisons)} comparisons ({counts}), {len(differences)} differ."]
    return "\n".join(lines)


def _render_cell(difference: str | None) -> str:
    if difference is None:
        return "-"
    return "differs" if difference else "same"


def render_json(old: str, comparisons: Sequence[Comparison], figures: Mapping[str, object]) -> str:
    """Return all comparisons as one JSON document."""
    rows = [{"way": one.way, "name": one.name, "same": not one.difference, "difference": one.difference or None} for one in comparisons]
    return json.dumps(
        {"old": old, "figures": figures, "differences": sum(bool(one.difference) for one in comparisons), "comparisons": rows}
    )
