"""The files of a data folder that a backup contains, and the reasons for leaving out others. Only lists file names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.data_folder import CALL_LOCKS_FOLDER, JOURNAL_FOLDER, RESTORE_FOLDER, SERVER_FILE, SETTINGS_FILE, TOOL_HEALTH_FILE

RECORDS_FILE = "records.db"

DATABASE_FILES = (RECORDS_FILE, "texts.db", "vectors.db")
"""
The SQLite files, in the order in which they are locked. The indexes are derived, but embedding a million texts again takes hours.
"""

PLAIN_FILES = ("servers.json",)
"""Files that are only ever replaced as a whole."""

SECRET_KEY_FILE = "secret.key"  # noqa: S105 - the name of its file
"""Saved only on request: together with the backup, it decrypts the encrypted values."""

_MOVE_FILES = ("move-texts.db", "move-vectors.db")
EXCLUDED_FILES: Mapping[str, str] = {
    "counters.db": "current counts of rate limits",
    **dict.fromkeys(_MOVE_FILES, "the progress of a move to another engine"),
    "texts.cache": "a cache of texts.db",
    "vectors.lists": "a cache of vectors.db",
    "models": "created again by the embedder",
    "first-run.json": "the first keys in plain text",
    "server.log": "a log",
    CALL_LOCKS_FOLDER: "locks of the running processes",
    JOURNAL_FOLDER: "what the running processes are sending",
    SERVER_FILE: "the address of the running server",
    TOOL_HEALTH_FILE: "the health of the tool servers in the running server",
    SETTINGS_FILE: "settings, which may contain secrets; copy the file yourself",
}
SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")

KNOWN_NAMES = frozenset(
    {
        *PLAIN_FILES,
        SECRET_KEY_FILE,
        RESTORE_FOLDER,
        *EXCLUDED_FILES,
        *(f"{name}{ending}" for name in (*DATABASE_FILES, "counters.db", *_MOVE_FILES) for ending in ("", *SQLITE_SUFFIXES)),
    }
)
"""Every name that may occur in a data folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContent:
    """
    The content of a data folder.

    Attributes:
        databases: Names of the SQLite files in a backup.
        plain_files: Names of the other files in a backup.
        excluded: Reasons for leaving out other files, by name.
    """

    databases: tuple[str, ...]
    plain_files: tuple[str, ...]
    excluded: Mapping[str, str]


def list_content(folder: Path, *, unused_files: Collection[str] = (), with_secret_key: bool = False) -> FolderContent:
    """
    Return the content of *folder*; nothing if it does not exist. Unknown files are left out of a backup.

    Args:
        folder: The data folder.
        unused_files: Those of `DATABASE_FILES` whose data is in a server. Such a file in the folder is out of date.
        with_secret_key: Also save secret.key.
    """
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set[str]()
    databases = tuple(name for name in DATABASE_FILES if name not in unused_files)
    plain_files = (*PLAIN_FILES, *((SECRET_KEY_FILE,) if with_secret_key else ()))
    saved = {name for name in (*databases, *plain_files) if name in names and (folder / name).is_file()}
    beside = {f"{name}{ending}" for name in (*DATABASE_FILES, *EXCLUDED_FILES) for ending in SQLITE_SUFFIXES}
    reasons = {
        **EXCLUDED_FILES,
        **dict.fromkeys(unused_files, "out of date: the settings name a server in place of this file"),
        SECRET_KEY_FILE: "it decrypts the encrypted values; keep a copy elsewhere, or use --with-secret-key",
    }
    exclusion_reasons = {name: reasons.get(name, "unknown to this version, or created again if missing") for name in names - saved - beside}
    return FolderContent(
        databases=tuple(name for name in databases if name in saved),
        plain_files=tuple(name for name in plain_files if name in saved),
        excluded=dict(sorted(exclusion_reasons.items())),
    )
