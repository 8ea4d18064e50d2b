"""
Markdown notes: those of people and of Obsidian, those that an export writes, and agents' instruction files such as CLAUDE.md.

A note becomes one memory, or one per section. Of an instruction file each bullet, and the other text of a section, is a convention.
"""

from __future__ import annotations

import os
import re
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Protocol, cast

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.front_matter import front_matter_plugin

from rookery.kernel.errors import RookeryError
from rookery.memory.merging import MAX_CONTENT_CHARS, MAX_TAGS, Merge
from rookery.memory.metadata import to_json
from rookery.memory.models import Memory, MemoryScope, Tombstone
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.items import (
    MAX_NAME_CHARS,
    MAX_PROJECT_CHARS,
    MAX_TAG_CHARS,
    FieldReader,
    ImportedMemory,
    ImportFormat,
    ImportItem,
    NoteSplit,
    ReadProgress,
    RejectedItem,
    field_error,
    from_fields,
    new_memory,
    to_fields,
    truncate,
)

NOTE_SUFFIXES = (".md", ".markdown")
AGENT_FILE_NAMES = frozenset({"claude.md", "agents.md", "claude.local.md", "gemini.md", "copilot-instructions.md"})

_NOTE_TYPE, _AGENT_FILE_TYPE = "documentation", "convention"
_CONFIDENCE = 0.8
_MAX_STATEMENT_CHARS = MAX_CONTENT_CHARS - 2_000
"""Maximum length of a statement of an instruction file, with room for its headings."""

_MAX_NOTE_BYTES = 8 * 1024 * 1024
_MAX_FRONT_MATTER_BYTES = 64 * 1024
_MAX_TITLE_CHARS = 1_000
_MAX_NUMBER_CHARS = 40
_MAX_SLUG_CHARS = 60
_READ_HIDDEN_FOLDERS = (".claude", ".github")
_NO_NAME_FOLDER = "none"
_YAML_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that PyYAML raises for a value that does not match its tag, and its own errors."""

_ROOKERY_HEADER = "---\nrookery: 1\n"
_FRONT_MATTER_END = "\n---\n\n"
_HASHTAG = re.compile(r"(?:^|(?<=[\s(]))#([\w/-]*[^\W\d_][\w/-]*)")
"""A hashtag as in Obsidian: not of digits only."""

_TAG_SEPARATOR = re.compile(r"[,\s]+")
_BULLET = re.compile(r"\s*[-*+]\s+(?:\[[ xX]\]\s+)?")
_COMMENT = re.compile(r"\s*<!--.*-->\s*", re.DOTALL)
_NON_WORD = re.compile(r"[^\w]+")
_NON_SLUG = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSelection:
    """
    The notes to read.

    Attributes:
        folder: The folder that names of notes are relative to.
        file: The only note to read; None for all notes of the folder.
        split_by: One memory per note, or one per section.
    """

    folder: Path
    file: Path | None = None
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """A note file: its path, its name in the source, the time of its last change, and its text."""

    path: Path
    name: str
    title: str
    modified_at: datetime
    text: str


class NoteFolder:
    """
    An `ExportDestination` that writes a new folder of notes, `org/project/beginning-of-content-<id>.md`. It writes only memories.

    Names in paths are reduced to lower-case letters, digits and hyphens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write_header(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write_memory(self, record: TransferRecord) -> None:
        memory = record.memory
        folder = self._folder / (_slug(memory.org or "") or _NO_NAME_FOLDER) / (_slug(memory.project or "") or _NO_NAME_FOLDER)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = _slug(memory.content.strip().split("\n", 1)[0])
        path = folder / f"{start + '-' if start else ''}{memory.id}.md"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(_render_note(record).encode())

    def write_tombstone(self, tombstone: Tombstone) -> None:
        """Write nothing: a tombstone has no content."""

    def write_merge(self, merge: Merge) -> None:
        """Write nothing: the merged memory names its primary."""

    def write_end(self) -> None:
        """Write nothing."""


def read_items(selection: NoteSelection, progress: ReadProgress) -> Iterator[ImportItem]:
    """
    Return an iterator over the memories of the notes, file by file.

    Raises:
        ValidationFailed: No note was found.
    """
    paths = [selection.file] if selection.file else [path for path in _iter_files(selection.folder) if _is_selected(selection, path)]
    if not paths:
        raise field_error("folder", f"{selection.folder} has no notes (*.md) to import")
    progress.total = len(paths)
    return _read_all(selection, paths, progress)


def _is_selected(selection: NoteSelection, path: Path) -> bool:
    return _is_agent_file(path) or (selection.import_format != "agents-md" and path.suffix.lower() in NOTE_SUFFIXES)


def _is_agent_file(path: Path) -> bool:
    return path.name.lower() in AGENT_FILE_NAMES


def _iter_files(folder: Path) -> Iterator[Path]:
    """
    Yield the files below *folder* in order. Hidden folders and links, which lead elsewhere, are left out.

    Pipes and other special files are left out too, because opening one may block forever.
    """
    for current_folder, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") or name in _READ_HIDDEN_FOLDERS)
        for name in sorted(files):
            path = Path(current_folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _read_all(selection: NoteSelection, paths: Sequence[Path], progress: ReadProgress) -> Iterator[ImportItem]:
    """Yield the memories of each file; an empty note has none."""
    parser = build_parser()
    for path in paths:
        name = _printable_name(path.relative_to(selection.folder).as_posix())
        is_for_agents = selection.import_format == "agents-md" or (selection.import_format == "auto" and _is_agent_file(path))
        try:
            note = _read_file(path, name)
            memories = list(_iter_conventions(note, parser)) if is_for_agents else _parse_note(note, parser, selection.split_by)
            yield from [ImportItem(location=name, content=memory) for memory in memories]
        except RookeryError as error:
            yield ImportItem(location=name, content=RejectedItem(reason=error.message))
        progress.done += 1


def _printable_name(name: str) -> str:
    """Return a file name as valid text; undecodable bytes are replaced."""
    return os.fsencode(name).decode(errors="replace")


def _read_file(path: Path, name: str) -> _Note:
    try:
        status = path.stat()
        if status.st_size > _MAX_NOTE_BYTES:
            raise RookeryError(f"the file has more than {_MAX_NOTE_BYTES // (1024 * 1024)} MiB, the maximum of a note")
        text, modified_at = path.read_bytes().decode("utf-8-sig"), datetime.fromtimestamp(status.st_mtime, tz=UTC)
    except UnicodeDecodeError as error:
        raise RookeryError(f"the file is not valid UTF-8 at byte {error.start}") from error
    except (OSError, OverflowError, ValueError) as error:
        raise RookeryError(f"the file cannot be read: {error.strerror if isinstance(error, OSError) else error}") from error
    return _Note(path=path, name=name, title=_printable_name(path.stem), modified_at=modified_at, text=text)


def _slug(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text[: 4 * _MAX_SLUG_CHARS]).encode("ascii", "ignore").decode().lower()
    return _NON_SLUG.sub("-", ascii_text).strip("-")[:_MAX_SLUG_CHARS].strip("-")


def _render_note(record: TransferRecord) -> str:
    """Return a memory as a note, from which an import restores it exactly."""
    fields = {name: value for name, value in to_fields(record).items() if value not in (None, [], {})}
    # Unicode is written readably, unless a character such as U+0085 ends a line in YAML: PyYAML's writer would lose it.
    texts = (*record.memory.tags, to_json(record.memory.metadata).decode(), *map(str, fields.values()))
    is_plain = all(text.isprintable() for text in texts)
    text = yaml.safe_dump({"rookery": 1, **fields}, sort_keys=False, allow_unicode=is_plain, width=10_000)
    return f"---\n{text}---\n\n{record.memory.content}\n"


def _parse_note(note: _Note, parser: MarkdownIt, split_by: NoteSplit) -> Sequence[ImportedMemory]:
    if note.text.startswith(_ROOKERY_HEADER):
        front_matter, _, body = note.text.removeprefix("---\n").partition(_FRONT_MATTER_END)
        return [from_fields(FieldReader(_parse_front_matter(front_matter) or dict[str, object]()), body.removesuffix("\n"))]
    document = parse_document(note.text, parser)
    front: Mapping[str, object] | None = {} if document.front_matter is None else _parse_front_matter(document.front_matter)
    if front is None:
        # Text between two horizontal rules, not front matter.
        document, front = parse_document("\n" + note.text, parser), {}
    template = _build_template(note, document, front)
    return [
        ImportedMemory(memory=replace(template, content=text), identity=("note", note.name, text))
        for text in _split_texts(note, document, front, split_by)
    ]


def _split_texts(note: _Note, document: MarkdownDocument, front: Mapping[str, object], split_by: NoteSplit) -> list[str]:
    front_title = front.get("title")
    title = front_title if isinstance(front_title, str) and front_title.strip() else note.title
    first = document.sections[0].heading if document.sections else None
    top = () if first is not None and first.level == 1 else (Heading(1, truncate(" ".join(title.split()), _MAX_TITLE_CHARS)),)
    room = MAX_CONTENT_CHARS - sum(len(str(heading)) + 2 for heading in top)
    if split_by == "note":
        texts = split_document(document, max_chars=room)
    else:
        texts = [piece for section in document.sections if section.tokens for piece in split_section(document, section, max_chars=room)]
    return ["\n\n".join([*map(str, top), text]) for text in texts]


def _build_template(note: _Note, document: MarkdownDocument, front: Mapping[str, object]) -> Memory:
    """Return a memory with the fields that all memories of the note share, without content."""
    row = FieldReader(front)
    created_at = _first_moment(row, "created_at", "created", "date") or note.modified_at
    scope_name = "memory_scope" if "memory_scope" in front else "scope"
    tags = (*_iter_front_tags(front), *(tag for section in document.sections for tag in _iter_hashtags(section.tokens)))
    return new_memory(
        content="",
        at=max(_first_moment(row, "updated_at", "updated", "modified") or created_at, created_at),
        created_at=created_at,
        org=row.maybe_text("org"),
        project=row.maybe_text("project"),
        agent_id=row.maybe_text("agent_id") or row.maybe_text("agent"),
        session_id=row.maybe_text("session_id"),
        memory_scope=row.scope(scope_name) if row.has(scope_name) else MemoryScope.PROJECT,
        type=row.maybe_text("type") or _NOTE_TYPE,
        tags=tuple(dict.fromkeys(tag.lower() for tag in tags if 0 < len(tag) <= MAX_TAG_CHARS))[:MAX_TAGS],
        confidence=row.number("confidence") if row.has("confidence") else _CONFIDENCE,
        source=row.maybe_text("source") or note.name[-MAX_NAME_CHARS:],
        metadata=row.maybe_object("metadata"),
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


def _iter_conventions(note: _Note, parser: MarkdownIt) -> Iterator[ImportedMemory]:
    """Yield the memories of an instruction file in its order, all in the project of its path. Comments are left out."""
    document, project = parse_document(note.text, parser), _find_project(note.path)
    template = new_memory(
        content="",
        project=project and project[:MAX_PROJECT_CHARS],
        type=_AGENT_FILE_TYPE,
        confidence=_CONFIDENCE,
        source=note.name[-MAX_NAME_CHARS:],
        at=note.modified_at,
    )
    names = {note.title.lower(), f"{note.title}.md".lower()}
    for section in document.sections:
        path = [heading.text for heading in section.path if heading.text and heading.text.lower() not in names]
        tag = _NON_WORD.sub("-", path[-1].lower()).strip("-_")[:MAX_TAG_CHARS] if path else ""
        for text in _iter_statements(document, section):
            for piece in split_text(text, _MAX_STATEMENT_CHARS):
                content = _with_headings(path, piece)
                # Without the file name, so that AGENTS.md and a copy named CLAUDE.md give the same memories.
                yield ImportedMemory(
                    memory=replace(template, content=content, tags=(tag,) if tag else ()),
                    identity=("agent file", project or "", content),
                )


def _find_project(path: Path) -> str | None:
    """Return the project of a file: the name of its repository's folder, or of its nearest folder that is not hidden."""
    folders = [folder for folder in path.resolve().parents if folder.name]
    repository = next((folder for folder in folders if (folder / ".git").exists()), None)
    if repository is not None:
        return repository.name
    return next((folder.name for folder in folders if not folder.name.startswith(".")), None)


def _iter_statements(document: MarkdownDocument, section: Section) -> Iterator[str]:
    """
    Yield the other text of the section in one piece, then each bullet.

    A line that ends in a colon is put before each bullet of the list that follows it.
    """
    prose = list[str]()
    bullets = list[str]()
    tokens = section.tokens
    for index, token in enumerate(tokens):
        if token.level or token.nesting < 0 or token.map is None or token.type == "hr":
            continue
        text = "\n".join(document.lines[token.map[0] : token.map[1]]).strip("\n")
        if token.type == "bullet_list_open":
            lead = prose.pop() if prose and prose[-1].endswith(":") else None
            bullets += [f"{lead} {item}" if lead else item for item in _iter_bullets(document, tokens[index:])]
        elif not (token.type == "html_block" and _COMMENT.fullmatch(text)):
            prose.append(text)
    if prose:
        yield "\n\n".join(prose)
    yield from bullets


def _iter_bullets(document: MarkdownDocument, tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the bullets of the list that *tokens* begin with, each with the lines indented under it."""
    for token in tokens[1:]:
        if token.type == "bullet_list_close" and token.level == 0:
            return
        if token.type == "list_item_open" and token.level == 1 and token.map:
            first, *rest = document.lines[token.map[0] : token.map[1]]
            text = "\n".join([_BULLET.sub("", first, count=1), textwrap.dedent("\n".join(rest))]).strip()
            if text:
                yield text


def _with_headings(path: Sequence[str], text: str) -> str:
    gap = "\n\n" if "\n" in text else " "
    return f"{' – '.join(path)}:{gap}{text}"[:MAX_CONTENT_CHARS] if path else text


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its level, from 1, and its text."""

    level: int
    text: str

    def __str__(self) -> str:
        return f"{'#' * self.level} {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """
    The lines from a heading, inclusive, to the next heading of any level.

    Attributes:
        ancestors: The headings above it, outermost first.
        heading: Its own heading; None for the text before the first heading.
        tokens: Its Markdown tokens without the heading.
    """

    ancestors: tuple[Heading, ...]
    heading: Heading | None
    start_line: int
    stop_line: int
    tokens: tuple[Token, ...]

    @property
    def path(self) -> tuple[Heading, ...]:
        """All its headings, its own last."""
        return self.ancestors if self.heading is None else (*self.ancestors, self.heading)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownDocument:
    """A Markdown text: its lines, its front matter as written (None if it has none), and its sections in order."""

    lines: Sequence[str]
    front_matter: str | None
    sections: Sequence[Section]

    def section_text(self, section: Section) -> str:
        """Return the text of a section, without empty lines around it."""
        return "\n".join(self.lines[section.start_line : section.stop_line]).strip("\n")


def build_parser() -> MarkdownIt:
    """Return a stateless parser for CommonMark with tables and front matter."""
    return MarkdownIt("commonmark").enable("table").use(front_matter_plugin)


def parse_document(text: str, parser: MarkdownIt) -> MarkdownDocument:
    """Return *text*, parsed into sections."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tokens = parser.parse(text)
    lines = text.split("\n")
    front, body_line = None, 0
    if tokens and tokens[0].type == "front_matter":
        front, body_line = tokens[0].content, (tokens[0].map or [0, 0])[1]
        tokens = tokens[1:]
    starts = [index for index, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0 and token.map]
    sections = list[Section]()
    first_stop = _start_line(tokens[starts[0]]) if starts else len(lines)
    preamble = tuple(tokens[: starts[0]] if starts else tokens)
    if preamble:
        sections.append(Section(ancestors=(), heading=None, start_line=body_line, stop_line=first_stop, tokens=preamble))
    above = list[Heading]()
    for start, next_start in zip(starts, [*starts[1:], None], strict=False):
        heading = Heading(int(tokens[start].tag[1:]), tokens[start + 1].content.replace("\n", " ").strip())
        above = [ancestor for ancestor in above if ancestor.level < heading.level]
        sections.append(
            Section(
                ancestors=tuple(above),
                heading=heading,
                start_line=_start_line(tokens[start]),
                stop_line=len(lines) if next_start is None else _start_line(tokens[next_start]),
                tokens=tuple(tokens[start + 3 : next_start]),
            )
        )
        above.append(heading)
    return MarkdownDocument(lines=lines, front_matter=front, sections=sections)


def split_document(document: MarkdownDocument, *, max_chars: int) -> list[str]:
    """
    Return the text in pieces of at most *max_chars* characters, split at headings into as few pieces as possible.

    A piece that begins under headings repeats them. A section that is too long by itself is split between paragraphs.
    """
    if not document.sections:
        return []
    document_text = "\n".join(document.lines[document.sections[0].start_line :]).strip("\n")
    if len(document_text) <= max_chars:
        return [document_text] if document_text.strip() else []
    parts, room = list[str](), 0
    for section in document.sections:
        text = document.section_text(section)
        if parts and len(text) + 2 <= room:
            parts[-1] += "\n\n" + text
        else:
            parts += split_section(document, section, max_chars=max_chars)
        room = max_chars - len(parts[-1]) if parts else 0
    return parts


def split_section(document: MarkdownDocument, section: Section, *, max_chars: int) -> list[str]:
    """Return a section with the headings above it, in pieces of at most *max_chars* characters; usually one."""
    above = "".join(f"{heading}\n" for heading in section.ancestors)[: max_chars // 2]
    return [above + piece for piece in split_text(document.section_text(section), max_chars - len(above))]


def split_text(text: str, max_chars: int) -> list[str]:
    """Split *text* into pieces of at most *max_chars* characters: between paragraphs, else lines, else words, else anywhere."""
    parts = list[str]()
    while len(text) > max_chars:
        position = next((at for gap in ("\n\n", "\n", " ") if (at := text.rfind(gap, max(1, max_chars // 4), max_chars)) > 0), max_chars)
        parts.append(text[:position].rstrip())
        text = text[position:].lstrip("\n")
    return [piece for piece in (*parts, text) if piece.strip()]


def _start_line(token: Token) -> int:
    return token.map[0] if token.map else 0
