"""
The front matter of notes: plain YAML without aliases.

What people write there is often not quite YAML. Then each field that can be read by itself is used, and each other line is reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import yaml

_MAX_BYTES = 64 * 1024
_MAX_NUMBER_CHARS = 40
_MAX_SALVAGED_FIELDS = 200
_YAML_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that PyYAML raises for a value that does not match its tag, and its own errors."""

_FIELD = re.compile(r"([\w][\w .-]{0,99}?)\s*:(?:\s+(.*))?$")
"""A line `key: value` or `key:` that begins a field of the top level."""

_NO_TEXT_STARTS = tuple("{[&!|>")
"""The first characters of YAML values that are no text when the YAML is broken, such as a template's `{{title}}`."""

_FIRST_LINE = 2
"""The line of the file that the front matter begins at, after `---`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontMatter:
    """
    The fields of a front matter.

    Attributes:
        lines: The line in the file of each field of the top level.
        problems: The lines that could not be read as written, each with what was done.
    """

    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    problems: Sequence[tuple[int, str]] = ()


class _YamlEvents(Protocol):
    """A method of PyYAML's parser that its type stubs lack."""

    def check_event(self, kind: type[yaml.Event], /) -> bool: ...


class _FrontMatterLoader(yaml.SafeLoader):
    """
    A loader of front matter with time and memory linear in its length.

    It rejects aliases, by which a few lines expand to billions of fields.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if cast("_YamlEvents", self).check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not allowed in front matter")
        return super().compose_node(parent, index)

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if len(node.value) > _MAX_NUMBER_CHARS and node.tag.endswith(":int"):
            node.tag = "tag:yaml.org,2002:str"  # such a number cannot be compared or printed
        return node


def load_front_matter(text: str) -> Mapping[str, object] | None:
    """
    Return the fields of a front matter that must be valid YAML. None if it is YAML without fields.

    Raises:
        ValueError: It is too long or not valid YAML.
    """
    if len(text) > _MAX_BYTES:
        msg = f"has more than {_MAX_BYTES // 1024} KiB"
        raise ValueError(msg)
    try:
        value = _load(text)
    except _YAML_ERRORS as error:
        msg = f"is not valid YAML: {_describe(error)}"
        raise ValueError(msg) from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        return None
    return {name: value for name, value in cast("dict[object, object]", value).items() if isinstance(name, str)}


def read_front_matter(text: str) -> FrontMatter | None:
    """Return the fields of a front matter, of broken YAML those that can be read by themselves. None if it is YAML without fields."""
    if len(text) > _MAX_BYTES:
        return FrontMatter(problems=((_FIRST_LINE, f"the front matter has more than {_MAX_BYTES // 1024} KiB; it was left out"),))
    blocks = list(_iter_blocks(text))
    lines = {name: line for name, line, _ in reversed(blocks)}
    try:
        fields = load_front_matter(text)
    except ValueError:
        return _salvage(blocks, lines)
    return None if fields is None else FrontMatter(fields=fields, lines=lines)


def _iter_blocks(text: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each field of the top level with its line number and its lines. Lines before the first field have no name."""
    name, start, block = "", _FIRST_LINE, list[str]()
    for number, line in enumerate(text.split("\n"), start=_FIRST_LINE):
        match = _FIELD.match(line)
        if match is None:
            block.append(line)
            continue
        if block and (name or any(other.strip() for other in block)):
            yield name, start, block
        name, start, block = match[1], number, [line]
    if block and (name or any(other.strip() for other in block)):
        yield name, start, block


def _salvage(blocks: Sequence[tuple[str, int, list[str]]], lines: Mapping[str, int]) -> FrontMatter:
    fields, problems = dict[str, object](), list[tuple[int, str]]()
    for name, start, block in blocks[:_MAX_SALVAGED_FIELDS]:
        if not name:
            problems.append((start, "the line is not valid front matter; it was left out"))
            continue
        value, problem = _read_block(block)
        if problem is None or value is not None:
            fields[name] = value
        if problem is not None:
            problems.append((start, f"{name}: {problem}"))
    if len(blocks) > _MAX_SALVAGED_FIELDS:
        problems.append(
            (blocks[_MAX_SALVAGED_FIELDS][1], f"the front matter is not valid YAML; only {_MAX_SALVAGED_FIELDS} fields were read")
        )
    return FrontMatter(fields=fields, lines=lines, problems=problems)


def _read_block(block: Sequence[str]) -> tuple[object, str | None]:
    """Return the value of one field, and what is wrong with it: as YAML with its further lines, else of its first line, else as text."""
    try:
        return _value("\n".join(block)), None
    except _YAML_ERRORS:
        pass
    try:
        return _value("\n".join(block).expandtabs(2)), "it is not valid YAML; its tabs were read as spaces"
    except _YAML_ERRORS:
        pass
    further_lines = " and its further lines were left out" if any(line.strip() for line in block[1:]) else ""
    try:
        value = _value(block[0])
    except _YAML_ERRORS as error:
        match = _FIELD.match(block[0])
        text = (match[2] or "").strip() if match else ""
        if not text or text.startswith(_NO_TEXT_STARTS):
            return None, f"it is not valid YAML ({_describe(error)}); it was left out"
        return text.strip("\"'"), f"it is not valid YAML; it was read as text{further_lines}"
    if value is None:
        return None, "it is not valid YAML; it was left out"
    return value, "it is not valid YAML; its first line was read" + further_lines


def _value(text: str) -> object:
    value = _load(text)
    if not isinstance(value, dict):
        msg = "no field"
        raise ValueError(msg)  # noqa: TRY004 - one of the errors that the callers expect
    return next(iter(cast("dict[object, object]", value).values()))


def _load(text: str) -> object:
    value: object = yaml.load(text, _FrontMatterLoader)  # noqa: S506 - a safe loader, and stricter
    return value


def _describe(error: BaseException) -> str:
    problem = getattr(error, "problem", None)
    return " ".join(str(problem or error).split())[:200]
