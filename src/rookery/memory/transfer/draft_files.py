"""One file of memories as bodies of `remember`, for a caller whose rights are checked memory by memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rookery.kernel.clock import utc_now
from rookery.kernel.errors import RookeryError
from rookery.memory.models import Memory
from rookery.memory.transfer.formats import ImportSource, open_source
from rookery.memory.transfer.items import ImportedMemory, RejectedItem

_FIELDS = ("content", "type", "org", "project", "agent_id", "session_id", "confidence", "source")
MAX_DRAFTS = 5_000
"""Maximum items that are read of one file, so that a request does not compute for minutes."""

_MAX_NOTE_CHARS = 200_000
"""Maximum characters of a note, whose Markdown is parsed as a whole."""

_NOTE_SUFFIXES = (".md", ".markdown")
_MAX_NAME_CHARS = 100
_DEFAULT_NAME = "memories.json"


@dataclass(frozen=True, slots=True)
class FileDrafts:
    """
    The memories of a file, and what could not be read.

    Attributes:
        recognised: The program that wrote the file; None if it is not known.
        drafts: The place of each memory in the file, and its body.
        rejected: The place of each item that is no memory to store, and the reason.
        warnings: The values that could not be used.
    """

    recognised: str | None = None
    drafts: list[tuple[str, dict[str, object]]] = field(default_factory=list[tuple[str, dict[str, object]]])
    rejected: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    warnings: list[str] = field(default_factory=list[str])


def read_draft_file(name: str, text: str) -> FileDrafts:
    """Return the memories of a text that `rookery import` would read from a file of this name."""
    file_name = _build_file_name(name)
    if file_name.lower().endswith(_NOTE_SUFFIXES) and len(text) > _MAX_NOTE_CHARS:
        reason = f"the note has more than {_MAX_NOTE_CHARS:,} characters; divide it, or use `rookery import`"
        return FileDrafts(rejected=[(file_name, reason)])
    with TemporaryDirectory(prefix="rookery-import-") as folder:
        path = Path(folder) / file_name
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            return _read(path)
        except RookeryError as error:
            return FileDrafts(rejected=[(path.name, error.message.removeprefix("file: ").replace(str(path), path.name))])


def _build_file_name(name: str) -> str:
    """Return a name that lies in the folder. The reader chooses the format by its ending, and by names such as CLAUDE.md."""
    safe = re.sub(r"[^\w.-]", "_", name.replace("\\", "/").rpartition("/")[2])[-_MAX_NAME_CHARS:].lstrip(".")
    return safe or _DEFAULT_NAME


def _read(path: Path) -> FileDrafts:
    source = ImportSource(path=path, standard_input=BytesIO(), default_time=utc_now())
    with open_source(source) as reader:
        file = FileDrafts()
        for number, item in enumerate(reader, 1):
            if number > MAX_DRAFTS:
                file.rejected.append((item.location, f"only the first {MAX_DRAFTS:,} entries are read; `rookery import` reads all"))
                break
            match item.content:
                case RejectedItem():
                    file.rejected.append((item.location, item.content.reason))
                case ImportedMemory() if item.content.memory.archived_at is not None:
                    file.rejected.append((item.location, "it is archived; `rookery import` stores archived memories"))
                case ImportedMemory():
                    # The project of an instruction file is the name of its folder, which is not known here.
                    memory = item.content.memory
                    file.drafts.append((item.location, dict(_to_body(memory, has_project=memory.project != path.parent.name))))
                case _:
                    pass  # the history of a memory
        return FileDrafts(reader.progress.recognised, file.drafts, file.rejected, list(reader.progress.warnings))


def _to_body(memory: Memory, *, has_project: bool) -> Mapping[str, object]:
    """Return the body that stores a memory once, however often the file is imported."""
    values = {name: getattr(memory, name) for name in _FIELDS if has_project or name != "project"}
    values |= {"memory_scope": memory.memory_scope.value, "tags": list(memory.tags) or None, "metadata": dict(memory.metadata) or None}
    return {**{name: value for name, value in values.items() if value is not None}, "dedupe": True}
