"""
Install programs with memories, let each store the same facts, import what it wrote, and write docs/reference/others-memories.md.

`make others-memories`; some programs by `ARGS="mem0 langgraph"`, whose rows replace those of earlier runs; `ARGS=--page` writes the page
from the record alone, and `ARGS="--into FOLDER"` installs into another folder. A program that cannot be installed has a row with the
reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from rookery.kernel.config import Settings
from rookery.migrations import migrate
from rookery.wiring import build_platform
from tests.conftest import OPERATOR
from tests.others_memories.import_record import FileRecord, ProgramRecord, load_record, save_record
from tests.others_memories.installation import INSTALLED, build_command, install
from tests.others_memories.programs import PROGRAMS, WriterProgram, WrittenFile
from tests.others_memories.writers.facts import DELETED, FACTS, NEW, OLD
from tests.processes import get_environment, run_rookery

_WRITER_LIMIT_S = 180


def main() -> int:
    """Run the programs that the arguments name, or all; return 1 if a name is unknown or an import has a fault."""
    arguments = sys.argv[1:]
    rows = load_record()
    if arguments != ["--page"]:
        installed = INSTALLED
        if "--into" in arguments:
            position = arguments.index("--into")
            installed = Path(arguments[position + 1])
            arguments = [*arguments[:position], *arguments[position + 2 :]]
        unknown = set(arguments) - {program.id for program in PROGRAMS}
        if unknown:
            print(f"unknown programs: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 1
        for program in PROGRAMS:
            if not arguments or program.id in arguments:
                rows[program.id] = _run(program, installed)
                print(f"{program.id}: {rows[program.id].reason or 'done'}", flush=True)
    ordered = [rows[program.id] for program in PROGRAMS if program.id in rows]
    save_record(ordered)
    return 1 if any(file.faults for row in ordered for file in row.files) else 0


def _run(program: WriterProgram, installed: Path) -> ProgramRecord:
    row = ProgramRecord(
        id=program.id,
        package=program.package,
        version=program.version,
        ran_on=datetime.now(UTC).date().isoformat(),
        reason=install(program, installed),
    )
    if row.reason:
        return row
    with tempfile.TemporaryDirectory(prefix="others-memories-") as name:
        folder = Path(name) / "files"
        folder.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        command = build_command(program, installed, folder)
        try:
            subprocess.run(
                command,
                env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=_WRITER_LIMIT_S,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            row.reason = f"its writer failed: {(error.stderr.strip().splitlines() or ['no output'])[-1][:150]}"
            return row
        row.files = [_import(file, folder, Path(name) / f"data-{number}") for number, file in enumerate(program.files)]
    return row


def _import(file: WrittenFile, folder: Path, data: Path) -> FileRecord:
    """Import a file twice into an empty store; return what became of it."""
    companion = ["--with", str(folder / file.companion)] if file.companion else []
    shown = [file.name, *(["--with", file.companion] if file.companion else []), *file.options]
    record = FileRecord(source=" ".join(shown))
    asyncio.run(_make_store(data))
    arguments = ["import", str(folder / file.name), *companion, *file.options, "--workspace", "main", "--json"]
    environment = get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
    first = run_rookery(*arguments, data_dir=data, environment=environment)
    if file.is_refused:
        record.refusal = " ".join(first.stderr.split()).rpartition("error: ")[2].partition(": ")[2]
        record.faults = [] if first.returncode == 2 else [f"the exit code is {first.returncode}, not 2"]
        return record
    if first.returncode:
        record.faults = [f"the exit code is {first.returncode}: {(first.stdout + first.stderr)[-200:]}"]
        return record
    report = json.loads(first.stdout)
    repeated = json.loads(run_rookery(*arguments, data_dir=data, environment=environment).stdout)
    exported = run_rookery("export", "--workspace", "main", "--include-archived", data_dir=data, environment=environment).stdout
    memories = [row for row in map(_parse, exported.splitlines()) if row["kind"] == "memory"]
    record.recognised, record.read = str(report.get("recognised", "")), report["total"]
    record.imported, record.archived = len(memories), sum(1 for row in memories if row["archived_at"])
    record.repeated, record.warnings = repeated["imported"], len(report.get("warnings", []))
    record.faults = _find_faults(memories, record, file)
    return record


async def _make_store(data: Path) -> None:
    """Create a store with one workspace."""
    data.mkdir(mode=0o700)
    migrate("embedded:", data_dir=data)
    platform = build_platform(Settings(data_dir=data, bcrypt_cost=4))
    async with platform.open_for_command():
        await platform.access.workspaces.create("main", by=OPERATOR)


def _parse(line: str) -> dict[str, object]:
    return cast("dict[str, object]", json.loads(line))


def _find_faults(memories: list[dict[str, object]], record: FileRecord, file: WrittenFile) -> list[str]:
    """Return what is missing, doubled or back."""
    live = [str(row["content"]) for row in memories if not row["archived_at"]]
    archived = [str(row["content"]) for row in memories if row["archived_at"]]
    texts = [*(fact[2].strip() for fact in FACTS), NEW]
    faults = [f"{text[:40]!r} came in {count} times" for text in texts if (count := sum(text in content for content in live)) != 1]
    if any(OLD in content for content in live) or any(DELETED in content for content in (*live, *archived)):
        faults.append("a deleted or replaced text came in")
    if file.has_history != any(OLD in content for content in archived):
        faults.append("the older version is not archived")
    if record.repeated:
        faults.append(f"a second import stored {record.repeated} memories")
    return faults


if __name__ == "__main__":
    sys.exit(main())
