"""
Templates as files, YAML or JSON (D-63). Pure: what is read comes as text.

Of YAML only what a person writes: no anchors (a file of a kilobyte can stand for gigabytes), no tags, no key twice (the last
would win in silence), and a date, a time or a `no` stays the text that it was written as. Of both only what could be sent over
HTTP: a file goes past the door at which bodies are refused.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import cast

import orjson
import yaml

from rookery.agents.models.templates import JsonObject
from rookery.kernel.errors import ValidationFailed

MAX_FILE_BYTES = 256 * 1024
"""Bytes of a template, as a file and as a body."""

_ERROR_FIELD = "file"
_MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1


def parse_template_file(text: str) -> JsonObject:
    """
    Return the document that *text* is; whether it is a template is not looked at.

    Raises:
        ValidationFailed: It is too long, no YAML, more than a person writes, or has no fields.
    """
    try:
        if len(text.encode()) > MAX_FILE_BYTES:
            raise ValidationFailed({_ERROR_FIELD: [f"is longer than {MAX_FILE_BYTES // 1024} KiB"]})
        document = _parse(text)
    except yaml.YAMLError as error:
        raise ValidationFailed({_ERROR_FIELD: [_describe_yaml_error(error)]}) from None
    except UnicodeEncodeError:
        raise ValidationFailed({_ERROR_FIELD: ["has half a character (a lone surrogate)"]}) from None
    wrong = _find_unsendable(document)
    if wrong is not None:
        raise ValidationFailed({_ERROR_FIELD: [wrong]})
    if not isinstance(document, dict):
        raise ValidationFailed({_ERROR_FIELD: ["is no template: it must have fields, such as name: and phases:"]})
    return cast("JsonObject", document)


def render_template_file(document: JsonObject) -> str:
    """Return *document* as YAML that reads well: in its own order, texts of several lines as such."""
    return yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _parse(text: str) -> object:
    if text.lstrip().startswith("{"):
        with contextlib.suppress(orjson.JSONDecodeError):  # it may be YAML that begins so
            return _require_unique_names(orjson.loads(text), text)
    _require_plain_yaml(text)
    return cast("object", yaml.load(text, _Loader))  # noqa: S506 - a SafeLoader that knows even less


def _require_unique_names(document: object, text: str) -> object:
    """Return *document*, the JSON that *text* is, if it has no name twice; what is too deep to look is refused by whoever asked."""
    if _find_unsendable(document) is None:
        json.loads(text, object_pairs_hook=_reject_duplicates)
    return document


def _reject_duplicates(pairs: Sequence[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise _UnsupportedYaml(None, None, f"{name[:100]!r} is there twice")
        seen.add(name)


def _find_unsendable(document: object) -> str | None:
    """Return why *document* could not be sent as JSON; None: it could. It takes no stack."""
    level: list[object] = [document]
    for _ in range(_MAX_DEPTH + 1):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                fields = cast("dict[str, object]", each)
                below += [*fields.keys(), *fields.values()]
            elif isinstance(each, list):
                below += cast("list[object]", each)
            elif isinstance(each, str) and "\0" in each:
                return "must not contain the character NUL (U+0000)"
            elif isinstance(each, float) and not math.isfinite(each):
                return "has a number that is too large"
            elif isinstance(each, int) and abs(each) > _MAX_INTEGER:
                return f"has a number that is too large: {each}"
        if not below:
            return None
        level = below
    return f"it is nested over {_MAX_DEPTH}"


class _UnsupportedYaml(yaml.MarkedYAMLError):
    """It is YAML, but not what a person writes."""


class _Loader(yaml.CSafeLoader):
    """A scalar is null, true, false, a decimal number as JSON writes it, or else a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the library has it
        first: [(f"tag:yaml.org,2002:{kind}", re.compile(f"^(?:{pattern})$")) for kind, pattern in kinds]
        for firsts, kinds in (
            (["~", "n", ""], [("null", "~|null|")]),
            (["t", "f"], [("bool", "true|false")]),
            (
                list("-0123456789"),
                [("int", "-?(?:0|[1-9][0-9]{0,18})"), ("float", r"-?[0-9]{1,18}\.[0-9]{1,18}(?:[eE][+-]?[0-9]{1,3})?")],
            ),
        )
        for first in firsts
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002 - the library's
        """Refuse a name that is there twice, and one that is no text."""
        seen: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _UnsupportedYaml(None, None, "a field's name must be a text", key.start_mark)
            name = cast("str", key.value)
            if name in seen:
                raise _UnsupportedYaml(None, None, f"{name[:100]!r} is there twice", key.start_mark)
            seen.add(name)
        return cast("dict[Hashable, object]", super().construct_mapping(node, deep=deep))


class _Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as people do."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's
        """Write everything out: `parse_template_file` takes no anchors."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    represent = cast("Callable[..., yaml.ScalarNode]", dumper.represent_scalar)  # pyright: ignore[reportUnknownMemberType]
    return represent("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _require_plain_yaml(text: str) -> None:
    """Do nothing if *text* has no anchor and no tag and is not deep: looked at by events, which take no stack."""
    depth = 0
    parse = cast("Callable[[str, type[yaml.CSafeLoader]], Iterable[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]
    for event in parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) or (isinstance(event, yaml.NodeEvent) and event.anchor is not None):
            raise _UnsupportedYaml(None, None, "anchors are not read here: write it out", event.start_mark)
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag not in {None, "!"}:
            raise _UnsupportedYaml(None, None, "tags are not read here", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _UnsupportedYaml(None, None, f"it is nested over {_MAX_DEPTH}", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    """Return what is wrong, by line."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"is no YAML: {str(error).splitlines()[0]}"
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f"line {mark.line + 1}: "
    return f"{where}{error.problem or error.context or 'is no YAML'}"
