"""
Parser and writer of template files in YAML or JSON. Pure: it works on text, not on files.

YAML is restricted: no anchors (a file of a kilobyte could expand to gigabytes), no tags, no duplicate keys (the last would win
silently). Dates, times and `no` stay text. Files must also meet the limits of an HTTP body, since they do not pass through HTTP.
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
"""Maximum size of a template in bytes, as a file and as a request body."""

_ERROR_FIELD = "file"
_MAX_DEPTH = 32
_MAX_INTEGER = 2**63 - 1


def parse_template_file(text: str) -> JsonObject:
    """
    Return the parsed document. Its structure as a template is not validated.

    Raises:
        ValidationFailed: The text is too long, is not valid YAML or JSON, uses a forbidden feature, or has no fields.
    """
    try:
        if len(text.encode()) > MAX_FILE_BYTES:
            raise ValidationFailed({_ERROR_FIELD: [f"must be at most {MAX_FILE_BYTES // 1024} KiB long"]})
        document = _parse(text)
    except yaml.YAMLError as error:
        raise ValidationFailed({_ERROR_FIELD: [_describe_yaml_error(error)]}) from None
    except UnicodeEncodeError:
        raise ValidationFailed({_ERROR_FIELD: ["must not contain a lone surrogate, which is half of a character"]}) from None
    fault = _find_unsendable(document)
    if fault is not None:
        raise ValidationFailed({_ERROR_FIELD: [fault]})
    if not isinstance(document, dict):
        raise ValidationFailed({_ERROR_FIELD: ["is not a template: it must have fields such as name: and phases:"]})
    return cast("JsonObject", document)


def render_template_file(document: JsonObject) -> str:
    """Return *document* as readable YAML, with its field order and with block style for texts of several lines."""
    return yaml.dump(dict(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def _parse(text: str) -> object:
    if text.lstrip().startswith("{"):
        with contextlib.suppress(orjson.JSONDecodeError):  # It may be YAML that starts with a brace.
            return _require_unique_names(orjson.loads(text), text)
    _require_plain_yaml(text)
    return cast("object", yaml.load(text, _Loader))  # noqa: S506 - a restricted SafeLoader


def _require_unique_names(document: object, text: str) -> object:
    """Return *document*, parsed from the JSON *text*, if no object has a duplicate name. The caller rejects too deep documents."""
    if _find_unsendable(document) is None:
        json.loads(text, object_pairs_hook=_reject_duplicates)
    return document


def _reject_duplicates(pairs: Sequence[tuple[str, object]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise _UnsupportedYaml(None, None, f"{name[:100]!r} occurs twice")
        names.add(name)


def _find_unsendable(document: object) -> str | None:
    """Return the reason why *document* would be rejected as a JSON body, or None. The search is iterative, not recursive."""
    level: list[object] = [document]
    for _ in range(_MAX_DEPTH + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                fields = cast("dict[str, object]", item)
                below += [*fields.keys(), *fields.values()]
            elif isinstance(item, list):
                below += cast("list[object]", item)
            elif isinstance(item, str) and "\0" in item:
                return "must not contain the character NUL (U+0000)"
            elif isinstance(item, float) and not math.isfinite(item):
                return "must not contain a number that is not finite"
            elif isinstance(item, int) and abs(item) > _MAX_INTEGER:
                return f"must not contain an integer of more than 63 bits; it has {item}"
        if not below:
            return None
        level = below
    return f"must be nested at most {_MAX_DEPTH} levels deep"


class _UnsupportedYaml(yaml.MarkedYAMLError):
    """Valid YAML with a feature that template files do not support."""


class _Loader(yaml.CSafeLoader):
    """A YAML loader whose scalars are null, true, false, decimal numbers as in JSON, and otherwise texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - defined by the library
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
        """Reject duplicate names and names that are not texts."""
        names: set[str] = set()
        for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                raise _UnsupportedYaml(None, None, "the name of a field must be a text", key.start_mark)
            name = cast("str", key.value)
            if name in names:
                raise _UnsupportedYaml(None, None, f"{name[:100]!r} occurs twice", key.start_mark)
            names.add(name)
        return cast("dict[Hashable, object]", super().construct_mapping(node, deep=deep))


class _Dumper(yaml.CSafeDumper):
    """A YAML dumper with block style for texts of several lines."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's
        """Write no anchors, which `parse_template_file` rejects."""
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    represent = cast("Callable[..., yaml.ScalarNode]", dumper.represent_scalar)  # pyright: ignore[reportUnknownMemberType]
    return represent("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _require_plain_yaml(text: str) -> None:
    """Check that *text* has no anchors, no tags and no deep nesting. It reads parser events, which need no recursion."""
    depth = 0
    parse = cast("Callable[[str, type[yaml.CSafeLoader]], Iterable[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]
    for event in parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent) or (isinstance(event, yaml.NodeEvent) and event.anchor is not None):
            raise _UnsupportedYaml(None, None, "anchors and aliases are not supported; write the value out", event.start_mark)
        if isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)) and event.tag not in {None, "!"}:
            raise _UnsupportedYaml(None, None, "tags are not supported", event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise _UnsupportedYaml(None, None, f"must be nested at most {_MAX_DEPTH} levels deep", event.start_mark)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _describe_yaml_error(error: yaml.YAMLError) -> str:
    """Return the message of a YAML error with its line."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"is not valid YAML: {str(error).splitlines()[0]}"
    mark = error.problem_mark or error.context_mark
    position = "" if mark is None else f"line {mark.line + 1}: "
    return f"{position}{error.problem or error.context or 'is not valid YAML'}"
