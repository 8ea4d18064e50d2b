"""The forms whose libraries are slow to load, a sixth of a second: they are loaded when notes are read or written, never before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rookery.memory.transfer.exporting import ExportDestination
from rookery.memory.transfer.import_source import NoteSelection
from rookery.memory.transfer.items import ImportItem
from rookery.memory.transfer.line_reader import ReadProgress


def read_notes(selection: NoteSelection, progress: ReadProgress) -> Iterator[ImportItem]:
    """
    Return what the notes hold.

    Raises:
        ValidationFailed: There is none.
    """
    from rookery.memory.transfer import note_files

    return note_files.read_items(selection, progress)


def create_note_folder(path: Path) -> ExportDestination:
    """Return a new folder of notes to be written."""
    from rookery.memory.transfer import note_files

    return note_files.NoteFolder(path)
