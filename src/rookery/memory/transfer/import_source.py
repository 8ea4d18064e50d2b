"""What is asked to be read, and in which form."""

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
    Which notes are read.

    Attributes:
        folder: What their names are relative to; *file*: only this one of it.
        split_by: Whether a note is a memory, or each of its sections.
    """

    folder: Path
    file: Path | None = None
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """
    What is to be read.

    Attributes:
        path: A file or a folder; None: *standard_input*.
        split_by: Whether a note is a memory, or each of its sections.
        default_time: When something was made that does not say so.
    """

    path: Path | None
    standard_input: BinaryIO
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"
    default_time: datetime
