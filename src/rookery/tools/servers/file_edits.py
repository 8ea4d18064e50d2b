"""Edits of the servers file that keep everything else. Readers see either the old or the new file, never a part of it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from rookery.kernel.data_folder import read_config_file
from rookery.tools.models import JsonObject
from rookery.tools.servers.servers_file import InvalidServersFile

_NEW_FILE_MODE = 0o600
"""Mode of a new file. It is private because entries may contain keys."""


def read_entries(path: Path) -> JsonObject:
    """
    Return the entries of the file by id, as written; empty if the file does not exist.

    Raises:
        InvalidServersFile: The file cannot be read or has an invalid form.
    """
    return _get_entries(_read(path))


def edit_entries(path: Path, change: Callable[[JsonObject], None]) -> None:
    """
    Change the entries of the file at *path*, which is created if it does not exist. Concurrent edits wait for each other.

    Raises:
        InvalidServersFile: The file cannot be read or written, or has an invalid form. It is left unchanged.
    """
    real = Path(os.path.realpath(path))  # keep a symbolic link
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        with _lock_folder(real.parent):
            document = _read(real)
            entries = _get_entries(document)
            change(entries)
            if "mcpServers" not in document and "servers" not in document:
                document["mcpServers"] = entries
            _replace_file(real, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise InvalidServersFile(f"{path} cannot be written: {error.strerror}") from error


def _read(path: Path) -> JsonObject:
    try:
        text = read_config_file(path).decode("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidServersFile(f"{path} cannot be read: {error}") from error
    try:
        document: object = json.loads(text) if text.strip() else {}
    except ValueError as error:
        raise InvalidServersFile(f"{path} is not valid JSON and was left unchanged: {error}") from error
    except RecursionError as error:
        raise InvalidServersFile(f"{path} is nested too deeply and was left unchanged.") from error
    if not isinstance(document, dict):
        raise InvalidServersFile(f'{path} must be an object {{"mcpServers": {{…}}}}.')
    return cast("JsonObject", document)


def _get_entries(document: JsonObject) -> JsonObject:
    entries = document.get("mcpServers", document.get("servers", {}))
    if not isinstance(entries, dict):
        raise InvalidServersFile('"mcpServers" must be an object of servers by id.')
    return cast("JsonObject", entries)


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace_file(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else _NEW_FILE_MODE
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # left by a process that was killed while it held the lock
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(descriptor, mode)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
