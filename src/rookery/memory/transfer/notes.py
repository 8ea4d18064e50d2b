"""Markdown notes: those of people and of Obsidian, and those that an export writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Protocol, cast

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rookery.kernel.errors import RookeryError
from rookery.memory.merging import MAX_CONTENT_CHARS, MAX_TAGS
from rookery.memory.metadata import to_json
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer import full_format
from rookery.memory.transfer.field_reader import MAX_NAME_CHARS, MAX_TAG_CHARS, FieldReader, field_error
from rookery.memory.transfer.import_source import NoteSplit
from rookery.memory.transfer.items import NO_WORKSPACE_ID, ImportedMemory, ImportItem, RejectedItem
from rookery.memory.transfer.line_reader import truncate
from rookery.memory.transfer.markdown import Heading, MarkdownDocument, build_parser, parse_document, split_document, split_section

TYPE = "documentation"
_CONFIDENCE = 0.8
_MAX_FRONT_MATTER_BYTES = 64 * 1024
_MAX_TITLE_CHARS = 1_000
_MAX_NUMBER_CHARS = 40
_YAML_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that PyYAML raises for a value that does not match its tag, and its own errors."""

_ROOKERY_HEADER = "---\nrookery: 1\n"
_FRONT_MATTER_END = "\n---\n\n"
_HASHTAG = re.compile(r"(?:^|(?<=[\s(]))#([\w/-]*[^\W\d_][\w/-]*)")
"""A hashtag as in Obsidian: not of digits only."""

_TAG_SEPARATOR = re.compile(r"[,\s]+")


def render_note(record: TransferRecord) -> str:
    """Return a memory as a note, from which `NoteReader` restores it exactly."""
    fields = {name: value for name, value in full_format.to_fields(record).items() if value not in (None, [], {})}
    # Unicode is written readably, unless a character such as U+0085 ends a line in YAML: PyYAML's writer would lose it.
    texts = (*record.memory.tags, to_json(record.memory.metadata).decode(), *map(str, fields.values()))
    is_plain = all(text.isprintable() for text in texts)
    text = yaml.safe_dump({"rookery": 1, **fields}, sort_keys=False, allow_unicode=is_plain, width=10_000)
    return f"---\n{text}---\n\n{record.memory.content}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A note file: its name, its title, the time of its last change, and its text."""

    name: str
    title: str
    modified_at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class NoteReader:
    """A reader of notes: one memory per note, or one per section."""

    split_by: NoteSplit = "note"
    reader: MarkdownIt = field(default_factory=build_parser)

    def iter_items(self, note: Note) -> Iterator[ImportItem]:
        """Yield the memories of a note; none if it is empty."""
        try:
            yield from [ImportItem(location=note.name, content=memory) for memory in self._parse_note(note)]
        except RookeryError as error:
            yield ImportItem(location=note.name, content=RejectedItem(reason=error.message))

    def _parse_note(self, note: Note) -> Sequence[ImportedMemory]:
        if note.text.startswith(_ROOKERY_HEADER):
            front_matter, _, body = note.text.removeprefix("---\n").partition(_FRONT_MATTER_END)
            return [full_format.from_fields(FieldReader(_parse_front_matter(front_matter) or dict[str, object]()), body.removesuffix("\n"))]
        document = parse_document(note.text, self.reader)
        front: Mapping[str, object] | None = {} if document.front_matter is None else _parse_front_matter(document.front_matter)
        if front is None:
            # Text between two horizontal rules, not front matter.
            document, front = parse_document("\n" + note.text, self.reader), {}
        template = self._build_template(note, document, front)
        return [
            ImportedMemory(memory=replace(template, content=text), identity=("note", note.name, text))
            for text in self._split_texts(note, document, front)
        ]

    def _split_texts(self, note: Note, document: MarkdownDocument, front: Mapping[str, object]) -> list[str]:
        front_title = front.get("title")
        title = front_title if isinstance(front_title, str) and front_title.strip() else note.title
        first = document.sections[0].heading if document.sections else None
        top = () if first is not None and first.level == 1 else (Heading(1, truncate(" ".join(title.split()), _MAX_TITLE_CHARS)),)
        room = MAX_CONTENT_CHARS - sum(len(str(heading)) + 2 for heading in top)
        if self.split_by == "note":
            texts = split_document(document, max_chars=room)
        else:
            texts = [piece for section in document.sections if section.tokens for piece in split_section(document, section, max_chars=room)]
        return ["\n\n".join([*map(str, top), text]) for text in texts]

    def _build_template(self, note: Note, document: MarkdownDocument, front: Mapping[str, object]) -> Memory:
        """Return a memory with the fields that all memories of the note share, without content."""
        row = FieldReader(front)
        created_at = _first_moment(row, "created_at", "created", "date") or note.modified_at
        updated_at = max(_first_moment(row, "updated_at", "updated", "modified") or created_at, created_at)
        agent_id, session_id = row.maybe_text("agent_id") or row.maybe_text("agent"), row.maybe_text("session_id")
        confidence = row.number("confidence", _CONFIDENCE)
        tags = (*_iter_front_tags(front), *(tag for section in document.sections for tag in _iter_hashtags(section.tokens)))
        return Memory(
            id="",
            workspace_id=NO_WORKSPACE_ID,
            org=row.maybe_text("org"),
            project=row.maybe_text("project"),
            agent_id=agent_id,
            session_id=session_id,
            memory_scope=row.scope("memory_scope" if "memory_scope" in front else "scope", MemoryScope.PROJECT),
            type=row.maybe_text("type") or TYPE,
            tags=tuple(dict.fromkeys(tag.lower() for tag in tags if 0 < len(tag) <= MAX_TAG_CHARS))[:MAX_TAGS],
            confidence=confidence,
            base_confidence=confidence,
            source=row.maybe_text("source") or note.name[-MAX_NAME_CHARS:],
            content="",
            metadata=row.maybe_object("metadata"),
            content_at=updated_at,
            created_at=created_at,
            updated_at=updated_at,
        )


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


def _parse_front_matter(front: str) -> Mapping[str, object] | None:
    """Return the fields of the front matter. None if it is YAML without fields."""
    if len(front) > _MAX_FRONT_MATTER_BYTES:
        raise field_error("front matter", f"has more than {_MAX_FRONT_MATTER_BYTES // 1024} KiB")
    try:
        value: object = yaml.load(front, _FrontMatterLoader)  # noqa: S506 - a safe loader, and stricter
    except _YAML_ERRORS as error:
        raise field_error("front matter", f"is not valid YAML: {' '.join(str(error).split())[:200]}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        return None
    return {name: value for name, value in cast("dict[object, object]", value).items() if isinstance(name, str)}


def _iter_front_tags(front: Mapping[str, object]) -> Iterator[str]:
    """Yield the tags of the front matter: a list, or a text separated by spaces or commas. A leading # is removed."""
    for name in ("tags", "tag"):
        value = front.get(name)
        items = cast("list[object]", value) if isinstance(value, list) else _TAG_SEPARATOR.split(value) if isinstance(value, str) else []
        for item in items:
            if isinstance(item, str | int | float | date) and not isinstance(item, bool):
                yield str(item).strip().lstrip("#")


def _iter_hashtags(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        for child in token.children or ():
            if child.type == "text":
                yield from _HASHTAG.findall(child.content)


def _first_moment(row: FieldReader, *names: str) -> datetime | None:
    return next((moment for name in names if (moment := row.maybe_moment(name)) is not None), None)
