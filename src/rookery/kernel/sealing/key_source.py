"""The sources of secret keys: two settings, and secret.key in the data folder."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rookery.kernel.data_folder import read_config_file
from rookery.kernel.errors import WrongSettings
from rookery.kernel.sealing.keys import SecretKey
from rookery.kernel.secret import Secret, parse_secret_key

_KEY_FILE = "secret.key"
_KEY_FILE_COMMENT = (
    "# The secret key of Rookery. Encrypted values in the record store cannot be read without it. Keep a copy, apart from backups.\n"
)
_LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_INTERVAL_S = 0.01


class KeySource:
    """
    The secret keys available to this process.

    Args:
        folder: The data folder. It must exist when a file is written.
        configured: The key in the settings. None: the key in secret.key is used, and created if necessary.
        previous: The key before *configured*, for values that it encrypted.
    """

    def __init__(self, folder: Path, *, configured: Secret | None = None, previous: Secret | None = None) -> None:
        self.path = folder / _KEY_FILE
        self.configured_key = None if configured is None else SecretKey(configured)
        self._previous_key = None if previous is None else SecretKey(previous)

    def load_keys(self) -> Mapping[str, SecretKey]:
        """
        Return every available key by its id.

        Raises:
            WrongSettings: secret.key exists, but cannot be read or contains no key.
        """
        keys = (self._previous_key, self.configured_key, *(SecretKey(text) for text in self.read_key_texts()))
        return {key.id: key for key in keys if key is not None}

    def read_key_texts(self) -> list[Secret]:
        """Return the keys in secret.key, more than one during a rotation; empty if the file does not exist. Raises WrongSettings."""
        try:
            lines = read_config_file(self.path).decode("utf-8").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise WrongSettings(f"{self.path} cannot be read: {error}") from error
        try:
            keys = [parse_secret_key(line.strip()) for line in lines if line.strip() and not line.startswith("#")]
        except ValueError:
            keys = []
        if not keys:
            raise WrongSettings(
                f"{self.path} contains no valid key. Restore its content; if that is lost, remove the file and start again."
            )
        return keys

    def file_mode(self) -> int | None:
        """Return the mode of secret.key, as `chmod` takes it; None if the file does not exist."""
        return self.path.stat().st_mode & 0o777 if self.path.exists() else None

    def get_or_create_first(self) -> SecretKey:
        """Return the first key: the configured one, or that of secret.key, created if missing. Safe if two processes call it at once."""
        if self.configured_key is not None:
            return self.configured_key
        if not self.path.exists():
            with self.lock_folder(timeout_s=_LOCK_TIMEOUT_S):
                if not self.path.exists():
                    self.write_key_texts([generate_key_text()])
        return SecretKey(self.read_key_texts()[0])

    def write_key_texts(self, texts: Sequence[Secret]) -> None:
        """Replace the content of secret.key atomically by *texts*, or delete the file if *texts* is empty. The lock must be held."""
        if not texts:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            _sync_folder(self.path.parent)
            return
        new = self.path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            new.unlink()  # left by a killed process; a new file gets the right mode
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_KEY_FILE_COMMENT + "".join(f"{text.reveal()}\n" for text in texts))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)
        _sync_folder(self.path.parent)

    @contextmanager
    def lock_folder(self, *, timeout_s: float = 0.0) -> Generator[None]:
        """
        Lock secret.key against changes by other processes. The lock is released when a process exits.

        Raises:
            WrongSettings: Another process holds the lock for longer than *timeout_s*.
        """
        # The folder itself is locked, because a lock file would be one more file to explain.
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            _acquire_lock(descriptor, time.monotonic() + timeout_s)
            yield
        finally:
            os.close(descriptor)


def generate_key_text() -> Secret:
    """Return a new key of 256 random bits, as text."""
    return Secret(base64.urlsafe_b64encode(os.urandom(32)).decode("ascii"))


def _acquire_lock(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= deadline:
                raise WrongSettings("Another process is changing the secret key. Try again when it has finished.") from error
            time.sleep(_LOCK_POLL_INTERVAL_S)
        else:
            return


def _sync_folder(folder: Path) -> None:
    """Flush changed file names in *folder* to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
