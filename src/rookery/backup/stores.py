"""Which files of a data folder a backup has, and why not the others. Pure but for looking at names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.data_folder import CONFIG, LISTENING, RESTORING

RECORDS = "records.db"

DATABASES = (RECORDS, "texts.db", "vectors.db")
"""
SQLite files, in the order in which they are locked. The indexes are derived, but embedding a million texts again takes hours.
"""

PLAIN = ("servers.json",)
"""Files that are only ever replaced whole."""

SECRET_KEY = "secret.key"  # noqa: S105 - the name of its file
"""Only when it is asked for: whoever has it and the backup can read what is sealed (D-07)."""

LEFT_OUT: Mapping[str, str] = {
    "counters.db": "what rate limits count at this moment",
    "texts.cache": "a cache of texts.db",
    "vectors.lists": "a cache of vectors.db",
    "models": "what the embedder makes of its package when it is missing",
    "first-run.json": "the first keys, as they are",
    "server.log": "a log",
    LISTENING: "where the server listens",
    CONFIG: "settings, which may hold secrets; copy it yourself",
}
_BESIDE = ("-wal", "-shm", "-journal")

KNOWN = frozenset(
    {
        *PLAIN,
        SECRET_KEY,
        RESTORING,
        *LEFT_OUT,
        *(f"{name}{ending}" for name in (*DATABASES, "counters.db") for ending in ("", *_BESIDE)),
    }
)
"""Every name that a data folder may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """
    What is in a data folder.

    Attributes:
        databases: SQLite files, *plain*: others, that a backup has, by name.
        left_out: What it does not have: why, by name.
    """

    databases: tuple[str, ...]
    plain: tuple[str, ...]
    left_out: Mapping[str, str]


def look(folder: Path, *, with_records: bool = True, with_secret_key: bool = False) -> Content:
    """
    Return what is in *folder*; what nobody here knows is named among what is left out.

    Args:
        folder: The data folder.
        with_records: False: the records are elsewhere, and what is here is from before that.
        with_secret_key: Whether that is to be saved too.
    """
    names = {entry.name for entry in folder.iterdir()}
    databases = tuple(each for each in DATABASES if with_records or each != RECORDS)
    wanted = (*PLAIN, *((SECRET_KEY,) if with_secret_key else ()))
    saved = {each for each in (*databases, *wanted) if each in names and (folder / each).is_file()}
    beside = {f"{name}{ending}" for name in (*DATABASES, *LEFT_OUT) for ending in _BESIDE}
    reasons = {
        **LEFT_OUT,
        RECORDS: "the records are on a PostgreSQL",
        SECRET_KEY: "it opens what is sealed: keep it apart, or say --with-secret-key",
    }
    left = {name: reasons.get(name, "not known to this version, or made again when it is missing") for name in names - saved - beside}
    return Content(
        databases=tuple(each for each in databases if each in saved),
        plain=tuple(each for each in wanted if each in saved),
        left_out=dict(sorted(left.items())),
    )
