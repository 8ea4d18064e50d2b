"""Notes as files: found and read below a folder, written into one."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import Kept
from rookery.memory.transfer import agent_files, notes
from rookery.memory.transfer.asked import NOTES, Wanted
from rookery.memory.transfer.fields import wrong
from rookery.memory.transfer.lines import Steps
from rookery.memory.transfer.parcels import Parcel, Refused

_MAX_NOTE = 8 * 1024 * 1024
_SEEN_HIDDEN = (".claude", ".github")
_NO_NAME = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 60
_NOWHERE = "none"


def read(wanted: Wanted, steps: Steps) -> Iterator[Parcel]:
    """
    Return what the notes hold, file by file.

    Raises:
        ValidationFailed: There is none.
    """
    found = [wanted.file] if wanted.file is not None else [path for path in _walked(wanted.folder) if _is_wanted(wanted, path)]
    if not found:
        raise wrong("folder", f"{wanted.folder} has no notes (*.md) to import")
    steps.total = len(found)
    return _read_all(wanted, found, steps)


class Folder:
    """
    A `Target` that is a new folder of notes, `org/project/what-it-begins-with-<id>.md`; only memories are written.

    No name of a memory's becomes part of a path but as small letters, digits and hyphens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def begin(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def memory(self, kept: Kept) -> None:
        memory = kept.memory
        folder = self._folder / (_slug(memory.org or "") or _NOWHERE) / (_slug(memory.project or "") or _NOWHERE)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        start = _slug(memory.content.strip().split("\n", 1)[0])
        path = folder / f"{start + '-' if start else ''}{memory.id}.md"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(notes.written(kept).encode())

    def tombstone(self, grave: Tombstone) -> None:
        """Write nothing: there is nothing of it to read."""

    def merge(self, merge: Merge) -> None:
        """Write nothing: the merged memory says into which it was."""

    def end(self) -> None:
        """Write nothing."""


def _is_wanted(wanted: Wanted, path: Path) -> bool:
    return _is_for_agents(path) or (wanted.form != "agents-md" and path.suffix.lower() in NOTES)


def _is_for_agents(path: Path) -> bool:
    return path.name.lower() in agent_files.NAMES


def _walked(folder: Path) -> Iterator[Path]:
    """
    Return the files below *folder* in their order; hidden folders and links are left out: a link leads to what is elsewhere.

    So are pipes and the like: whoever opens one may wait for ever.
    """
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") or name in _SEEN_HIDDEN)
        for name in sorted(files):
            path = Path(here, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _read_all(wanted: Wanted, paths: Sequence[Path], steps: Steps) -> Iterator[Parcel]:
    agents, people = agent_files.AgentFiles(), notes.Notes(by=wanted.by)
    for path in paths:
        name = _readable(path.relative_to(wanted.folder).as_posix())
        found = _found(path)
        if isinstance(found, Refused):
            yield Parcel(where=name, holds=found)
        else:
            text, at = found
            note = notes.Note(name=name, title=_readable(path.stem), at=at, text=text)
            is_for_agents = wanted.form == "agents-md" or (wanted.form == "auto" and _is_for_agents(path))
            yield from agents.parcels(note, project=agent_files.project_of(path)) if is_for_agents else people.parcels(note)
        steps.done += 1


def _readable(name: str) -> str:
    """Return a file's name as text, also where its bytes are none: else it could be neither stored nor shown."""
    return os.fsencode(name).decode(errors="replace")


def _found(path: Path) -> tuple[str, datetime] | Refused:
    try:
        status = path.stat()
        if status.st_size > _MAX_NOTE:
            return Refused(why=f"has more than {_MAX_NOTE // (1024 * 1024)} MiB, and is no note")
        return path.read_bytes().decode("utf-8-sig"), datetime.fromtimestamp(status.st_mtime, tz=UTC)
    except UnicodeDecodeError as error:
        return Refused(why=f"is not UTF-8 from byte {error.start} on")
    except (OSError, OverflowError, ValueError) as error:
        return Refused(why=f"cannot be read: {error.strerror if isinstance(error, OSError) else error}")


def _slug(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text[: 4 * _LONGEST_NAME]).encode("ascii", "ignore").decode().lower()
    return _NO_NAME.sub("-", plain).strip("-")[:_LONGEST_NAME].strip("-")
