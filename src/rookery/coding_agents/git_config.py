"""
Files of Git's configuration: sections, included files and replaced beginnings of URLs, as git-config(1) of Git 2.53 describes them.

Git itself is not started. Of conditional includes, those for a folder (`gitdir`) are followed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_MAX_FILE_BYTES = 256 * 1024
_MAX_INCLUDE_DEPTH = 5

_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_ENTRY = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "b": "\b"}


class GitEntry(NamedTuple):
    """A line of a configuration. The section and the name are in lower case, the subsection is as it is written."""

    section: str
    subsection: str
    name: str
    value: str


def read_git_config(path: Path, *, git_dir: Path) -> list[GitEntry]:
    """
    Return the entries of the file *path* and of the files that it includes, in order. A file that is not there has none.

    Args:
        git_dir: The Git directory that conditional includes are compared with.

    Raises:
        OSError: The file cannot be read.
    """
    return list(_read_entries(path, git_dir, _MAX_INCLUDE_DEPTH)) if path.exists() else []


def replace_url(url: str, entries: Sequence[GitEntry]) -> str:
    """Return *url* with its beginning replaced as `url.BASE.insteadOf` says. The longest beginning counts."""
    matches = [
        entry for entry in entries if entry[0] == "url" and entry.name == "insteadof" and entry.value and url.startswith(entry.value)
    ]
    if not matches:
        return url
    longest = max(matches, key=lambda entry: len(entry.value))
    return longest.subsection + url[len(longest.value) :]


def read_text(path: Path, max_bytes: int = _MAX_FILE_BYTES) -> str:
    """
    Return the beginning of a text file.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return file.read(max_bytes).decode("utf-8-sig", errors="replace")  # editors of Windows write a byte order mark


def _read_entries(path: Path, git_dir: Path, depth: int) -> Iterator[GitEntry]:
    section, subsection = "", ""
    for line in _join_lines(read_text(path)):
        heading = _SECTION.match(line)
        if heading is not None:
            section, subsection = heading[1].lower(), _ESCAPE.sub(r"\1", heading[2] or "")
        elif line.lstrip().startswith("["):
            section, subsection = "", ""
            continue
        pair = _ENTRY.match(line, 0 if heading is None else heading.end())
        if pair is None or not section:
            continue
        entry = GitEntry(section, subsection, pair[1].lower(), _parse_value(pair[2] or ""))
        yield entry
        if (
            entry.name == "path"
            and depth
            and (section == "include" or (section == "includeif" and _is_included(subsection, path, git_dir)))
        ):
            included = _resolve(entry.value, path)
            if included is not None and included.is_file():
                yield from _read_entries(included, git_dir, depth - 1)


def _join_lines(text: str) -> Iterator[str]:
    """Yield the lines of *text*; one that ends in a backslash goes on in the next."""
    joined = ""
    for line in text.splitlines():
        if line.endswith("\\") and (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _parse_value(text: str) -> str:
    """Return a value without its comment, quotes and escapes."""
    parts, is_quoted, index = list[str](), False, 0
    length = 0
    while index < len(text):
        letter = text[index]
        if letter == "\\" and index + 1 < len(text):
            index += 1
            parts.append(_ESCAPED.get(text[index], text[index]))
            length = len(parts)
        elif letter == '"':
            is_quoted = not is_quoted
            length = len(parts)
        elif letter in "#;" and not is_quoted:
            break
        else:
            parts.append(letter)
            if is_quoted or not letter.isspace():
                length = len(parts)
        index += 1
    return "".join(parts[:length])


def _is_included(condition: str, path: Path, git_dir: Path) -> bool:
    kind, _, pattern = condition.partition(":")
    if kind.lower() not in {"gitdir", "gitdir/i"} or not pattern:
        return False
    resolved = _resolve(pattern, path) if pattern.startswith(("~/", "./")) else pattern
    if resolved is None:
        return False
    text = str(resolved) + ("/" if pattern.endswith("/") and isinstance(resolved, Path) else "")
    text = text if text.startswith("/") or isinstance(resolved, Path) else f"**/{text}"
    text = f"{text}**" if text.endswith("/") else text
    folder = str(git_dir)
    if kind.lower() == "gitdir/i":
        text, folder = text.lower(), folder.lower()
    return fnmatch.fnmatchcase(folder, text.replace("**", "*"))


def _resolve(text: str, base: Path) -> Path | None:
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # no home
        return None
    return path if path.is_absolute() else base.parent / path
