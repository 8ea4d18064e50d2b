"""
Reading and replacing the files of clients: byte-exact, atomic, with a backup. No other module here writes files.

For a check, settings and state are read; a file that does not exist counts as empty.
"""

from __future__ import annotations

import codecs
import contextlib
import difflib
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rookery.connect.errors import ClientFileBroken, UneditableText
from rookery.connect.jsonc import parse_jsonc
from rookery.connect.toml_edits import parse_toml

BACKUP_SUFFIX = ".rookery-backup"
"""The end of the name of a backup, which has the content before the last run that changed the file."""

_LEFTOVER_AGE_S = 60.0
"""The age from which a temporary file counts as that of a run that was killed."""

_SECRET = re.compile(r'(?i)(Bearer )(?!YOUR_KEY)[^\s"$]+|\b((?:sk_(?:live|test)|ak)_)[A-Za-z0-9]{32}\b')
"""A key in a line of a diff."""


@dataclass(frozen=True, slots=True)
class FileEdit:
    """
    A change of one file.

    Attributes:
        path: The file; a symbolic link is followed.
        before: Its content. None: it does not exist.
        after: Its new content. None: it is deleted.
        is_secret: The new content has a key, so a new file can be read by its owner only.
        is_leak: The content before has a key that does not belong into the file. The backup has `***` in its place.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    is_secret: bool = False
    is_leak: bool = False

    @property
    def is_change(self) -> bool:
        """True if the contents differ."""
        return self.before != self.after


def read_file(path: Path) -> bytes | None:
    """
    Return the content of the file at *path*, or None if it does not exist.

    Raises:
        ClientFileBroken: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClientFileBroken(f"{path} cannot be read: {error.strerror}") from error


def decode(path: Path, content: bytes | None) -> str:
    """
    Return *content* as a text without a byte order mark; empty for None. `encode` puts the mark back.

    Raises:
        ClientFileBroken: The content is not UTF-8.
    """
    if content is None:
        return ""
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ClientFileBroken(f"{path} is not UTF-8 (byte {error.start}), so it stays as it is.") from error


def encode(text: str, before: bytes | None) -> bytes:
    """Return *text* as UTF-8, with the byte order mark that *before* has."""
    mark = codecs.BOM_UTF8 if before is not None and before.startswith(codecs.BOM_UTF8) else b""
    return mark + text.encode("utf-8")


def write_edits(edits: Iterable[FileEdit]) -> list[Path]:
    """
    Write all changes and return the backups. Each file is replaced atomically, with the mode and the owner that it had.

    Raises:
        ClientFileBroken: A file cannot be written, or it has changed since it was read. Files before it are written.
    """
    backups = list[Path]()
    for edit in edits:
        if edit.is_change:
            real = Path(os.path.realpath(edit.path))
            if read_file(real) != edit.before:
                raise ClientFileBroken(f"{edit.path} has changed meanwhile, so it stays as it is. Run the command again.")
            try:
                backups += _write(real, edit)
            except OSError as error:
                raise ClientFileBroken(f"{edit.path} cannot be written: {error.strerror}") from error
    return backups


def render_diff(edits: Iterable[FileEdit]) -> str:
    """Return the changes as a unified diff. Keys in it are replaced by `***`."""
    return "".join(_render_file_diff(edit) for edit in edits if edit.is_change)


def is_readable_by_others(path: Path) -> bool:
    """Return True if other users of this machine may read the file."""
    return path.exists() and bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))


def _write(path: Path, edit: FileEdit) -> list[Path]:
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    before = None if edit.before is None else path.stat()
    backups = list[Path]()
    if edit.before is not None and before is not None:
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        _replace(backup, _hide_keys(edit.before).encode() if edit.is_leak else edit.before, before, mode=0o600)
        backups.append(backup)
    if edit.after is None:
        path.unlink()
    else:
        _replace(path, edit.after, before, mode=0o600 if edit.is_secret else 0o666)
    return backups


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of earlier runs that were killed. They may contain a key."""
    for name in (path.name, path.name + BACKUP_SUFFIX):
        pattern = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{12}}")
        for file in path.parent.iterdir():
            if pattern.fullmatch(file.name) and time.time() - file.stat().st_mtime > _LEFTOVER_AGE_S:
                file.unlink(missing_ok=True)


def _replace(path: Path, content: bytes, like: os.stat_result | None, *, mode: int) -> None:
    """Replace the file at *path*. It gets the mode and owner of *like*, or else *mode* under the umask."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode if like is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if like is not None:
                with contextlib.suppress(OSError):  # only root may give a file away
                    os.fchown(file.fileno(), like.st_uid, like.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _hide_keys(content: bytes) -> str:
    return _SECRET.sub(r"\1\2***", content.decode("utf-8", "replace"))


def _render_file_diff(edit: FileEdit) -> str:
    texts = [_hide_keys(content or b"") for content in (edit.before, edit.after)]
    before, after = (text.splitlines(keepends=True) for text in texts)
    names = ["/dev/null" if content is None else str(edit.path) for content in (edit.before, edit.after)]
    lines = difflib.unified_diff(before, after, fromfile=names[0], tofile=names[1])
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def read_json(file: Path) -> dict[str, object]:
    """
    Return the object of a JSON file with comments.

    Raises:
        ClientFileBroken: The file cannot be read, or is not JSON.
    """
    try:
        root = parse_jsonc(decode(file, read_file(file)))
    except UneditableText as error:
        raise ClientFileBroken(f"{file}: {error}.") from error
    return get_object(None if root is None else root.to_value())


def read_toml(file: Path) -> dict[str, object]:
    """
    Return the content of a TOML file.

    Raises:
        ClientFileBroken: The file cannot be read, or is not TOML.
    """
    try:
        return parse_toml(decode(file, read_file(file)))
    except UneditableText as error:
        raise ClientFileBroken(f"{file}: {error}.") from error


def get_object(value: object) -> dict[str, object]:
    """Return *value* if it is an object, or an empty one."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def get_texts(settings: Mapping[str, object], name: str) -> list[str]:
    value = settings.get(name)
    return [item for item in cast("list[object]", value) if isinstance(item, str)] if isinstance(value, list) else []
