"""What is asked to be read, and in which form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Literal

Format = Literal["auto", "jsonl", "markdown", "mem0", "agents-md"]
By = Literal["note", "section"]

NOTES = (".md", ".markdown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Which notes are read.

    Attributes:
        folder: What their names are relative to; *file*: only this one of it.
        by: Whether a note is a memory, or each of its sections.
    """

    folder: Path
    file: Path | None = None
    form: Format = "auto"
    by: By = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    What is to be read.

    Attributes:
        path: A file or a folder; None: *standard_input*.
        by: Whether a note is a memory, or each of its sections.
        at: When something was made that does not say so.
    """

    path: Path | None
    standard_input: BinaryIO
    form: Format = "auto"
    by: By = "note"
    at: datetime
