"""The page about other programs' memories, and the record that it is made from."""

from __future__ import annotations

import json

from tests.others_memories.import_record import PAGE, load_record, render
from tests.others_memories.installation import HERE
from tests.others_memories.programs import PROGRAMS


def test_the_page_is_the_record_of_the_last_run() -> None:
    """`make others-memories` writes both; nobody edits the page by hand."""
    assert PAGE.read_text(encoding="utf-8") == render(load_record().values())


def test_the_record_has_every_declared_file_without_a_fault() -> None:
    """A program or file that is added or updated without a run fails here; a program that did not run has a reason."""
    rows = load_record()

    assert [(row.id, row.version) for row in rows.values()] == [(program.id, program.version) for program in PROGRAMS]
    for program in PROGRAMS:
        row = rows[program.id]
        assert len(row.files) == (0 if row.reason else len(program.files))
        assert [file.faults for file in row.files] == [[]] * len(row.files)


def test_every_program_is_pinned_in_its_lock() -> None:
    """The declared version is the one that the lock installs."""
    packages = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["optionalDependencies"]
    for program in PROGRAMS:
        if program.unavailable:
            continue
        if program.kind == "npm":
            assert packages[program.package] == program.version
        else:
            assert f"\n{program.package}=={program.version} " in (HERE / f"{program.id}.lock").read_text(encoding="utf-8")
