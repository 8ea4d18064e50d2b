"""
The journal of sends: a file in which a process writes each message before it sends it, and the result after it.

If the process is killed, the next process of this host reads which of its claims had begun, and the results that it had not stored. The
writes are not flushed to the disk: the system keeps them when a process dies. When the system itself stops they may be lost, so a journal
counts only until the next boot.

A line is a JSON object. A begun message is missing only if it was not sent, because its line is written first. So an incomplete last line
is ignored.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

import orjson
import structlog

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db.leases import is_from_this_boot
from rookery.kernel.delivery_engine import AttemptKey
from rookery.notifications.messages import SendOutcome, SendResult
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store.queue import ClaimedNotification

MAX_JOURNAL_BYTES = 1024 * 1024
"""Size after which a journal is written again with what is still open. Journals are read whole."""

_SUFFIX, _NEW_SUFFIX = ".jsonl", ".new"
_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalResult:
    """The result of an attempt."""

    result: SendResult
    started_at: datetime
    ended_at: datetime
    duration_s: float

    def to_attempt(self, claim: ClaimedNotification) -> SendAttempt:
        """Return the attempt for which *claim* was claimed."""
        return SendAttempt(claim=claim, result=self.result, started_at=self.started_at, ended_at=self.ended_at, duration_s=self.duration_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """
    The content of a journal.

    Attributes:
        begun: The attempts that may have been sent.
        results: The attempts that ended. Some of them failed before they could begin.
    """

    begun: Collection[AttemptKey]
    results: Mapping[AttemptKey, JournalResult]


@dataclass(slots=True)
class SendJournal:
    """
    The journals of the processes in *folder*, and the one that this process writes.

    Its methods block for some microseconds, as a write to the page cache does. If the journal cannot be written, it is deleted, and the
    process works without one: a process without a journal may have sent all that it claimed.
    """

    folder: Path
    _path: Path | None = None
    _descriptor: int | None = None
    _size: int = 0
    _is_partial: bool = False
    _begun: set[AttemptKey] = field(default_factory=set[AttemptKey])

    def open(self, worker_id: str) -> None:
        """Create the journal of this process."""
        path = self._get_path(worker_id)
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        except OSError as error:
            self._give_up(error)
        else:
            self._path, self._size = path, 0

    def begin(self, attempt: AttemptKey) -> bool:
        """Write that an attempt begins. Return False if it must not: the journal can be neither written nor deleted."""
        self._begun.add(attempt)
        self._append({"begun": [attempt]})
        if self._is_partial:
            self._delete_partial()
        return not self._is_partial

    def has_begun(self, attempt: AttemptKey) -> bool:
        """Return whether an attempt of this process began and has no result."""
        return attempt in self._begun

    def finish(self, attempt: SendAttempt) -> None:
        """Write the result of an attempt, whether it had begun or not."""
        self._begun.discard(attempt.claim.attempt_key)
        self._append(_to_line(attempt))

    def forget_stored(self, results: Iterable[SendAttempt]) -> None:
        """
        Drop what the record store has, if the journal is large or nothing is open.

        Args:
            results: The results that are not stored yet.
        """
        if self._descriptor is None or self._path is None or self._size == 0:
            return
        open_results = [attempt for attempt in results if attempt.outbox_message is None]
        if (self._begun or open_results) and self._size < MAX_JOURNAL_BYTES:
            return
        lines = [_to_line(attempt) for attempt in open_results]
        if open_attempts := [*self._begun, *(attempt.claim.attempt_key for attempt in open_results)]:
            lines.insert(0, {"begun": open_attempts})
        content = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        try:
            if content:
                self._replace(self._path, content)
            else:
                os.ftruncate(self._descriptor, 0)
        except OSError as error:
            self._give_up(error)
        else:
            self._size = len(content)

    def close(self, *, is_empty: bool) -> None:
        """Stop writing. Delete the journal if *is_empty*: the record store has all results."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
            if is_empty and self._path is not None:
                with contextlib.suppress(OSError):
                    self._path.unlink()

    def read(self, worker_id: str) -> JournalContent | None:
        """Return the journal of a process of this host that has exited; None if it has none, or if the system has started since."""
        if not is_from_this_boot(worker_id):
            return None
        try:
            content = self._get_path(worker_id).read_bytes()
        except OSError:
            return None
        attempts, results = set[AttemptKey](), dict[AttemptKey, JournalResult]()
        for line in content.split(b"\n")[:-1]:
            try:
                _add_line(cast("dict[str, Any]", orjson.loads(line)), attempts, results)
            except (ValueError, KeyError, TypeError):
                return None
        return JournalContent(begun=attempts, results=results)

    def delete(self, worker_ids: Iterable[str]) -> None:
        """Delete the journals of processes whose claims are settled."""
        for worker_id in worker_ids:
            path = self._get_path(worker_id)
            for file in (path, path.with_suffix(_NEW_SUFFIX)):
                with contextlib.suppress(OSError):
                    file.unlink()

    def list_workers(self) -> list[str]:
        """Return the workers that have a journal in the folder."""
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except OSError:
            return []
        return [unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX)]

    def _get_path(self, worker_id: str) -> Path:
        return self.folder / f"{quote(worker_id, safe='')}{_SUFFIX}"

    def _append(self, line: Mapping[str, object]) -> None:
        if self._descriptor is None:
            return
        data = orjson.dumps(line) + b"\n"
        try:
            _write_all(self._descriptor, data)
        except OSError as error:
            self._give_up(error)
        else:
            self._size += len(data)

    def _replace(self, path: Path, content: bytes) -> None:
        new_path = path.with_suffix(_NEW_SUFFIX)
        descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            _write_all(descriptor, content)
            new_path.replace(path)
        except OSError:
            os.close(descriptor)
            raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = descriptor

    def _give_up(self, error: OSError) -> None:
        """Work without a journal from now on, because an incomplete one would lead to messages that are sent twice."""
        _log.warning("notifications.journal_failed", folder=str(self.folder), error=error.strerror or str(error))
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._delete_partial()

    def _delete_partial(self) -> None:
        """Delete the journal that could not be written."""
        if self._path is None:
            return
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            self._is_partial = True
        else:
            self._is_partial = False


def _write_all(descriptor: int, data: bytes) -> None:
    """Write *data* as one piece, or raise OSError. A disk that becomes full takes a part of it."""
    if os.write(descriptor, data) < len(data):
        raise OSError("the disk is full")


def _to_line(attempt: SendAttempt) -> dict[str, object]:
    return {
        "ended": attempt.claim.attempt_key,
        "started_at": to_micros(attempt.started_at),
        "ended_at": to_micros(attempt.ended_at),
        "duration_s": attempt.duration_s,
        "result": attempt.result,
    }


def _add_line(line: Mapping[str, Any], attempts: set[AttemptKey], results: dict[AttemptKey, JournalResult]) -> None:
    if "begun" in line:
        attempts.update((str(id_), int(number)) for id_, number in line["begun"])
        return
    id_, number = line["ended"]
    result = line["result"]
    results[str(id_), int(number)] = JournalResult(
        result=SendResult(**cast("dict[str, Any]", {**result, "outcome": SendOutcome(result["outcome"])})),
        started_at=from_micros(line["started_at"]),
        ended_at=from_micros(line["ended_at"]),
        duration_s=line["duration_s"],
    )
