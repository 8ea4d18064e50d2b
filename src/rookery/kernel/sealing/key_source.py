"""Where secret keys come from: two settings, and secret.key in the data folder (D-07)."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rookery.kernel.config_files import read_config_file
from rookery.kernel.errors import WrongSettings
from rookery.kernel.sealing.keys import SecretKey
from rookery.kernel.secret import Secret, parse_secret_key

_KEY_FILE = "secret.key"
_KEY_FILE_COMMENT = "# Rookery's secret key: what is sealed in the record store cannot be read without it. Keep it, apart from backups.\n"
_LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_INTERVAL_S = 0.01


class KeySource:
    """
    The keys that this process may have.

    Args:
        folder: The data folder; it must be there when a file is wanted.
        configured: The key of the settings; None: the one in secret.key is used, and made if it must be.
        previous: The key before *configured*, for what is still sealed by it.
    """

    def __init__(self, folder: Path, *, configured: Secret | None = None, previous: Secret | None = None) -> None:
        self.path = folder / _KEY_FILE
        self.configured_key = None if configured is None else SecretKey(configured)
        self._previous_key = None if previous is None else SecretKey(previous)

    def load_keys(self) -> Mapping[str, SecretKey]:
        """
        Return every key there is now, by its id.

        Raises:
            WrongSettings: secret.key is there, and cannot be read or is none.
        """
        keys = (self._previous_key, self.configured_key, *(SecretKey(text) for text in self.read_key_texts()))
        return {key.id: key for key in keys if key is not None}

    def read_key_texts(self) -> list[Secret]:
        """Return the texts in secret.key, more than one while keys change; none if there is no such file. Raises WrongSettings."""
        try:
            lines = read_config_file(self.path).decode("utf-8").splitlines()
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError) as error:
            raise WrongSettings(f"{self.path} cannot be read: {error}") from error
        try:
            found = [parse_secret_key(line.strip()) for line in lines if line.strip() and not line.startswith("#")]
        except ValueError:
            found = []
        if not found:
            raise WrongSettings(f"{self.path} holds no key: put back what it held; if that is lost, remove the file and start again.")
        return found

    def file_mode(self) -> int | None:
        """Return who may do what with secret.key, as `chmod` takes it; None: there is no such file."""
        return self.path.stat().st_mode & 0o777 if self.path.exists() else None

    def get_or_create_first(self) -> SecretKey:
        """Return the key to begin with: the settings', or secret.key's, made now if there is none; two processes make one."""
        if self.configured_key is not None:
            return self.configured_key
        if not self.path.exists():
            with self.lock_folder(timeout_s=_LOCK_TIMEOUT_S):
                if not self.path.exists():
                    self.write_key_texts([generate_key_text()])
        return SecretKey(self.read_key_texts()[0])

    def write_key_texts(self, texts: Sequence[Secret]) -> None:
        """Put *read_key_texts*, if there are any, in the place of what secret.key holds, all at once; the lock must be held."""
        if not texts:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            _sync_folder(self.path.parent)
            return
        made = self.path.with_suffix(".new")
        with contextlib.suppress(FileNotFoundError):
            made.unlink()  # somebody was killed between the next lines, or it would be open to more than us
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_KEY_FILE_COMMENT + "".join(f"{text.reveal()}\n" for text in texts))
            file.flush()
            os.fsync(file.fileno())
        made.replace(self.path)
        _sync_folder(self.path.parent)

    @contextmanager
    def lock_folder(self, *, timeout_s: float = 0.0) -> Generator[None]:
        """
        Keep other processes from changing secret.key; a process that dies lets go.

        Raises:
            WrongSettings: Another one does not let go within *timeout_s*.
        """
        # The folder itself is locked: a file of its own would have to be explained to everybody who finds it.
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            _acquire_lock(descriptor, time.monotonic() + timeout_s)
            yield
        finally:
            os.close(descriptor)


def generate_key_text() -> Secret:
    """Return the text of a new key: 256 bits of chance."""
    return Secret(base64.urlsafe_b64encode(os.urandom(32)).decode("ascii"))


def _acquire_lock(descriptor: int, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if time.monotonic() >= deadline:
                raise WrongSettings("Another process is changing the secret key at this moment; try again when it is done.") from error
            time.sleep(_LOCK_POLL_INTERVAL_S)
        else:
            return


def _sync_folder(folder: Path) -> None:
    """Have a change of names in *folder* on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
