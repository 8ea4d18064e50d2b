"""
Run real agents, frameworks and bridges against Rookery, and write docs/reference/agents.md: `make agents`.

Some programs by `ARGS="codex fastmcp"`; their rows replace those of earlier runs. `ARGS=--page` writes the page from the record alone.
One program runs at a time, bounded in time, without a way out of this machine, and what it starts is ended. A program that cannot be
installed or started has a row with the reason.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.real_agents.agent_record import AgentRecord, load_record, parse_record, save_record
from tests.real_agents.agent_table import PAGE, render
from tests.real_agents.home_server import run_home
from tests.real_agents.installation import INSTALLED, install
from tests.real_agents.programs import PROGRAMS, AgentProgram
from tests.real_agents.scenarios import ProgramRuns
from tests.real_agents.scripted_model import ScriptedModel, run_model

_FAILURES = (Exception, pytest.fail.Exception)


def main() -> int:
    """Run the programs that the arguments name, or all; return 1 if a name is unknown."""
    arguments = sys.argv[1:]
    rows = load_record()
    if arguments != ["--page"]:
        try:
            programs = _select(arguments)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        for row in _run_all(programs):
            rows[row.id] = row
            _save(rows)
    _save(rows)
    return 0


def _save(rows: Mapping[str, AgentRecord]) -> None:
    """Write the record and the page, in the order of the declarations."""
    ordered = [rows[program.id] for program in PROGRAMS if program.id in rows]
    save_record(ordered)
    PAGE.write_text(render(ordered), encoding="utf-8")


def _select(names: Sequence[str]) -> list[AgentProgram]:
    """
    Return the programs of these ids, or all.

    Raises:
        ValueError: A name is no id.
    """
    unknown = set(names) - {program.id for program in PROGRAMS}
    if unknown:
        msg = f"unknown programs: {', '.join(sorted(unknown))}; known are {', '.join(program.id for program in PROGRAMS)}"
        raise ValueError(msg)
    return [program for program in PROGRAMS if not names or program.id in names]


def _run_all(programs: Sequence[AgentProgram]) -> Iterable[AgentRecord]:
    reasons = install(programs)
    with tempfile.TemporaryDirectory(prefix="agents-") as folder, run_model() as model:
        for program in programs:
            row = _run_one(program, program.unavailable or reasons.get(program.id, ""), Path(folder) / program.id, model)
            print(f"{program.id}: {row.reason or 'done'}, {row.seconds:.0f} s", flush=True)
            yield row


def _run_one(program: AgentProgram, reason: str, data: Path, model: ScriptedModel) -> AgentRecord:
    row = AgentRecord(
        id=program.id,
        package=program.package,
        version=program.version,
        kind=program.kind,
        family=program.family,
        key_source=program.key_source,
        ran_on=datetime.now(UTC).date().isoformat(),
        reason=reason,
    )
    if reason:
        return row
    try:
        with run_home(data) as home:
            ProgramRuns(program.id, program.launch, home, model).fill(row, has_variable="ROOKERY_KEY" in program.key_source)
    except _FAILURES as error:
        row.reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    return _hide_paths(row)


def _hide_paths(row: AgentRecord) -> AgentRecord:
    """Return the row without the paths and ports of this machine."""
    text = json.dumps(asdict(row), ensure_ascii=False)
    for path, name in ((INSTALLED.resolve(), "INSTALLED"), (INSTALLED, "INSTALLED")):
        text = text.replace(str(path), name)
    return parse_record(f"[{text}]")[row.id]


if __name__ == "__main__":
    sys.exit(main())
