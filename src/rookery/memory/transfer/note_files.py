"""Reading of note files below a folder, and writing of notes into a folder."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer import agent_files, notes
from rookery.memory.transfer.field_reader import field_error
from rookery.memory.transfer.import_source import NOTE_SUFFIXES, NoteSelection
from rookery.memory.transfer.items import ImportItem, RejectedItem
from rookery.memory.transfer.line_reader import ReadProgress

_MAX_NOTE_BYTES = 8 * 1024 * 1024
_READ_HIDDEN_FOLDERS = (".claude", ".github")
_NON_SLUG = re.compile(r"[^a-z0-9]+")
_MAX_SLUG_CHARS = 60
_NO_NAME_FOLDER = "none"


def read_items(selection: NoteSelection, progress: ReadProgress) -> Iterator[ImportItem]:
    """
    Return an iterator over the memories of the notes, file by file.

    Raises:
        ValidationFailed: No note was found.
    """
    paths = (
        [selection.file]
        if selection.file is not None
        else [path for path in _iter_files(selection.folder) if _is_selected(selection, path)]
    )
    if not paths:
        raise field_error("folder", f"{selection.folder} has no notes (*.md) to import")
    progress.total = len(paths)
    return _read_all(selection, paths, progress)


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
            file.write(notes.render_note(record).encode())

    def write_tombstone(self, tombstone: Tombstone) -> None:
        """Write nothing: a tombstone has no content."""

    def write_merge(self, merge: Merge) -> None:
        """Write nothing: the merged memory names its primary."""

    def write_end(self) -> None:
        """Write nothing."""


def _is_selected(selection: NoteSelection, path: Path) -> bool:
    return _is_agent_file(path) or (selection.import_format != "agents-md" and path.suffix.lower() in NOTE_SUFFIXES)


def _is_agent_file(path: Path) -> bool:
    return path.name.lower() in agent_files.AGENT_FILE_NAMES


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
    agent_files_reader, note_reader = agent_files.AgentFileReader(), notes.NoteReader(split_by=selection.split_by)
    for path in paths:
        name = _printable_name(path.relative_to(selection.folder).as_posix())
        outcome = _read_file(path)
        if isinstance(outcome, RejectedItem):
            yield ImportItem(location=name, content=outcome)
        else:
            text, at = outcome
            note = notes.Note(name=name, title=_printable_name(path.stem), modified_at=at, text=text)
            is_for_agents = selection.import_format == "agents-md" or (selection.import_format == "auto" and _is_agent_file(path))
            yield from (
                agent_files_reader.iter_items(note, project=agent_files.find_project(path))
                if is_for_agents
                else note_reader.iter_items(note)
            )
        progress.done += 1


def _printable_name(name: str) -> str:
    """Return a file name as valid text; undecodable bytes are replaced."""
    return os.fsencode(name).decode(errors="replace")


def _read_file(path: Path) -> tuple[str, datetime] | RejectedItem:
    try:
        status = path.stat()
        if status.st_size > _MAX_NOTE_BYTES:
            return RejectedItem(reason=f"the file has more than {_MAX_NOTE_BYTES // (1024 * 1024)} MiB, the maximum of a note")
        return path.read_bytes().decode("utf-8-sig"), datetime.fromtimestamp(status.st_mtime, tz=UTC)
    except UnicodeDecodeError as error:
        return RejectedItem(reason=f"the file is not valid UTF-8 at byte {error.start}")
    except (OSError, OverflowError, ValueError) as error:
        return RejectedItem(reason=f"the file cannot be read: {error.strerror if isinstance(error, OSError) else error}")


def _slug(text: str) -> str:
    ascii_text = unicodedata.normalize("NFKD", text[: 4 * _MAX_SLUG_CHARS]).encode("ascii", "ignore").decode().lower()
    return _NON_SLUG.sub("-", ascii_text).strip("-")[:_MAX_SLUG_CHARS].strip("-")
