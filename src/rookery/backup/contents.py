"""Which files of a data folder a backup has, and why not the others. Pure but for looking at names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.data_folder import RESTORE_FOLDER, SERVER_FILE, SETTINGS_FILE

RECORDS_FILE = "records.db"

DATABASE_FILES = (RECORDS_FILE, "texts.db", "vectors.db")
"""
SQLite files, in the order in which they are locked. The indexes are derived, but embedding a million texts again takes hours.
"""

PLAIN_FILES = ("servers.json",)
"""Files that are only ever replaced whole."""

SECRET_KEY_FILE = "secret.key"  # noqa: S105 - the name of its file
"""Only when it is asked for: whoever has it and the backup can read what is sealed (D-07)."""

EXCLUDED_FILES: Mapping[str, str] = {
    "counters.db": "what rate limits count at this moment",
    "texts.cache": "a cache of texts.db",
    "vectors.lists": "a cache of vectors.db",
    "models": "what the embedder makes of its package when it is missing",
    "first-run.json": "the first keys, as they are",
    "server.log": "a log",
    SERVER_FILE: "where the server listens",
    SETTINGS_FILE: "settings, which may hold secrets; copy it yourself",
}
_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")

KNOWN_NAMES = frozenset(
    {
        *PLAIN_FILES,
        SECRET_KEY_FILE,
        RESTORE_FOLDER,
        *EXCLUDED_FILES,
        *(f"{name}{ending}" for name in (*DATABASE_FILES, "counters.db") for ending in ("", *_SQLITE_SUFFIXES)),
    }
)
"""Every name that a data folder may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderContent:
    """
    What is in a data folder.

    Attributes:
        databases: SQLite files, *plain_files*: others, that a backup has, by name.
        excluded: What it does not have: why, by name.
    """

    databases: tuple[str, ...]
    plain_files: tuple[str, ...]
    excluded: Mapping[str, str]


def list_content(folder: Path, *, with_records: bool = True, with_secret_key: bool = False) -> FolderContent:
    """
    Return what is in *folder*; what nobody here knows is named among what is left out.

    Args:
        folder: The data folder.
        with_records: False: the records are elsewhere, and what is here is from before that.
        with_secret_key: Whether that is to be saved too.
    """
    names = {entry.name for entry in folder.iterdir()}
    databases = tuple(each for each in DATABASE_FILES if with_records or each != RECORDS_FILE)
    wanted = (*PLAIN_FILES, *((SECRET_KEY_FILE,) if with_secret_key else ()))
    saved = {each for each in (*databases, *wanted) if each in names and (folder / each).is_file()}
    beside = {f"{name}{ending}" for name in (*DATABASE_FILES, *EXCLUDED_FILES) for ending in _SQLITE_SUFFIXES}
    reasons = {
        **EXCLUDED_FILES,
        RECORDS_FILE: "the records are on a PostgreSQL",
        SECRET_KEY_FILE: "it opens what is sealed: keep it apart, or say --with-secret-key",
    }
    left = {name: reasons.get(name, "not known to this version, or made again when it is missing") for name in names - saved - beside}
    return FolderContent(
        databases=tuple(each for each in databases if each in saved),
        plain_files=tuple(each for each in wanted if each in saved),
        excluded=dict(sorted(left.items())),
    )
