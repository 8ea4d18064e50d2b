"""
Notes of basic-memory: each observation becomes a memory, and the other text of a note.

The files have no times. They are in its database memory.db, local ones without a zone; without it, the time is the file's last change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import cast

from rookery.memory.models import MAX_CONTENT_CHARS, Memory
from rookery.memory.transfer.items import TYPE_PATTERN, ImportedMemory, ReadProgress, field_error, truncate
from rookery.memory.transfer.lenient import LenientReader
from rookery.memory.transfer.markdown_documents import split_text
from rookery.memory.transfer.sources.note import HASHTAG, ParsedNote, iter_front_tags
from rookery.memory.transfer.sources.source import ForeignMemory, new_foreign_memory, to_imported, to_mapping, to_objects, with_id
from rookery.memory.transfer.sqlite_files import ForeignDatabase, open_companion

NAME = "basic-memory"
GENERATED_NAMES = frozenset({"index.md", "log.md"})
"""Files of an OKF export that are no notes."""

_DEFAULT_TYPE = "observation"
_NOTE_TYPE = "documentation"
_MAX_TITLE_CHARS = 200
_OBSERVATION = re.compile(r"\s*[-*+]\s+\[([^\[\]()]+)\]\s+(\S.*)")
_RELATION = re.compile(r"\s*[-*+]\s+([^\[\]]*?)\s*(?:\[\[([^\[\]]+)\]\]|\[([^\[\]]+)\]\([^()]*\))\s*(?:\((.+)\))?\s*")
_CONTEXT = re.compile(r"\(([^()]*)\)\s*$")
_TASK_OR_TIME = re.compile(r"[xX]|[^\w]|\d{1,3}:\d{2}.*")
_HEADING = re.compile(r"\s*#{1,6}\s")
_FENCE = re.compile(r"\s*(```|~~~)")


@dataclass(frozen=True, slots=True)
class NoteTimes:
    """The creation and change times of notes by permalink and by path."""

    by_name: Mapping[str, tuple[datetime, datetime]] = field(default_factory=dict[str, tuple[datetime, datetime]])

    def find(self, *names: str | None) -> tuple[datetime, datetime] | None:
        """Return the times of the note that one of *names* belongs to."""
        return next((self.by_name[name] for name in names if name is not None and name in self.by_name), None)


def is_note(note: ParsedNote) -> bool:
    """Return whether a note is one of basic-memory, which writes title, type and permalink into each."""
    row = note.row
    has_permalink = isinstance(row.value("permalink"), str)
    return has_permalink and ((row.has("title") and row.has("type")) or any(_parse_observation(line) for line in note.document.lines))


def is_database(database: ForeignDatabase) -> bool:
    """Return whether a SQLite file is basic-memory's memory.db."""
    return database.has("entity", "permalink", "file_path", "created_at", "updated_at")


def read_times(path: Path, progress: ReadProgress, zone: tzinfo | None) -> NoteTimes:
    """
    Return the times of notes from memory.db.

    Raises:
        ValidationFailed: The file is another database.
    """
    by_name = dict[str, tuple[datetime, datetime]]()
    with open_companion(path) as database:
        if not is_database(database):
            raise field_error("with", f"{path} is not basic-memory's memory.db")
        for number, values in enumerate(database.rows("SELECT permalink, file_path, created_at, updated_at FROM entity"), start=1):
            place = f"{path.name}, note {number}"
            row = LenientReader(values, lambda name, message, place=place: progress.warn(place, f"{name}: {message}"), zone=zone)
            created_at = row.maybe_moment("created_at")
            if created_at is not None:
                times = (created_at, max(row.maybe_moment("updated_at") or created_at, created_at))
                by_name |= {name: times for name in (row.name("permalink"), row.name("file_path")) if name}
    return NoteTimes(by_name)


def read(note: ParsedNote, times: NoteTimes) -> list[ImportedMemory]:
    """Return a memory for each observation, and for the other text of the note."""
    row = note.row
    permalink, title = row.name("permalink") or note.name, truncate(row.name("title") or note.title, _MAX_TITLE_CHARS)
    created_at, updated_at = times.find(row.name("permalink"), note.name) or (note.modified_at, note.modified_at)
    observations, relations, others = _split_lines(_iter_body(note))
    relations = _read_exported_relations(row) or relations
    template = new_foreign_memory(
        content="",
        type=_NOTE_TYPE,
        project=permalink.split("/")[0] if "/" in permalink else None,
        tags=tuple(iter_front_tags(row)),
        metadata=with_id({"relations": relations} if relations else {}, "basic_memory_id", permalink),
        source=note.name[-100:],
        created_at=created_at,
        at=updated_at,
    )
    memories = [_build_observation(template, title, category, text) for category, text in observations]
    text = "\n".join(_drop_empty_headings(others)).strip()
    if any(line.strip() and not _HEADING.match(line) for line in others):
        head = "" if text.startswith("# ") else f"# {title}\n\n"
        memories += [replace(template, content=head + piece) for piece in split_text(text, MAX_CONTENT_CHARS - len(head))]
    if not memories and relations:
        memories.append(replace(template, content=f"{title}: " + ", ".join(f"{item['type']} {item['target']}" for item in relations)))
    return [
        to_imported(ForeignMemory(memory=memory, default_type=_DEFAULT_TYPE, identity=(permalink, memory.content)), NAME, note.warn)
        for memory in memories
    ]


def _build_observation(template: Memory, title: str, category: str, text: str) -> Memory:
    context = _CONTEXT.search(text)
    slug = category.strip().lower().replace(" ", "-")
    return replace(
        template,
        content=f"{title}: {text}"[:MAX_CONTENT_CHARS],
        type=slug if TYPE_PATTERN.fullmatch(slug) else _DEFAULT_TYPE,
        tags=(*template.tags, *HASHTAG.findall(text)),
        metadata={**template.metadata, "category": category.strip(), **({"context": context[1]} if context and context[1].strip() else {})},
    )


def _iter_body(note: ParsedNote) -> Iterator[tuple[str, bool]]:
    """Yield the lines after the front matter, each with whether it is in a code block."""
    is_code = False
    for line in note.body.split("\n"):
        is_fence = _FENCE.match(line) is not None
        yield line, is_code or is_fence
        is_code ^= is_fence


def _split_lines(lines: Iterator[tuple[str, bool]]) -> tuple[list[tuple[str, str]], list[dict[str, str]], list[str]]:
    """Return the observations with their categories, the relations, and the other lines."""
    observations, relations, others = list[tuple[str, str]](), list[dict[str, str]](), list[str]()
    for line, is_code in lines:
        observation = None if is_code else _parse_observation(line)
        relation = None if is_code or observation else _RELATION.fullmatch(line)
        if observation:
            observations.append(observation)
        elif relation:
            context = {"context": relation[4]} if relation[4] else {}
            relations.append({"type": relation[1] or "relates_to", "target": relation[2] or relation[3], **context})
        else:
            others.append(line)
    return observations, relations, others


def _drop_empty_headings(lines: Sequence[str]) -> list[str]:
    """Return the lines without headings that have nothing below them any more."""
    remaining, lowest = list[str](), 0  # the level of the heading before which only blank lines were seen, from the end; 0 at the end
    has_text = False
    for line in reversed(lines):
        level = len(line.strip().split(" ", 1)[0]) if _HEADING.match(line) else 0
        if level and not has_text and lowest <= level:
            continue
        if level:
            has_text, lowest = False, level
        elif line.strip():
            has_text, lowest = True, 0
        remaining.append(line)
    return remaining[::-1]


def _parse_observation(line: str) -> tuple[str, str] | None:
    """Return the category and the text. Marks of tasks and times of transcripts are no categories."""
    match = _OBSERVATION.fullmatch(line)
    return None if match is None or _TASK_OR_TIME.fullmatch(match[1].strip()) or not match[1].strip() else (match[1], match[2].strip())


def _read_exported_relations(row: LenientReader) -> list[dict[str, str]]:
    """Return the relations in the front matter of an OKF export, which turns their links into paths."""
    items = to_objects(to_mapping(to_mapping(row.value("bm")).get("okf_export")).get("relations")) or []
    return [
        {name: str(value) for name, value in cast("dict[str, object]", item).items() if name in ("type", "target", "context") and value}
        for item in items
        if isinstance(item, dict) and item.get("type") and item.get("target")  # pyright: ignore[reportUnknownMemberType]
    ]


def is_exported_folder(paths: Sequence[Path]) -> bool:
    """Return whether the files are an OKF export: its first index has a version, or one of its notes has the export's fields."""
    return any(_has_mark(path) for path in paths)


def _has_mark(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    return head.startswith(b"---") and (b"\nokf_version:" in head or b"\n  okf_export:" in head)
