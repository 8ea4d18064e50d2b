"""Export of memories as JSON lines, and import of files, through the API of the signed-in key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import cast

from starlette.responses import Response, StreamingResponse

from rookery.console.visit import View, Visit
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
_MAX_SHOWN_DRAFTS = 20
_MAX_REJECTED_CHARS = 100_000
_MAX_EXCERPT_CHARS = 60
_NOTE_SUFFIXES = (".md", ".markdown")
_LINE_FIELDS = frozenset((*EXPORTED_FIELDS, "expires_in", "dedupe", "supersedes_id"))
_HEADERS = {"Content-Disposition": 'attachment; filename="memories.jsonl"', "X-Content-Type-Options": "nosniff"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A memory to store, and its place and its text in what was sent."""

    number: int
    place: str
    text: str
    body: dict[str, object]


@dataclass(slots=True)
class MemoryImportReport:
    """
    The result of an import, or of a check that stores nothing.

    Attributes:
        recognised: The program that wrote the file.
        faults: Numbers in the file with the place and the reason, of the first faults.
        rejected: Numbers and texts of what was not stored, for another try, as far as a page has room for them.
        drafts: The memories to store.
    """

    is_check: bool = False
    recognised: str = ""
    drafts: list[_Draft] = field(default_factory=list[_Draft])
    warnings: Sequence[str] = ()
    stored: int = 0
    failed: int = 0
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    rejected: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    _rejected_chars: int = 0

    def reject(self, number: int, place: str, reason: str, text: str) -> None:
        """Count what is not stored."""
        self.failed += 1
        if len(self.faults) < _MAX_SHOWN_FAULTS:
            self.faults.append((number, f"{place}: {reason}"))
        self._rejected_chars += len(text)
        if text and self._rejected_chars < _MAX_REJECTED_CHARS:
            self.rejected.append((number, text))

    @property
    def total(self) -> int:
        """The number of memories that were sent."""
        return len(self.drafts) if self.is_check else self.stored + self.failed

    @property
    def rejected_text(self) -> str:
        """The texts that were not stored, one per line, in their order."""
        return "\n".join(text for _, text in sorted(self.rejected))

    @property
    def shown(self) -> list[tuple[str, str, str]]:
        """Type, project and first words of the first memories."""
        bodies = [draft.body for draft in self.drafts[:_MAX_SHOWN_DRAFTS]]
        return [(str(body.get("type") or ""), str(body.get("project") or ""), _shorten(str(body.get("content")))) for body in bodies]


def _shorten(text: str) -> str:
    return " ".join(text[: 4 * _MAX_EXCERPT_CHARS].split())[:_MAX_EXCERPT_CHARS]


async def show_transfer(visit: Visit) -> Response:
    """Show the link of the export and the form of the import."""
    return visit.render("memories/transfer.html", report=None, text="", file_name="", is_text_left_out=False)


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
    """Store the memories of a text, or list them if the form asks for a check. What has a fault is named, and the others are stored."""
    form = await visit.form()
    text, file_name = form.get_text("lines"), form.get("file_name")
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    values = [_parse_line(line) for _, line in lines[:_MAX_LINES]]
    report = MemoryImportReport(is_check=bool(form.get("check")))
    is_note = file_name.lower().endswith(_NOTE_SUFFIXES)
    if not is_note and any(isinstance(value, dict) and "content" in value and value.keys() <= _LINE_FIELDS for value in values):
        _read_lines(lines, values, report)
    else:
        await _read_file(visit, file_name, text, report)
    if not report.is_check:
        for start in range(0, len(report.drafts), _BATCH_LINES):
            await _store(visit, report.drafts[start : start + _BATCH_LINES], report)
    keeps_text = report.is_check or (is_note and report.failed > 0)
    has_room = len(text) <= _MAX_REJECTED_CHARS
    return visit.render(
        "memories/transfer.html",
        status=200 if report.stored or report.is_check or not report.failed else 422,
        report=report,
        text=(text if has_room else "") if keeps_text else report.rejected_text,
        file_name=file_name if keeps_text and has_room else "",
        is_text_left_out=report.is_check and not has_room,
    )


def _parse_line(line: str) -> dict[str, object] | str:
    """Return the JSON object of a line, or what is wrong with it."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"is not JSON: {error}"
    return cast("dict[str, object]", value) if isinstance(value, dict) else "is not a JSON object"


def _read_lines(lines: Sequence[tuple[int, str]], values: Sequence[dict[str, object] | str], report: MemoryImportReport) -> None:
    for (number, line), value in zip(lines, values, strict=False):
        if isinstance(value, str):
            report.reject(number, f"Line {number}", value, line)
        else:
            report.drafts.append(_Draft(number=number, place=f"Line {number}", text=line, body=value))
    for number, line in lines[_MAX_LINES:]:
        report.reject(number, f"Line {number}", f"only the first {_MAX_LINES} lines are read: {line[:40]!r}", line)


async def _read_file(visit: Visit, file_name: str, text: str, report: MemoryImportReport) -> None:
    """Read a file of another program, or notes."""
    file = await asyncio.to_thread(visit.ports.read_memory_file, file_name, text)
    report.recognised, report.warnings = file.recognised or "", file.warnings[:_MAX_SHOWN_FAULTS]
    for number, (place, body) in enumerate(file.drafts, 1):
        text_of_body = json.dumps(body, ensure_ascii=False)
        report.drafts.append(_Draft(number=number, place=place[:1].upper() + place[1:], text=text_of_body, body=body))
    for number, (place, reason) in enumerate(file.rejected):
        report.reject(number, place[:1].upper() + place[1:], reason, "")


async def _store(visit: Visit, drafts: Sequence[_Draft], report: MemoryImportReport) -> None:
    """Store one batch. Each memory is accepted or rejected on its own."""
    results = (await visit.client.memory.remember_batch(memories=[draft.body for draft in drafts])).results
    for draft, result in zip(drafts, results, strict=True):
        if result.error is None:
            report.stored += 1
        else:
            report.reject(draft.number, draft.place, str(result.error.get("message", result.error)), draft.text)


VIEWS = (
    View("GET", "/memories/transfer", show_transfer, "brain:read"),
    View("POST", "/memories/transfer", import_memories, "brain:write"),
    View("GET", "/memories/export", export_memories, "brain:read"),
)
