"""Export and import of memories as JSON lines, through the API of the signed-in key."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import cast

from starlette.responses import Response, StreamingResponse

from rookery.console.routing import View
from rookery.console.visit import Visit
from rookery_client.calls import UNSET

EXPORTED_FIELDS = (
    "type",
    "content",
    "org",
    "project",
    "agent_id",
    "session_id",
    "memory_scope",
    "tags",
    "confidence",
    "source",
    "metadata",
)
"""The fields of a line. They are those with which `remember` stores the memory again."""

_BATCH_LINES = 100
_MAX_LINES = 5_000
_MAX_SHOWN_FAULTS = 20
_MAX_REJECTED_CHARS = 100_000
_HEADERS = {"Content-Disposition": 'attachment; filename="memories.jsonl"', "X-Content-Type-Options": "nosniff"}


@dataclass(slots=True)
class PastedMemories:
    """
    The result of an import.

    Attributes:
        faults: Line numbers from 1 with the reason, of the first faults.
        rejected: Numbers and texts of the lines that were not stored, for another try, as far as a page has room for them.
    """

    lines: int = 0
    stored: int = 0
    failed: int = 0
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    rejected: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _rejected_chars: int = 0

    def reject(self, line: int, reason: str, text: str) -> None:
        """Count a line that is not stored."""
        self.failed += 1
        if len(self.faults) < _MAX_SHOWN_FAULTS:
            self.faults.append((line, reason))
        self._rejected_chars += len(text)
        if self._rejected_chars < _MAX_REJECTED_CHARS:
            self.rejected.append((line, text))

    @property
    def rejected_text(self) -> str:
        """The lines that were not stored, in their order."""
        return "\n".join(text for _, text in sorted(self.rejected))


async def show_transfer(visit: Visit) -> Response:
    """Show the link of the export and the form of the import."""
    return visit.render("memories/transfer.html", report=None)


async def export_memories(visit: Visit) -> Response:
    """Return the memories that the key may list as JSON lines, page by page. The audit log has an entry before the first line."""
    await visit.record("memories.exported", {"project": visit.query("project")} if visit.query("project") else {})
    first = await visit.client.memory.list_memories(per_page=100, project=visit.query("project") or UNSET)

    async def iter_lines() -> AsyncGenerator[str]:
        async for memory in first:
            fields = memory.model_dump(mode="json")
            yield json.dumps({name: fields[name] for name in EXPORTED_FIELDS if fields.get(name) is not None}, ensure_ascii=False) + "\n"

    return StreamingResponse(iter_lines(), headers=_HEADERS, media_type="application/x-ndjson")


async def import_memories(visit: Visit) -> Response:
    """Store the memories of the pasted lines. A line with a fault is named, and the others are stored."""
    lines = [(number, line) for number, line in enumerate((await visit.form()).get_text("lines").split("\n"), 1) if line.strip()]
    report, batch = PastedMemories(lines=len(lines)), list[tuple[int, str, dict[str, object]]]()
    for number, line in lines[_MAX_LINES:]:
        report.reject(number, f"only the first {_MAX_LINES} lines are read: {line[:40]!r}", line)
    for number, line in lines[:_MAX_LINES]:
        try:
            value: object = json.loads(line)
        except (ValueError, RecursionError) as error:
            report.reject(number, f"is not JSON: {error}", line)
            continue
        if not isinstance(value, dict):
            report.reject(number, "is not a JSON object", line)
            continue
        batch.append((number, line, cast("dict[str, object]", value)))
        if len(batch) == _BATCH_LINES:
            await _store(visit, batch, report)
            batch.clear()
    if batch:
        await _store(visit, batch, report)
    return visit.render("memories/transfer.html", status=200 if report.stored or not report.failed else 422, report=report)


async def _store(visit: Visit, batch: list[tuple[int, str, dict[str, object]]], report: PastedMemories) -> None:
    """Store one batch. Each memory is accepted or rejected on its own."""
    results = (await visit.client.memory.remember_batch(memories=[memory for _, _, memory in batch])).results
    for (number, line, _), result in zip(batch, results, strict=True):
        if result.error is None:
            report.stored += 1
        else:
            report.reject(number, str(result.error.get("message", result.error)), line)


VIEWS = (
    View("GET", "/memories/transfer", show_transfer, "brain:read"),
    View("POST", "/memories/transfer", import_memories, "brain:write"),
    View("GET", "/memories/export", export_memories, "brain:read"),
)
