"""Notes with front matter as people write it, and the notes of Claude Code and basic-memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest

from rookery.kernel.errors import ValidationFailed
from rookery.memory.transfer.formats import open_source
from rookery.memory.transfer.front_matter import read_front_matter
from rookery.memory.transfer.importing import ImportRequest
from rookery.memory.transfer.items import ImportedMemory, RejectedItem
from tests.memory.makers import MemoryRig
from tests.memory.sqlite_sources import BASIC_MEMORY, write_database
from tests.memory.transfers import Transfers, make_source, nonzero_counts, read_memories, read_warnings

MTIME = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (MTIME.timestamp(), MTIME.timestamp()))
    return folder


@pytest.mark.parametrize(
    ("front", "fields", "line"),
    [
        ("title: Tides: a table", {"title": "Tides: a table"}, 2),
        ("tags: [sea]\ntitle: Tides of the\nnorth pier", {"tags": ["sea"], "title": "Tides of the"}, 3),
        ("title: Tides\ntags:\n\t- sea", {"title": "Tides", "tags": ["sea"]}, 3),
        ("title: {{title}}\nproject: pier", {"project": "pier"}, 2),
        ("author: @kim\nproject: pier", {"author": "@kim", "project": "pier"}, 2),
        ('title: "Tides of Monday\nproject: pier', {"title": "Tides of Monday", "project": "pier"}, 2),
        ("title: *wild* tides", {"title": "*wild* tides"}, 2),
        ("done: %50\nproject: pier", {"done": "%50", "project": "pier"}, 2),
        ("project: pier\n?? what", {"project": "pier"}, 2),
        ("just: a\n- b", {"just": "a"}, 2),
    ],
)  # fmt: skip
def test_each_readable_line_of_broken_front_matter_is_used(front: str, fields: Mapping[str, object], line: int) -> None:
    """A value that is not YAML is read as text, unless it begins like another structure; each such line is reported."""
    parsed = read_front_matter(front)

    assert parsed is not None
    assert dict(parsed.fields) == fields
    assert [number for number, _ in parsed.problems] == [line]


def test_front_matter_of_any_size_costs_at_most_the_front_matter() -> None:
    """A front matter that is too long is left out, and of many broken lines only the first are read."""
    too_long = read_front_matter("a: b\n" * 20_000)
    many = read_front_matter("\n".join(f"key{number}: a: b" for number in range(3_000)))

    assert too_long is not None
    assert many is not None
    assert (dict(too_long.fields), len(too_long.problems)) == ({}, 1)
    assert (len(many.fields), len(many.problems)) == (200, 201)


async def test_a_warning_names_file_and_line_and_the_note_is_stored(rig: MemoryRig, tmp_path: Path) -> None:
    """An unreadable time is left out, so that the note has the time of its file; warnings are no failures."""
    files = {
        "a.md": "---\ntitle: Tides\ncreated: 2026-11-02 10:00 CET\nupdated: next week\n---\nHigh at 9.",
        "b.md": "---\ntitle: A: b\n---\nLow.",
    }
    folder = _write(tmp_path, files)
    report, rejections = await Transfers(rig).import_source(folder, ImportRequest(workspace_id=1))

    assert (nonzero_counts(report), report.failures, rejections) == ({"imported": 2}, 0, [])
    assert [warning.split(": ")[:2] for warning in sorted(report.warnings)] == [
        ["a.md, line 3", "created"],
        ["a.md, line 4", "updated"],
        ["b.md, line 2", "title"],
    ]
    assert [(memory.content.split("\n")[0], memory.created_at) for memory in read_memories(folder)] == [
        ("# Tides", MTIME),
        ("# A: b", MTIME),
    ]


async def test_a_dry_run_shows_the_first_words(rig: MemoryRig, tmp_path: Path) -> None:
    """A reader recognises each text."""
    _, items = await Transfers(rig).import_source(
        _write(tmp_path, {"tides.md": "# Tides\n\nHigh water is at nine, and " + "so on " * 50}),
        ImportRequest(workspace_id=1, dry_run=True),
    )

    assert [item.why for item in items] == [
        "tides.md: documentation, 336 characters: # Tides High water is at nine, and so on so on so on so on …"
    ]


# Claude Code

HERON = """---
name: heron-nests
description: Herons nest on the north pier
metadata:
  node_type: memory
  type: project
  originSessionId: 0b1c
  modified: 2026-05-01T08:00:00.250Z
---

Keep the crane off the pier in May. See [[crane-rules]] #birds
"""


def _claude_folder(folder: Path) -> Path:
    memory = ".claude/projects/-srv-north-pier/memory"
    session = [{"type": "summary"}, {"type": "user", "cwd": "/srv/north-pier"}]
    return _write(
        folder,
        {
            f"{memory}/heron-nests.md": HERON,
            f"{memory}/loose.md": "A note without front matter.",
            f"{memory}/MEMORY.md": "- [heron-nests](heron-nests.md) — Herons nest on the north pier\n",
            ".claude/projects/-srv-north-pier/0b1c.jsonl": "\n".join(orjson.dumps(line).decode() for line in session),
        },
    )


def test_the_memory_folder_of_claude_code_is_read_without_its_index(tmp_path: Path) -> None:
    """The type is the memory's, the description comes first, and the time is the one that the program wrote."""
    heron, loose = read_memories(_claude_folder(tmp_path) / ".claude")

    assert heron.content == "Herons nest on the north pier\n\nKeep the crane off the pier in May. See [[crane-rules]] #birds"
    assert (heron.type, heron.project, heron.tags) == ("project", "north-pier", ("birds",))
    assert heron.created_at == heron.updated_at == datetime(2026, 5, 1, 8, 0, 0, 250_000, tzinfo=UTC)
    assert heron.metadata == {"claude_code_id": "heron-nests", "originSessionId": "0b1c", "links": ["crane-rules"]}
    assert (loose.type, loose.project, loose.created_at) == ("documentation", "north-pier", MTIME)


async def test_a_changed_index_of_claude_code_imports_nothing(rig: MemoryRig, tmp_path: Path) -> None:
    """Each new memory changes the index; a changed memory is a conflict, or is taken if it is newer."""
    folder, transfers = _claude_folder(tmp_path), Transfers(rig)
    first, _ = await transfers.import_source(folder)
    memory_folder = folder / ".claude/projects/-srv-north-pier/memory"
    (memory_folder / "MEMORY.md").write_text("- changed", encoding="utf-8")
    second, _ = await transfers.import_source(folder)
    changed = HERON.replace("in May", "in June").replace("2026-05-01", "2026-05-02")
    (memory_folder / "heron-nests.md").write_text(changed, encoding="utf-8")
    third, _ = await transfers.import_source(folder)
    fourth, _ = await transfers.import_source(folder, ImportRequest(workspace_id=1, takes_newer=True))

    assert [nonzero_counts(report) for report in (first, second, third, fourth)] == [
        {"imported": 2},
        {"unchanged": 2},
        {"unchanged": 1, "conflicts": 1},
        {"changed": 1, "unchanged": 1},
    ]


def test_a_copied_memory_folder_needs_no_path(tmp_path: Path) -> None:
    """It is recognised by its front matter; without session files, the project is asked for."""
    folder = _write(tmp_path, {"copy/heron-nests.md": HERON, "copy/MEMORY.md": "- index", "other/MEMORY.md": "A note of that name."})

    assert [(memory.content[:6], memory.project) for memory in read_memories(folder)] == [("Herons", None), ("# MEMO", None)]
    without_session = _claude_folder(tmp_path / "home")
    (without_session / ".claude/projects/-srv-north-pier/0b1c.jsonl").unlink()
    assert "set it with --project" in read_warnings(without_session)[0]


# basic-memory

PIER = """---
title: North pier
type: note
permalink: main/sites/north-pier
tags:
- site
---

# North pier

Built of oak.

## Observations
- [rule] No cranes in May. #birds (since 2020)
- [Tide Level] High water is at nine.
- [ ] paint the rail
- [00:01:05] a spoken line
- [link](https://example.org) and more

```
- [code] is no observation
```

## Relations
- part_of [[Harbour]]
- looks_at [[Lamp]] (at night)
"""


def test_observations_of_basic_memory_are_memories(tmp_path: Path) -> None:
    """Each has the title and the category; the other text of the note is one more memory; relations are metadata."""
    rule, tide, rest = read_memories(_write(tmp_path, {"sites/North pier.md": PIER}))
    relations = [{"type": "part_of", "target": "Harbour"}, {"type": "looks_at", "target": "Lamp", "context": "at night"}]

    assert (rule.content, rule.type, rule.tags) == ("North pier: No cranes in May. #birds (since 2020)", "rule", ("site", "birds"))
    assert rule.metadata == {
        "basic_memory_id": "main/sites/north-pier",
        "relations": relations,
        "category": "rule",
        "context": "since 2020",
    }
    assert (tide.content, tide.type, tide.project, tide.created_at) == ("North pier: High water is at nine.", "tide-level", "main", MTIME)
    assert rest.type == "documentation"
    assert rest.content == (
        "# North pier\n\nBuilt of oak.\n\n## Observations\n- [ ] paint the rail\n- [00:01:05] a spoken line\n"
        "- [link](https://example.org) and more\n\n```\n- [code] is no observation\n```"
    )


def test_the_database_of_basic_memory_has_the_times_of_its_notes(tmp_path: Path) -> None:
    """They are local ones without a zone."""
    row = (1, "main/sites/north-pier", "sites/North pier.md", "2026-05-01 08:00:00.5", "2026-05-02 08:00:00")
    database = write_database(tmp_path / "memory.db", BASIC_MEMORY, [("entity", row)])
    notes = _write(tmp_path / "notes", {"sites/North pier.md": PIER})
    memories = read_memories(notes, companion=database, timezone=ZoneInfo("Europe/Berlin"))

    assert {(memory.created_at, memory.updated_at) for memory in memories} == {
        (datetime(2026, 5, 1, 6, 0, 0, 500_000, tzinfo=UTC), datetime(2026, 5, 2, 6, tzinfo=UTC))
    }
    with pytest.raises(ValidationFailed, match=r"is not basic-memory's memory\.db"):
        read_memories(notes, companion=write_database(tmp_path / "other.db", "CREATE TABLE a (b)", []))


def test_an_export_of_basic_memory_gives_the_same_memories_as_its_notes(tmp_path: Path) -> None:
    """Its indexes and its log, which names deleted notes, are left out; its relations are in the front matter."""
    exported = PIER.replace(
        "- site\n---",
        "- site\nbm:\n  okf_export:\n    version: 1\n    relations:\n    - type: part_of\n      target: Harbour\n      context: null\n"
        "    - type: looks_at\n      target: Lamp\n      context: at night\n---",
    ).replace("[[Harbour]]", "[Harbour](/Harbour)").replace("[[Lamp]]", "[Lamp](/sites/Lamp.md)")  # fmt: skip
    index = {"index.md": '---\nokf_version: "0.2"\n---\n\n# main\n', "sites/index.md": "# sites\n", "log.md": "# Recorded history\n"}
    export = _write(tmp_path / "export", {"sites/North pier.md": exported, **index})
    notes = _write(tmp_path / "notes", {"sites/North pier.md": PIER})

    assert read_memories(export) == read_memories(notes)


def test_a_note_in_utf_16_is_read_by_its_mark(tmp_path: Path) -> None:
    """Editors of Windows write it. Bytes that are no text are rejected with a reason."""
    (tmp_path / "a.md").write_bytes("Der Käfer sitzt.".encode("utf-16"))
    (tmp_path / "b.md").write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF")
    (tmp_path / "c.md").write_bytes(b"\xff\xfeodd")

    with open_source(make_source(tmp_path)) as entries:
        contents = [entry.content for entry in entries]

    assert [content.memory.content for content in contents if isinstance(content, ImportedMemory)] == ["# a\n\nDer Käfer sitzt."]
    assert [content.reason.partition(" at ")[0] for content in contents if isinstance(content, RejectedItem)] == [
        "the file is not valid UTF-8"
    ] * 2
