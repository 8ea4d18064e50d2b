"""The forms whose libraries are slow to load, a sixth of a second: they are loaded when notes are read or written, never before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rookery.memory.transfer.asked import Wanted
from rookery.memory.transfer.exporting import Target
from rookery.memory.transfer.lines import Steps
from rookery.memory.transfer.parcels import Parcel


def notes(wanted: Wanted, steps: Steps) -> Iterator[Parcel]:
    """
    Return what the notes hold.

    Raises:
        ValidationFailed: There is none.
    """
    from rookery.memory.transfer import note_files

    return note_files.read(wanted, steps)


def folder(path: Path) -> Target:
    """Return a new folder of notes to be written."""
    from rookery.memory.transfer import note_files

    return note_files.Folder(path)
