"""What a backup says of itself: one JSON document, the last file in it, so that one cut short has none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import cast

from rookery.backup.errors import ArchiveUnfit
from rookery.backup.stores import DATABASES, PLAIN, SECRET_KEY

FORMAT = 1
NAME = "manifest.json"
LONGEST = 64 * 1024
_MOST_SHOWN = 60

_SHA256 = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One file of a backup: its name in the data folder, its size in bytes, its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """
    What is in a backup.

    Attributes:
        made_at: The moment that all of its files show, ISO 8601.
        version: Rookery's, that made it.
        revision: The record store's; None: the records are on a PostgreSQL, and not in it.
        secret_key_id: The key that seals in the records; None: nothing was sealed.
    """

    made_at: str
    version: str
    revision: str | None
    secret_key_id: str | None
    files: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(each.size for each in self.files)

    @property
    def has_secret_key(self) -> bool:
        """Tell whether what is sealed can be opened by the backup alone."""
        return any(each.name == SECRET_KEY for each in self.files)


def write(manifest: Manifest) -> bytes:
    """Return the document."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode()


def read(text: bytes) -> Manifest:
    """
    Return what *text* says.

    Raises:
        ArchiveUnfit: It is none of ours, or of a newer Rookery.
    """
    try:
        fields: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unfit("it is not JSON") from error
    if not isinstance(fields, dict):
        raise _unfit("it is not an object")
    known = cast("Mapping[str, object]", fields)
    given = known.get("format")
    if isinstance(given, int) and given > FORMAT:
        raise ArchiveUnfit(f"This backup has format {given}, this Rookery reads up to {FORMAT}: use the newer Rookery that made it.")
    if given != FORMAT:
        raise _unfit(f"its format is {_short(given)}")
    revision = _maybe(known, "revision")
    if revision is not None and _REVISION.fullmatch(revision) is None:
        raise _unfit(f"its revision is {_short(revision)}")
    files = known.get("files")
    entries = tuple(_entry(each) for each in cast("list[object]", files)) if isinstance(files, list) else ()
    if not entries or len({each.name for each in entries}) < len(entries):
        raise _unfit("it names no files, or one twice")
    return Manifest(
        made_at=_text(known, "made_at"),
        version=_text(known, "version"),
        revision=revision,
        secret_key_id=_maybe(known, "secret_key_id"),
        files=entries,
    )


def _entry(raw: object) -> Entry:
    fields = cast("Mapping[str, object]", raw if isinstance(raw, dict) else {})
    name, size, digest = fields.get("name"), fields.get("size"), fields.get("sha256")
    if not isinstance(name, str) or name not in {*DATABASES, *PLAIN, SECRET_KEY}:
        raise _unfit(f"it names the file {_short(name)}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _unfit(f"the size of {name} is {_short(size)}")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise _unfit(f"the SHA-256 of {name} is {_short(digest)}")
    return Entry(name=name, size=size, sha256=digest)


def _text(fields: Mapping[str, object], name: str) -> str:
    value = _maybe(fields, name)
    if value is None:
        raise _unfit(f"it has no {name}")
    return value


def _maybe(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or not value.isprintable()):
        raise _unfit(f"its {name} is {_short(value)}")
    return value


def _short(value: object) -> str:
    return ascii(value)[:_MOST_SHOWN]


def _unfit(why: str) -> ArchiveUnfit:
    return ArchiveUnfit(f"This is no backup of Rookery, or it was damaged: of {NAME}, {why}.")
