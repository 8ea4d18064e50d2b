"""The options of an import: its source, format and notes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal

ImportFormat = Literal["auto", "jsonl", "markdown", "mem0", "agents-md"]
NoteSplit = Literal["note", "section"]

NOTE_SUFFIXES = (".md", ".markdown")


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
class ImportSource:
    """
    The source of an import.

    Attributes:
        path: A file or a folder; None for *standard_input*.
        split_by: One memory per note, or one per section.
        default_time: The creation time of memories that have none.
    """

    path: Path | None
    standard_input: BinaryIO
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"
    default_time: datetime
