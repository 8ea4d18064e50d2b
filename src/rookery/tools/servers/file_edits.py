"""Change the file of servers, keeping all that is not changed: whoever reads it meanwhile finds the old or the new, whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from rookery.kernel.config_files import read_config_file
from rookery.tools.models import JsonObject
from rookery.tools.servers.servers_file import InvalidServersFile

_NEW_FILE_MODE = 0o600
"""Of a new file: entries may have keys in them."""


def read_entries(path: Path) -> JsonObject:
    """
    Return the entries of the file by id, as they are written; none if there is no file.

    Raises:
        FileBroken: It cannot be read, or is not of the right form.
    """
    return _get_entries(_read(path))


def edit_entries(path: Path, change: Callable[[JsonObject], None]) -> None:
    """
    Change the entries of the file at *path*, which is made if there is none; two who do so at once wait for each other.

    Raises:
        FileBroken: It cannot be read or written, or is not of the right form: it is left as it is.
    """
    real = Path(os.path.realpath(path))  # a link stays one
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
        raise InvalidServersFile(f"{path} is not valid JSON, so it is left as it is: {error}") from error
    except RecursionError as error:
        raise InvalidServersFile(f"{path} is nested too deeply, so it is left as it is.") from error
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
    new.unlink(missing_ok=True)  # of somebody who was killed meanwhile: the lock is ours
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
