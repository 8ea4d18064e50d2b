"""Markdown notes: as people and Obsidian write them, and as we write memories for people to read."""

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
from rookery.memory.merging import MAX_CONTENT, MAX_TAGS
from rookery.memory.metadata import dumped
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.store.transfer import Kept
from rookery.memory.transfer import whole
from rookery.memory.transfer.asked import By
from rookery.memory.transfer.fields import LONGEST_NAME, LONGEST_TAG, Fields, wrong
from rookery.memory.transfer.lines import shorter
from rookery.memory.transfer.parcels import UNPLACED, Arrived, Parcel, Refused
from rookery.memory.transfer.sections import Document, Heading, document, parser, parts, pieces

TYPE = "documentation"
_CONFIDENCE = 0.8
_MAX_FRONT = 64 * 1024
_LONGEST_TITLE = 1_000
_LONGEST_NUMBER = 40
_NO_FIELDS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What PyYAML raises of a value that is not what its tag says, beside its own errors."""

_OURS = "---\nrookery: 1\n"
_CLOSE = "\n---\n\n"
_HASHTAG = re.compile(r"(?:^|(?<=[\s(]))#([\w/-]*[^\W\d_][\w/-]*)")
"""As Obsidian has it: not of digits alone."""

_BETWEEN = re.compile(r"[,\s]+")


def written(kept: Kept) -> str:
    """Return a memory as a note that `Notes` reads back as it was."""
    said = {name: value for name, value in whole.written(kept).items() if value not in (None, [], {})}
    # As it looks for people; but not with letters that end a line for YAML alone (U+0085): its writer loses them.
    texts = (*kept.memory.tags, dumped(kept.memory.metadata).decode(), *map(str, said.values()))
    is_plain = all(text.isprintable() for text in texts)
    text = yaml.safe_dump({"rookery": 1, **said}, sort_keys=False, allow_unicode=is_plain, width=10_000)
    return f"---\n{text}---\n\n{kept.memory.content}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A file: *name* as the reader knows it, its title, when it was last changed, its text."""

    name: str
    title: str
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Notes:
    """Reads notes: a memory each, or a memory for each of its sections."""

    by: By = "note"
    reader: MarkdownIt = field(default_factory=parser)

    def parcels(self, note: Note) -> Iterator[Parcel]:
        """Return what a note holds; nothing if there is nothing in it."""
        try:
            yield from [Parcel(where=note.name, holds=each) for each in self._held(note)]
        except RookeryError as error:
            yield Parcel(where=note.name, holds=Refused(why=error.message))

    def _held(self, note: Note) -> Sequence[Arrived]:
        if note.text.startswith(_OURS):
            said, _, body = note.text.removeprefix("---\n").partition(_CLOSE)
            return [whole.read(Fields(_mapping(said) or dict[str, object]()), body.removesuffix("\n"))]
        taken = document(note.text, self.reader)
        front: Mapping[str, object] | None = {} if taken.front is None else _mapping(taken.front)
        if front is None:
            # Two rules around some text: no front matter after all.
            taken, front = document("\n" + note.text, self.reader), {}
        drawn = self._drawn(note, taken, front)
        return [
            Arrived(memory=replace(drawn, content=text), known_as=("note", note.name, text)) for text in self._texts(note, taken, front)
        ]

    def _texts(self, note: Note, taken: Document, front: Mapping[str, object]) -> list[str]:
        said = front.get("title")
        title = said if isinstance(said, str) and said.strip() else note.title
        first = taken.sections[0].heading if taken.sections else None
        top = () if first is not None and first.level == 1 else (Heading(1, shorter(" ".join(title.split()), _LONGEST_TITLE)),)
        room = MAX_CONTENT - sum(len(str(heading)) + 2 for heading in top)
        if self.by == "note":
            found = pieces(taken, most=room)
        else:
            found = [piece for section in taken.sections if section.tokens for piece in parts(taken, section, most=room)]
        return ["\n\n".join([*map(str, top), text]) for text in found]

    def _drawn(self, note: Note, taken: Document, front: Mapping[str, object]) -> Memory:
        """Return the memory that all of the note's are like, but for the content."""
        row = Fields(front)
        created_at = _first(row, "created_at", "created", "date") or note.at
        updated_at = max(_first(row, "updated_at", "updated", "modified") or created_at, created_at)
        agent_id, session_id = row.maybe_text("agent_id") or row.maybe_text("agent"), row.maybe_text("session_id")
        confidence = row.number("confidence", _CONFIDENCE)
        tags = (*_front_tags(front), *(tag for section in taken.sections for tag in _hashtags(section.tokens)))
        return Memory(
            id="",
            workspace_id=UNPLACED,
            org=row.maybe_text("org"),
            project=row.maybe_text("project"),
            agent_id=agent_id,
            session_id=session_id,
            memory_scope=row.scope("memory_scope" if "memory_scope" in front else "scope", MemoryScope.PROJECT),
            type=row.maybe_text("type") or TYPE,
            tags=tuple(dict.fromkeys(tag.lower() for tag in tags if 0 < len(tag) <= LONGEST_TAG))[:MAX_TAGS],
            confidence=confidence,
            base_confidence=confidence,
            source=row.maybe_text("source") or note.name[-LONGEST_NAME:],
            content="",
            metadata=row.maybe_object("metadata"),
            content_at=updated_at,
            created_at=created_at,
            updated_at=updated_at,
        )


class _Events(Protocol):
    """What PyYAML's parser has, which its types do not say."""

    def check_event(self, kind: type[yaml.Event], /) -> bool: ...


class _Front(yaml.SafeLoader):
    """Reads front matter in the room and time of its length: without aliases, of which a few lines make billions of fields."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if cast("_Events", self).check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias has no place in front matter")
        return super().compose_node(parent, index)

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if len(node.value) > _LONGEST_NUMBER and node.tag.endswith(":int"):
            node.tag = "tag:yaml.org,2002:str"  # such a number can be neither compared nor shown
        return node


def _mapping(front: str) -> Mapping[str, object] | None:
    """Return the front matter's fields; None: it is YAML, but has no fields."""
    if len(front) > _MAX_FRONT:
        raise wrong("front matter", f"has more than {_MAX_FRONT // 1024} KiB")
    try:
        found: object = yaml.load(front, _Front)  # noqa: S506 - a safe loader, and stricter
    except _NO_FIELDS as error:
        raise wrong("front matter", f"is no YAML: {' '.join(str(error).split())[:200]}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in cast("dict[object, object]", found).items() if isinstance(name, str)}


def _front_tags(front: Mapping[str, object]) -> Iterator[str]:
    """Return the tags of the front matter: a list, or a text with spaces or commas between; # before them says nothing."""
    for name in ("tags", "tag"):
        value = front.get(name)
        listed = cast("list[object]", value) if isinstance(value, list) else _BETWEEN.split(value) if isinstance(value, str) else []
        for item in listed:
            if isinstance(item, str | int | float | date) and not isinstance(item, bool):
                yield str(item).strip().lstrip("#")


def _hashtags(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        for child in token.children or ():
            if child.type == "text":
                yield from _HASHTAG.findall(child.content)


def _first(row: Fields, *names: str) -> datetime | None:
    return next((moment for name in names if (moment := row.maybe_moment(name)) is not None), None)
