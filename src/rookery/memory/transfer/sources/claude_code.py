"""
The memory folder of Claude Code: `~/.claude/projects/<folder>/memory`, one note for each memory, and an index, which is left out.

The folder's name cannot be turned into a path, because each character that is no letter or digit is a dash. The session files beside it
name the working directory, whose last part is the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from rookery.memory.transfer.items import ImportedMemory
from rookery.memory.transfer.lenient import LenientReader, require_text
from rookery.memory.transfer.sources.note import ParsedNote, iter_front_tags, iter_hashtags
from rookery.memory.transfer.sources.source import ForeignMemory, new_foreign_memory, to_imported, to_mapping, with_id

NAME = "claude-code"
INDEX_NAME = "memory.md"

_DEFAULT_TYPE = "documentation"
_OWN_FIELDS = frozenset({"node_type", "type", "modified"})
_LINK = re.compile(r"\[\[([^\[\]|#]+)")
_HEAD_BYTES = 4096
_MAX_SESSION_FILES = 5
_MAX_SESSION_LINES = 50
_MAX_SESSION_LINE_BYTES = 64 * 1024


def is_memory(note: ParsedNote) -> bool:
    """Return whether a note is a memory of Claude Code: by its front matter, or by its folder."""
    return to_mapping(note.row.value("metadata")).get("node_type") == "memory" or is_memory_folder(note.path.parent)


def is_memory_folder(folder: Path) -> bool:
    """Return whether a folder is one in which Claude Code keeps memories."""
    parts = folder.absolute().parts[-4:]
    return len(parts) == 4 and parts[0] == ".claude" and parts[1] == "projects" and parts[3] == "memory"


def has_mark(path: Path) -> bool:
    """Return whether a file begins with the front matter that Claude Code writes."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(b"---") and b"\n  node_type: memory" in head


def read(note: ParsedNote) -> ImportedMemory:
    """
    Return the memory of a note.

    Raises:
        ValidationFailed: The note has no text.
    """
    row = note.row
    metadata = row.maybe_object("metadata")
    fields = LenientReader(metadata, note.warn)
    name, description, body = row.name("name") or note.title, row.name("description"), note.body
    content = body if description is None or description in body else f"{description}\n\n{body}".strip()
    modified_at = fields.maybe_moment("modified") or note.modified_at
    links = list(dict.fromkeys(link.strip() for link in _LINK.findall(body)))
    others = {key: value for key, value in metadata.items() if key not in _OWN_FIELDS}
    hashtags = [tag for section in note.document.sections for tag in iter_hashtags(section.tokens)]
    folder = note.path.parent
    memory = new_foreign_memory(
        content=require_text(content, "content"),
        project=_find_project(note) if is_memory_folder(folder) else None,
        type=fields.name("type") or row.name("type") or _DEFAULT_TYPE,
        tags=(*iter_front_tags(row), *hashtags),
        metadata=with_id({**others, **({"links": links} if links else {})}, "claude_code_id", name),
        source=NAME,
        at=modified_at,
    )
    # The folder is part of the identity, because two projects may have memories of the same name.
    folder_name = folder.parent.name if is_memory_folder(folder) else ""
    return to_imported(ForeignMemory(memory=memory, default_type=_DEFAULT_TYPE, identity=(folder_name, name)), NAME, note.warn)


def _find_project(note: ParsedNote) -> str | None:
    """Return the last part of the working directory that the session files of the folder name."""
    for path in sorted(note.path.parent.parent.glob("*.jsonl"))[:_MAX_SESSION_FILES]:
        if path.is_symlink() or not path.is_file():
            continue
        for line in _iter_first_lines(path):
            try:
                value: object = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            folder = to_mapping(value).get("cwd")
            if isinstance(folder, str) and folder.strip("/\\"):
                return re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    note.warn("project", "is unknown, because no session file names the working directory; set it with --project")
    return None


def _iter_first_lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for _ in range(_MAX_SESSION_LINES):
            line = file.readline(_MAX_SESSION_LINE_BYTES)
            if not line:
                return
            yield line
