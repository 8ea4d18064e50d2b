"""
A buffer of call records, written in batches right after the responses, and the redaction of the texts in them.

A commit per call would cost more than the call. At 16 callers, the records of one moment share a transaction. A record is on
disk about 20 ms after its response. Records are lost only if the process is killed within that time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.safe_texts import redact
from rookery.kernel.write_buffer import WriteBuffer
from rookery.tools.calling.results import to_json
from rookery.tools.events import ToolCalled
from rookery.tools.models import CallRecord
from rookery.tools.store import calls as store
from rookery.usage.ledger import UsageLedger
from rookery.usage.models import UsageEntry, UsageKind, day_of

_WRITE_DELAY_S = 0.02
_MAX_BUFFERED_CALLS = 10_000
"""Limit on buffered records. At the limit, a call first waits for a write, and is rejected if the write fails."""

_INPUT_REQUIRED = "input_required"
"""The code of a call that is not finished and has not failed."""


class CallBuffer:
    """
    The call records of this process that are not yet written. `aclose` writes the last ones.

    Args:
        ledger: The ledger of usage to which the calls are added. None: they are only stored.
    """

    def __init__(
        self, db: Database, ledger: UsageLedger | None = None, *, bus: EventBus | None = None, max_calls: int = _MAX_BUFFERED_CALLS
    ) -> None:
        self._db = db
        self._ledger = ledger
        self._max_calls = max_calls
        self._bus = bus or EventBus()
        self._buffer = WriteBuffer[CallRecord](self._write, name="tools.calls", delay_s=_WRITE_DELAY_S)
        self.flush = self._buffer.flush
        self.aclose = self._buffer.aclose
        if ledger is not None:
            ledger.flush_before_reports(self.flush)

    @property
    def unwritten(self) -> int:
        """The number of buffered records."""
        return len(self._buffer)

    @property
    def lost(self) -> int:
        """Records dropped since the start, for metrics."""
        return self._buffer.dropped

    def add(self, row: CallRecord) -> None:
        """Buffer *row*. `ToolCalled` is published once the record is committed."""
        self._buffer.add(row)

    async def require_capacity(self) -> None:
        """
        Write the buffer first if it is full.

        Raises:
            EngineUnavailable: The write failed. A call that cannot be recorded is not made.
        """
        if len(self._buffer) >= self._max_calls:
            await self.flush()

    async def _write(self, batch: Sequence[CallRecord]) -> None:
        await self._db.write(lambda tx: self._insert(tx, batch))

    def _insert(self, tx: Tx, batch: Sequence[CallRecord]) -> None:
        if self._ledger is not None:
            stored_ids = store.find_stored_ids(tx, [row.id for row in batch])  # of a commit whose response was lost
            self._ledger.add_late(tx, [_to_usage(row) for row in batch if row.id not in stored_ids])
        store.CALLS.add(tx, *batch)
        for row in batch:
            self._bus.publish_on_commit(
                tx,
                ToolCalled(
                    workspace_id=row.workspace_id,
                    call_id=row.id,
                    server=row.server_id,
                    tool=row.tool,
                    success=row.success,
                    code=row.code,
                    duration_ms=round(row.duration_ms),
                    at=row.called_at,
                ),
            )


def _to_usage(call: CallRecord) -> UsageEntry:
    return UsageEntry(
        workspace_id=call.workspace_id,
        day=day_of(call.called_at),
        kind=UsageKind.TOOL_CALL,
        key_id=call.key_id,
        agent_id=call.agent_id or "",
        tool=f"{call.server_id}/{call.tool}",
        calls=1,
        failed=int(not call.success and call.code != _INPUT_REQUIRED),
        duration_us=round(call.duration_ms * 1_000),
    )


_MAX_ERROR_LENGTH = 500
_MAX_ARGUMENTS_LENGTH = 4096
_REDACTED = "…"
_SECRET_NAME = re.compile(
    r"passw|pwd|passphrase|secret|token|(?:api|access|private|signing|encryption)[-_ ]?key|authori[sz]ation|bearer|jwt|credential"
    r"|cookie|dsn|connection[-_ ]?string|^(?:pin|otp|cvv|cvc)$",
    re.IGNORECASE,
)
"""Argument names whose values are always redacted."""


def redact_error(text: str) -> str:
    """Return a failure's error message in the form in which it is stored."""
    return redact_text(text, _MAX_ERROR_LENGTH)


def redact_arguments(arguments: dict[str, object]) -> str:
    """Return a call's arguments as stored: JSON, truncated at the end if it is long."""
    return redact_text(to_json(cast("dict[str, object]", _redact_values(arguments))).decode(), _MAX_ARGUMENTS_LENGTH)


def redact_text(text: str, max_length: int) -> str:
    """Return *text* with secrets redacted, truncated to *max_length* characters."""
    # Truncate after redacting: half a key would not be recognised.
    short_text = redact(text)[:max_length]
    return short_text.encode("utf-8", "replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _redact_values(value: object) -> object:
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {name: _REDACTED if _SECRET_NAME.search(name) else _redact_values(item) for name, item in fields.items()}
    if isinstance(value, list):
        return [_redact_values(item) for item in cast("list[object]", value)]
    return value
