"""The manifest of a backup: a JSON document and the last file in it, so that an incomplete backup has none."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import cast

from rookery.backup.contents import DATABASE_FILES, PLAIN_FILES, SECRET_KEY_FILE
from rookery.backup.errors import InvalidArchive

FORMAT = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 64 * 1024
_MAX_VALUE_LENGTH = 60

_SHA256 = re.compile(r"[0-9a-f]{64}")
_REVISION = re.compile(r"[0-9]{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFile:
    """One file in a backup: its name in the data folder, its size in bytes and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """
    The content of a backup.

    Attributes:
        made_at: The time of the snapshot in ISO 8601.
        version: The version of Rookery that created the backup.
        revision: The revision of the record store. None: the records are in PostgreSQL and not in the backup.
        secret_key_id: The key that encrypts values in the records. None: nothing was encrypted.
    """

    made_at: str
    version: str
    revision: str | None
    secret_key_id: str | None
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        """Total bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def has_secret_key(self) -> bool:
        """True if the backup contains secret.key."""
        return any(file.name == SECRET_KEY_FILE for file in self.files)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the manifest as JSON."""
    return json.dumps({"format": FORMAT, **asdict(manifest)}, indent=1).encode()


def parse_manifest(text: bytes) -> Manifest:
    """
    Parse a manifest.

    Raises:
        InvalidArchive: It is not a manifest of Rookery, or it comes from a newer version.
    """
    try:
        fields: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _invalid_manifest("it is not JSON") from error
    if not isinstance(fields, dict):
        raise _invalid_manifest("it is not an object")
    values = cast("Mapping[str, object]", fields)
    format_number = values.get("format")
    if isinstance(format_number, int) and format_number > FORMAT:
        raise InvalidArchive(
            f"This backup has format {format_number}, but this Rookery reads formats up to {FORMAT}. Use the version that created it."
        )
    if format_number != FORMAT:
        raise _invalid_manifest(f"its format is {_shorten(format_number)}")
    revision = _optional_text(values, "revision")
    if revision is not None and _REVISION.fullmatch(revision) is None:
        raise _invalid_manifest(f"its revision is {_shorten(revision)}")
    files = values.get("files")
    entries = tuple(_parse_file(item) for item in cast("list[object]", files)) if isinstance(files, list) else ()
    if not entries or len({entry.name for entry in entries}) < len(entries):
        raise _invalid_manifest("it lists no files, or one of them twice")
    return Manifest(
        made_at=_require_text(values, "made_at"),
        version=_require_text(values, "version"),
        revision=revision,
        secret_key_id=_optional_text(values, "secret_key_id"),
        files=entries,
    )


def _parse_file(raw: object) -> BackupFile:
    fields = cast("Mapping[str, object]", raw if isinstance(raw, dict) else {})
    name, size, digest = fields.get("name"), fields.get("size"), fields.get("sha256")
    if not isinstance(name, str) or name not in {*DATABASE_FILES, *PLAIN_FILES, SECRET_KEY_FILE}:
        raise _invalid_manifest(f"it lists the file {_shorten(name)}")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise _invalid_manifest(f"the size of {name} is {_shorten(size)}")
    if not isinstance(digest, str) or _SHA256.fullmatch(digest) is None:
        raise _invalid_manifest(f"the SHA-256 of {name} is {_shorten(digest)}")
    return BackupFile(name=name, size=size, sha256=digest)


def _require_text(fields: Mapping[str, object], name: str) -> str:
    value = _optional_text(fields, name)
    if value is None:
        raise _invalid_manifest(f"it has no {name}")
    return value


def _optional_text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and (not isinstance(value, str) or not value.isprintable()):
        raise _invalid_manifest(f"its {name} is {_shorten(value)}")
    return value


def _shorten(value: object) -> str:
    return ascii(value)[:_MAX_VALUE_LENGTH]


def _invalid_manifest(reason: str) -> InvalidArchive:
    return InvalidArchive(f"This is not a backup of Rookery, or it is damaged. The file {MANIFEST_NAME} is invalid: {reason}.")
