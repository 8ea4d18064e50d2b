"""Notes as an import and export format. Their libraries take a sixth of a second to import, so they are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rookery.memory.transfer.exporting import ExportDestination
from rookery.memory.transfer.import_source import NoteSelection
from rookery.memory.transfer.items import ImportItem
from rookery.memory.transfer.line_reader import ReadProgress


def read_notes(selection: NoteSelection, progress: ReadProgress) -> Iterator[ImportItem]:
    """
    Return an iterator over the memories of the notes.

    Raises:
        ValidationFailed: No note was found.
    """
    from rookery.memory.transfer import note_files

    return note_files.read_items(selection, progress)


def create_note_folder(path: Path) -> ExportDestination:
    """Return an export destination that writes notes into a new folder."""
    from rookery.memory.transfer import note_files

    return note_files.NoteFolder(path)
