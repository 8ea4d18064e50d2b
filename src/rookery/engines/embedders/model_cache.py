"""Files that are built from a model's weights, once per data folder: graphs, vocabularies and tokenizers, each with its digest."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from rookery.engines.embedders.model_files import digest_file, is_intact
from rookery.engines.embedders.onnx_graph import Buffer
from rookery.kernel.errors import EngineUnavailable

GRAPH, VOCABULARY, TOKENIZER = ".onnx", ".words", ".pieces"
"""Endings of the files."""

BuiltFiles = Mapping[str, Sequence[Buffer]]
"""The contents of files in parts, by ending."""

_LOCK_FILE = "building"
_ABANDONED_AGE_S = 600
"""Age in seconds after which a temporary file counts as left by a killed process."""

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}

_log = structlog.stdlib.get_logger("rookery.embedder")


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModel:
    """
    The files of one model in a folder.

    Attributes:
        name: Name of the model. Files of this name with another *key* are removed when new ones are built.
        key: Version of the files' format, and fingerprint of what they are built from.
        endings: The endings of the files. They are written in this order, so the last one completes the model.
        size: About the size of all files in bytes.
    """

    folder: Path
    name: str
    key: str
    endings: Sequence[str]
    size: int

    def path(self, ending: str) -> Path:
        """Return the path of a file."""
        return self.folder / f"{self.name}.{self.key}{ending}"

    def is_built(self) -> bool:
        """Return whether all files exist and have their digests."""
        return all(is_intact(self.path(ending)) for ending in self.endings)

    def prepare(self, build: Callable[[], BuiltFiles], *, must_rebuild: bool = False) -> None:
        """
        Build the files if one is missing or damaged. Of several processes, one builds and the others wait for it.

        Raises:
            EngineUnavailable: The disk has not enough space.
            OSError: The folder cannot be written.
        """
        if not must_rebuild and self.is_built():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with _lock(self.folder):
            if not must_rebuild and self.is_built():
                return
            self._build(build)

    def _build(self, build: Callable[[], BuiltFiles]) -> None:
        is_new = not any(self.path(ending).exists() for ending in self.endings)
        reason = "the model is used for the first time" if is_new else "a file is damaged, or its digest is missing"
        _log.info("embedder.model_building", model=self.name, folder=str(self.folder), megabytes=round(self.size / 1e6), reason=reason)
        started = time.monotonic()
        try:
            _require_space(self.folder, self.size)
            contents = build()
            for ending in self.endings:
                digest = _write_atomically(self.path(ending), contents[ending])
                _write_atomically(digest_file(self.path(ending)), [digest.encode()])
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            reason = f"the disk is full: the model needs {self.size / 1e6:.0f} MB in {self.folder}; free space there"
            raise EngineUnavailable("embedder", reason) from error
        self._remove_old_files()
        _log.info("embedder.model_built", model=self.name, seconds=round(time.monotonic() - started, 1))

    def _remove_old_files(self) -> None:
        """Remove files of other versions, and temporary files that killed processes left."""
        current = {path for ending in self.endings for path in (self.path(ending), digest_file(self.path(ending)))}
        for other in self.folder.glob(f"{self.name}.*"):
            is_abandoned = other.suffix == ".part" and time.time() - other.stat().st_mtime > _ABANDONED_AGE_S
            is_outdated = other.suffix in {GRAPH, VOCABULARY, TOKENIZER, ".sha256"} and other not in current
            if is_abandoned or is_outdated:
                other.unlink(missing_ok=True)


def fingerprint(*paths: Path) -> str:
    """Return a fingerprint of files from their sizes, beginnings and 64 samples of each, without reading 100 MB."""
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        size = path.stat().st_size
        digest.update(str(size).encode())
        with path.open("rb") as file:
            for sample in range(64):
                file.seek(size * sample // 64)
                digest.update(file.read(4096))
    return digest.hexdigest()


def _require_space(folder: Path, size: int) -> None:
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def _lock(folder: Path) -> Generator[None]:
    """Hold the lock of *folder* while the block runs. Wait for a process that has it."""
    with (folder / _LOCK_FILE).open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_atomically(path: Path, parts: Sequence[Buffer]) -> str:
    """Write to a temporary file and rename it. Return the SHA-256 of the content."""
    handle, temporary = tempfile.mkstemp(prefix=path.stem + ".", suffix=".part", dir=path.parent)
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
                digest.update(part)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return digest.hexdigest()
