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
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rookery.kernel.errors import RookeryError
from rookery.memory.merging import Merge
from rookery.memory.metadata import to_json
from rookery.memory.models import (
    MAX_CONTENT_CHARS,
    MAX_NAME_CHARS,
    MAX_PROJECT_CHARS,
    MAX_TAG_CHARS,
    MAX_TAGS,
    Memory,
    MemoryScope,
    Tombstone,
)
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.front_matter import FrontMatter, load_front_matter, read_front_matter
from rookery.memory.transfer.items import (
    UTF_16_MARKS,
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
from rookery.memory.transfer.lenient import LenientReader, Warn, fit_memory
from rookery.memory.transfer.markdown_documents import (
    Heading,
    MarkdownDocument,
    Section,
    build_parser,
    parse_document,
    split_document,
    split_section,
    split_text,
)
from rookery.memory.transfer.sources import basic_memory, claude_code, mempalace
from rookery.memory.transfer.sources.basic_memory import NoteTimes
from rookery.memory.transfer.sources.note import ParsedNote, iter_front_tags, iter_hashtags

NOTE_SUFFIXES = (".md", ".markdown")
AGENT_FILE_NAMES = frozenset({"claude.md", "agents.md", "claude.local.md", "gemini.md", "copilot-instructions.md"})

_NOTE_TYPE, _AGENT_FILE_TYPE = "documentation", "convention"
_CONFIDENCE = 0.8
_MAX_STATEMENT_CHARS = MAX_CONTENT_CHARS - 2_000
"""Maximum length of a statement of an instruction file, with room for its headings."""

_MAX_NOTE_BYTES = 8 * 1024 * 1024
_MAX_TITLE_CHARS = 1_000
_MAX_SLUG_CHARS = 60
_READ_HIDDEN_FOLDERS = (".claude", ".github")
_NO_NAME_FOLDER = "none"
_ROOKERY_HEADER = "---\nrookery: 1\n"
_FRONT_MATTER_END = "\n---\n\n"
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
        timezone: The zone of times that have none; None if the caller named none.
        companion: The database of basic-memory, which has the times of its notes.
    """

    folder: Path
    file: Path | None = None
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"
    timezone: tzinfo | None = None
    companion: Path | None = None
    times: NoteTimes = field(default_factory=NoteTimes)


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
    paths = [selection.file] if selection.file else _select_notes(selection, progress)
    if not paths:
        raise field_error("folder", f"{selection.folder} has no notes (*.md) to import")
    if selection.companion is not None:
        selection = replace(selection, times=basic_memory.read_times(selection.companion, progress, selection.timezone))
    progress.total = len(paths)
    return _read_all(selection, paths, progress)


def _is_selected(selection: NoteSelection, path: Path) -> bool:
    return _is_agent_file(path) or (selection.import_format != "agents-md" and path.suffix.lower() in NOTE_SUFFIXES)


def _select_notes(selection: NoteSelection, progress: ReadProgress) -> list[Path]:
    """
    Return the notes of the folder, without the indexes that other programs keep beside their memories.

    Raises:
        ValidationFailed: The folder is an export from which memories cannot be restored.
    """
    paths = [path for path in _iter_files(selection.folder) if _is_selected(selection, path)]
    if selection.import_format in ("markdown", "agents-md"):
        return paths
    if selection.import_format == "auto" and mempalace.is_markdown_export(selection.folder):
        raise field_error("folder", mempalace.EXPORT_REFUSAL)
    if basic_memory.is_exported_folder(paths):
        progress.recognised = "an OKF export of basic-memory"
        paths = [path for path in paths if path.name.lower() not in basic_memory.GENERATED_NAMES]
    indexed_folders = {path.parent for path in paths if claude_code.has_mark(path) or claude_code.is_memory_folder(path.parent)}
    if selection.import_format == "claude-code":
        indexed_folders |= {path.parent for path in paths}
    return [path for path in paths if not (path.name.lower() == claude_code.INDEX_NAME and path.parent in indexed_folders)]


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
            memories = list(_iter_conventions(note, parser)) if is_for_agents else _parse_note(note, parser, selection, progress)
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
        content, modified_at = path.read_bytes(), datetime.fromtimestamp(status.st_mtime, tz=UTC)
    except (OSError, OverflowError, ValueError) as error:
        raise RookeryError(f"the file cannot be read: {error.strerror if isinstance(error, OSError) else error}") from error
    return _Note(path=path, name=name, title=_printable_name(path.stem), modified_at=modified_at, text=_decode(content))


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-16" if content.startswith(UTF_16_MARKS) else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise RookeryError(f"the file is not valid UTF-8 at byte {error.start}") from error


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


def _parse_note(note: _Note, parser: MarkdownIt, selection: NoteSelection, progress: ReadProgress) -> Sequence[ImportedMemory]:
    if note.text.startswith(_ROOKERY_HEADER):
        text, _, body = note.text.removeprefix("---\n").partition(_FRONT_MATTER_END)
        try:
            fields = load_front_matter(text) or dict[str, object]()
        except ValueError as error:
            raise field_error("front matter", str(error)) from error
        return [from_fields(FieldReader(fields), body.removesuffix("\n"))]
    document = parse_document(note.text, parser)
    front = FrontMatter() if document.front_matter is None else read_front_matter(document.front_matter)
    if front is None:
        # Text between two horizontal rules, not front matter.
        document, front = parse_document("\n" + note.text, parser), FrontMatter()
    for line, problem in front.problems:
        progress.warn(f"{note.name}, line {line}", problem)

    def warn(name: str, message: str) -> None:
        progress.warn(f"{note.name}, line {front.lines.get(name, 1)}", f"{name}: {message}")

    row = LenientReader(front.fields, warn, zone=selection.timezone or UTC)
    parsed = ParsedNote(
        name=note.name, title=note.title, path=note.path, modified_at=note.modified_at, document=document, row=row, warn=warn
    )
    kind = selection.import_format
    if kind == "auto" and mempalace.is_markdown_room(note.text):
        raise field_error("note", mempalace.EXPORT_REFUSAL)
    if kind == "claude-code" or (kind == "auto" and claude_code.is_memory(parsed)):
        progress.recognised = progress.recognised or "the memory folder of Claude Code"
        return [claude_code.read(parsed)]
    if kind == "basic-memory" or (kind == "auto" and basic_memory.is_note(parsed)):
        progress.recognised = progress.recognised or "notes of basic-memory"
        memories = basic_memory.read(parsed, selection.times)
        if memories:
            return memories
    template = _build_template(note, document, row, warn)
    return [
        ImportedMemory(memory=replace(template, content=text), identity=("note", note.name, text))
        for text in _split_texts(note, document, front.fields, selection.split_by)
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


def _build_template(note: _Note, document: MarkdownDocument, row: LenientReader, warn: Warn) -> Memory:
    """Return a memory with the fields that all memories of the note share, without content."""
    created_at = _first_moment(row, "created_at", "created", "date") or note.modified_at
    tags = (*iter_front_tags(row), *(tag for section in document.sections for tag in iter_hashtags(section.tokens)))
    memory = new_memory(
        content="",
        at=max(_first_moment(row, "updated_at", "updated", "modified") or created_at, created_at),
        created_at=created_at,
        org=row.maybe_text("org"),
        project=row.maybe_text("project"),
        agent_id=row.maybe_text("agent_id") or row.maybe_text("agent"),
        session_id=row.maybe_text("session_id"),
        memory_scope=row.maybe_scope("memory_scope") or row.maybe_scope("scope") or MemoryScope.PROJECT,
        type=row.maybe_text("type") or _NOTE_TYPE,
        tags=tuple(dict.fromkeys(tag.lower() for tag in tags if 0 < len(tag) <= MAX_TAG_CHARS))[:MAX_TAGS],
        confidence=_CONFIDENCE if (confidence := row.maybe_number("confidence")) is None else confidence,
        source=row.maybe_text("source") or note.name[-MAX_NAME_CHARS:],
        metadata=row.maybe_object("metadata"),
    )
    return fit_memory(memory, warn, default_type=_NOTE_TYPE)


def _first_moment(row: LenientReader, *names: str) -> datetime | None:
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
