"""The record of `make others-memories`: what became of each file, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

RECORD = Path(__file__).with_name("import_record.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "others-memories.md"


@dataclass(kw_only=True)
class FileRecord:
    """
    An import of one file.

    Attributes:
        source: The arguments of the import, without its folder.
        recognised: What the import named.
        read: The records in the file, with older versions.
        imported: The memories after the import; *archived* is the number of older versions among them.
        repeated: The memories that a second import stored.
        warnings: The number of warnings.
        refusal: The reason of a refusal.
        faults: What is not as it should be.
    """

    source: str
    recognised: str = ""
    read: int = 0
    imported: int = 0
    archived: int = 0
    repeated: int = 0
    warnings: int = 0
    refusal: str = ""
    faults: list[str] = field(default_factory=list[str])


@dataclass(kw_only=True)
class ProgramRecord:
    """A program: *reason* says why it did not run."""

    id: str
    package: str
    version: str
    ran_on: str
    reason: str = ""
    files: list[FileRecord] = field(default_factory=list[FileRecord])


def load_record() -> dict[str, ProgramRecord]:
    """Return the record by the ids of the programs, empty before the first run."""
    if not RECORD.exists():
        return {}
    rows = json.loads(RECORD.read_text(encoding="utf-8"))
    records = dict[str, ProgramRecord]()
    for row in rows:
        files = [FileRecord(**file) for file in row.pop("files")]
        records[row["id"]] = ProgramRecord(**row, files=files)
    return records


def save_record(rows: Iterable[ProgramRecord]) -> None:
    """Write the record and the page."""
    rows = list(rows)
    RECORD.write_text(json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(render(rows), encoding="utf-8")


def render(rows: Iterable[ProgramRecord]) -> str:
    """Return the page."""
    rows = list(rows)
    ran = [row for row in rows if not row.reason]
    lines = [
        "# Other programs' memories",
        "",
        f"{len(ran)} programs, each in a pinned version, stored the same six facts on {max(row.ran_on for row in rows)}:",
        "of two users, one in German, one of more than 5,000 characters. One fact was then changed, and one deleted, if the program can.",
        "The facts of Graphiti and Memori were given to their own classes, because otherwise a model makes them.",
        "`make others-memories` installs and runs the programs, imports what they wrote, and writes this page; no test needs them.",
        "[Export and import memories](../how-to/move-memories.md#import-from-other-programs) shows each import.",
        "",
        "In each import, every fact came in whole, the deleted one did not, and a second import stored nothing. The old text of the",
        "changed fact came in archived, or not at all.",
        "",
        "| Program | Version | Source | Recognised as | Records in | Memories | Older versions | Warnings |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ran:
        for file in row.files:
            if not file.refusal:
                cells = [file.read, file.imported - file.archived, file.archived, file.warnings]
                lines.append(f"| {row.id} | {row.version} | `{file.source}` | {file.recognised} | {' | '.join(map(str, cells))} |")
    lines += ["", "## What is refused", "", "| Program | Source | Reason |", "|---|---|---|"]
    lines += [f"| {row.id} | `{file.source}` | {file.refusal} |" for row in ran for file in row.files if file.refusal]
    lines += ["", "## Programs that were not run", "", "Their importers are tested with files written by hand in their form.", ""]
    lines += ["| Program | Version | Reason |", "|---|---|---|"]
    lines += [f"| {row.id} | {row.version or '–'} | {row.reason} |" for row in rows if row.reason]
    faults = [f"- {row.id}, `{file.source}`: {fault}" for row in ran for file in row.files for fault in file.faults]
    if faults:
        lines += ["", "## Faults", "", *faults]
    return "\n".join(lines) + "\n"
