"""Schemas of tools as parts of an OpenAPI 3.1 document, whose dialect is JSON Schema 2020-12. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import quote, unquote

from rookery.kernel.schema_compilation import DATA_KEYWORDS, NAME_MAPS
from rookery.tools.models import JsonObject

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OLD_DIALECTS = ("/draft-04/", "/draft-06/", "/draft-07/", "/draft/2019-09/")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$recursiveAnchor")
_MAX_LEVELS = 200
"""Levels of a schema that are rewritten."""


class SchemaEmbedder:
    """
    Embeds schemas in one document.

    A schema stays unchanged, with two exceptions. References into the schema itself get the path of the schema in the document: the
    standard would allow an `$id` instead, but common validators and generators ignore it, and resolve `#/$defs/…` from the root of the
    document. A schema that has its own `$id` keeps both, unless an earlier one has the same. Keywords of older drafts with another form in
    2020-12 get that form.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def embed(self, schema: object, *, at: str) -> JsonObject:
        """Return *schema* as it stands in the document at the JSON pointer *at*. Anything else than a schema becomes one of any object."""
        if not isinstance(schema, dict):
            return {"type": "object"}
        root = cast("JsonObject", schema)
        schema_id = root.get("$id")
        if isinstance(schema_id, str) and schema_id not in self._ids:
            self._ids.add(schema_id)
            at = ""
        return cast("JsonObject", _SchemaRewriter(root, at).rewrite(root))


class _SchemaRewriter:
    def __init__(self, root: JsonObject, at: str) -> None:
        self._root, self._at = root, at
        dialect = root.get("$schema")
        self._is_old = isinstance(dialect, str) and any(part in dialect for part in _OLD_DIALECTS)
        self._is_draft4 = self._is_old and "/draft-04/" in cast("str", dialect)
        base = root.get("id" if self._is_draft4 else "$id")
        self._base = base.removesuffix("#") if isinstance(base, str) else ""
        self._anchors = {} if at == "" else dict(self._list_anchors(root, ""))
        self._is_translated = False

    def rewrite(self, root: JsonObject) -> object:
        """Return the whole schema."""
        rules = cast("JsonObject", self._rewrite(root))
        if self._at != "" and self._base:
            rules.pop("id" if self._is_draft4 else "$id", None)
        if self._is_translated and isinstance(rules.get("$schema"), str):
            rules["$schema"] = _DIALECT
        return rules

    def _rewrite(self, part: object, *, is_name_map: bool = False, level: int = 0) -> object:
        if level > _MAX_LEVELS:
            return part
        if isinstance(part, list):
            return [self._rewrite(item, level=level + 1) for item in cast("list[object]", part)]
        if not isinstance(part, dict):
            return part
        fields = cast("JsonObject", part)
        if level and not is_name_map and self._has_own_base(fields):
            return fields
        rules = {
            name: item
            if not is_name_map and name in DATA_KEYWORDS
            else self._rewrite(item, is_name_map=not is_name_map and name in NAME_MAPS, level=level + 1)
            for name, item in fields.items()
        }
        if is_name_map:
            return rules
        self._move_references(rules)
        return self._translate(rules) if self._is_old else rules

    def _has_own_base(self, rules: Mapping[str, object]) -> bool:
        """Return whether the references in a part are relative to an id of its own."""
        base = rules.get("id" if self._is_draft4 else "$id")
        return isinstance(base, str) and not base.startswith("#")

    def _move_references(self, rules: JsonObject) -> None:
        for keyword in _REFERENCES:
            reference = rules.get(keyword)
            if not isinstance(reference, str) or (self._at == "" and not reference.startswith("#/")):
                continue
            if (pointer := self._find_pointer(reference)) is not None:
                del rules[keyword]
                # Within one schema a dynamic reference has one target.
                rules["$ref"] = f"#{self._at}{pointer}"
        if self._anchors:
            for keyword in _ANCHORS:
                if isinstance(rules.get(keyword), str | bool):
                    del rules[keyword]

    def _find_pointer(self, reference: str) -> str | None:
        """Return the JSON pointer, as a fragment, of the part of the schema that a reference names; None for another document."""
        if self._base and reference.startswith(self._base):
            reference = reference.removeprefix(self._base) or "#"
        if not reference.startswith("#"):
            return None
        fragment = reference[1:]
        if fragment == "" or fragment.startswith("/"):
            return self._translate_pointer(fragment) if self._is_old else fragment
        return self._anchors.get(unquote(fragment))

    def _translate_pointer(self, fragment: str) -> str:
        """Return the pointer of the same part after the translation of old keywords."""
        target = cast("object", self._root)
        parts = list[str]()
        for part in fragment.split("/")[1:]:
            name, moved = unquote(part).replace("~1", "/").replace("~0", "~"), part
            if isinstance(target, dict):
                rules = cast("JsonObject", target)
                if name == "items" and isinstance(rules.get(name), list):
                    moved = "prefixItems"
                elif name == "additionalItems" and isinstance(rules.get("items"), list):
                    moved = "items"
                elif name == "dependencies" and isinstance(rules.get(name), dict):
                    moved = "dependentSchemas"
                target = rules.get(name)
            elif isinstance(target, list) and name.isdecimal() and int(name[:9]) < len(cast("list[object]", target)):
                target = cast("list[object]", target)[int(name[:9])]
            else:
                target = None
            parts.append(moved)
        return "".join(f"/{part}" for part in parts)

    def _list_anchors(self, part: object, pointer: str, *, is_name_map: bool = False, level: int = 0) -> Iterator[tuple[str, str]]:
        """Yield the names of anchors with their JSON pointers."""
        if level > _MAX_LEVELS:
            return
        if isinstance(part, list):
            for number, item in enumerate(cast("list[object]", part)):
                yield from self._list_anchors(item, f"{pointer}/{number}", level=level + 1)
        if not isinstance(part, dict):
            return
        rules = cast("JsonObject", part)
        if not is_name_map:
            if level and self._has_own_base(rules):
                return
            names = [rules.get("$anchor"), rules.get("$dynamicAnchor")]
            identifier = rules.get("id" if self._is_draft4 else "$id")  # up to draft-07, `"$id": "#name"` is an anchor
            names += [identifier[1:]] if isinstance(identifier, str) and identifier.startswith("#") else []
            yield from ((name, self._translate_pointer(pointer) if self._is_old else pointer) for name in names if isinstance(name, str))
        for name, item in rules.items():
            if is_name_map or name not in DATA_KEYWORDS:
                below = f"{pointer}{to_json_pointer(name)}"
                yield from self._list_anchors(item, below, is_name_map=not is_name_map and name in NAME_MAPS, level=level + 1)

    def _translate(self, rules: JsonObject) -> JsonObject:
        """Return the rules with the keywords that have another form in 2020-12."""
        translated = dict(rules)
        if isinstance(items := rules.get("items"), list):
            del translated["items"]
            translated["prefixItems"] = items
            if "additionalItems" in rules:
                translated["items"] = translated.pop("additionalItems")
        if isinstance(dependencies := rules.get("dependencies"), dict):
            del translated["dependencies"]
            for keyword, is_list in (("dependentRequired", True), ("dependentSchemas", False)):
                parts = {name: part for name, part in cast("JsonObject", dependencies).items() if isinstance(part, list) == is_list}
                if parts:
                    translated[keyword] = parts
        if self._is_draft4:
            for keyword, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
                if isinstance(is_exclusive := rules.get(keyword), bool):
                    del translated[keyword]
                    if is_exclusive and limit in translated:
                        translated[keyword] = translated.pop(limit)
        self._is_translated = self._is_translated or translated != rules
        return translated


def to_json_pointer(*names: str) -> str:
    """Return a JSON pointer as a URI fragment (RFC 6901, section 6)."""
    return "".join("/" + quote(name.replace("~", "~0").replace("/", "~1"), safe="~$") for name in names)
