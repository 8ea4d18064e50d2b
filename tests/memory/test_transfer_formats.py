"""Import formats besides JSON Lines: Markdown notes, agents' instruction files, mem0 exports."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rookery.kernel.errors import ValidationFailed
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer import formats
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import ImportRequest
from rookery.memory.transfer.markdown_documents import build_parser, parse_document, split_document
from tests.memory.makers import MemoryRig
from tests.memory.transfers import EVERYTHING, NOON, Transfers, lines_of_kind, make_source, read_memories, read_rejections, read_warnings

MTIME = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)

NOTE = """---
tags: [Infra, "#db/pg", 2024]
type: decision
org: acme
project: web
confidence: 0.9
created: 2024-05-01
updated: 2024-05-02T10:00:00+02:00
---
We chose #Postgres over mysql. `#notag`, issue #12, [x](#link).

## Why

Because of [[jsonb]] #why/so.

```
# no heading #notag
```
"""

AGENTS = """# AGENTS.md

A web shop.

## Style

- Use tabs, never spaces.
- Prefer small functions:
  - at most 20 lines
  - one job

Always:

* run `make check`
* [ ] say why in a comment

<!-- for people only -->

### Names

Nouns for data.

## Deploy

1. build
2. push

```sh
make deploy  # not a heading
```
"""


def _write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        os.utime(path, (MTIME.timestamp(), MTIME.timestamp()))
    return folder


def _contents(memories: list[Memory]) -> list[str]:
    return [memory.content for memory in memories]


def test_a_note_is_a_memory_with_the_fields_of_its_front_matter(tmp_path: Path) -> None:
    """Tags of the text are added, and the title becomes the first heading."""
    (memory,) = read_memories(_write(tmp_path, {"infra/Database choice.md": NOTE}))

    assert memory.content.startswith("# Database choice\n\nWe chose #Postgres over mysql.")
    assert memory.content.endswith("# no heading #notag\n```")
    assert memory.tags == ("infra", "db/pg", "2024", "postgres", "why/so")
    assert (memory.type, memory.org, memory.project, memory.confidence, memory.source) == (
        "decision",
        "acme",
        "web",
        0.9,
        "infra/Database choice.md",
    )
    assert (memory.created_at, memory.updated_at) == (datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 2, 8, tzinfo=UTC))


def test_a_note_without_front_matter_has_defaults(tmp_path: Path) -> None:
    """The defaults are the file's time, and its name as title; line ends and a byte order mark are normalized."""
    files = {"a.md": "\ufeffOne\r\ntwo\r\n", "b.md": "# Own title\ntext", "c.md": "---\nnot fields\n---\ntext", "empty.md": "\n \n"}
    plain_note, note_with_title, note_with_rules = read_memories(_write(tmp_path, files))

    assert _contents([plain_note, note_with_title]) == ["# a\n\nOne\ntwo", "# Own title\ntext"]
    assert note_with_rules.content.startswith("# c\n\n---\nnot fields")
    assert (plain_note.type, plain_note.project, plain_note.created_at) == ("documentation", None, MTIME)


def test_each_section_can_be_a_memory(tmp_path: Path) -> None:
    """Each section has its parent headings; a heading without text is skipped."""
    text = "# Guide\n\nStart here.\n\n## Deploy\n\n### Rollback\n\nUndo it.\n\n## Test\n\nRun it."
    memories = read_memories(_write(tmp_path, {"guide.md": text}), split_by="section")

    assert _contents(memories) == [
        "# Guide\n\nStart here.",
        "# Guide\n## Deploy\n### Rollback\n\nUndo it.",
        "# Guide\n## Test\n\nRun it.",
    ]


PARAGRAPHS = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=120)
BLOCKS = st.lists(st.tuples(st.sampled_from(["", "# ", "## ", "### "]), PARAGRAPHS), max_size=12)


@settings(max_examples=150, deadline=None)
@given(blocks=BLOCKS, max_chars=st.integers(60, 400))
def test_long_notes_are_split_without_loss(blocks: list[tuple[str, str]], max_chars: int) -> None:
    """They are split at headings; no piece is too long, and every letter is in a piece."""
    text = "\n\n".join(heading_mark + words for heading_mark, words in blocks)
    pieces = split_document(parse_document(text, build_parser()), max_chars=max_chars)

    assert all(0 < len(piece) <= max_chars for piece in pieces)
    letters = "".join(char for piece in pieces for char in piece if char.isalnum())
    assert len(letters) >= sum(char.isalnum() for char in text)
    for _, words in blocks:
        assert len(words) > max_chars // 3 or any(words in piece for piece in pieces)


def test_a_note_of_a_hundred_thousand_characters_becomes_several_memories(tmp_path: Path) -> None:
    """Each memory has at most 50,000 characters."""
    text = "# Log\n\n" + "\n\n".join(f"## Day {day}\n\n" + "It rained again. " * 300 for day in range(20))
    memories = read_memories(_write(tmp_path, {"log.md": text}))

    assert (len(memories), max(len(memory.content) for memory in memories) <= 50_000) == (3, True)
    assert memories[1].content.startswith("# Log\n## Day ")


def test_instruction_files_of_agents_become_conventions(tmp_path: Path) -> None:
    """Sections and bullets of CLAUDE.md and AGENTS.md are memories; the project is the folder."""
    folder = _write(tmp_path, {"shop/AGENTS.md": AGENTS, "shop/.claude/CLAUDE.md": "- be kind\n", "shop/notes.txt": "no"})
    memories = read_memories(folder)

    assert (
        _contents(memories)
        == [
            "A web shop.",
            "Style: Use tabs, never spaces.",
            "Style:\n\nPrefer small functions:\n- at most 20 lines\n- one job",
            "Style: Always: run `make check`",
            "Style: Always: say why in a comment",
            "Style – Names: Nouns for data.",
            "Deploy:\n\n1. build\n2. push\n\n```sh\nmake deploy  # not a heading\n```",
            "be kind",
        ]
        or _contents(memories)[0] == "be kind"
    )
    assert {(memory.type, memory.project, memory.memory_scope) for memory in memories} == {("convention", "shop", MemoryScope.PROJECT)}
    assert {memory.tags for memory in memories} == {(), ("style",), ("names",), ("deploy",)}


def test_the_project_is_the_repository(tmp_path: Path) -> None:
    """The instructions of a package belong to the project of its repository."""
    folder = _write(tmp_path, {"web/.git/HEAD": "", "web/packages/api/CLAUDE.md": "- be kind"})

    assert [memory.project for memory in read_memories(folder / "web" / "packages" / "api" / "CLAUDE.md")] == ["web"]


def test_a_linked_file_is_read_once(tmp_path: Path) -> None:
    """CLAUDE.md is often a link to AGENTS.md; links to outside of the folder are not followed."""
    folder = _write(tmp_path, {"shop/AGENTS.md": "- be kind", "elsewhere/secret.md": "outside of the folder"})
    (folder / "shop" / "CLAUDE.md").symlink_to("AGENTS.md")
    (folder / "shop" / "out").symlink_to(folder / "elsewhere")
    (folder / "shop" / "out.md").symlink_to(folder / "elsewhere" / "secret.md")

    assert _contents(read_memories(folder / "shop")) == ["be kind"]


async def test_unchanged_notes_are_stored_once(rig: MemoryRig, tmp_path: Path) -> None:
    """A changed note is stored as another memory; a copy of instructions is not stored."""
    folder = _write(tmp_path, {"a.md": "one", "AGENTS.md": "- be kind", "CLAUDE.md": "- be kind"})
    first, _ = await Transfers(rig).import_source(folder)
    (folder / "a.md").touch()
    second, rejections = await Transfers(rig).import_source(folder)
    (folder / "a.md").write_text("one and more", encoding="utf-8")
    third, _ = await Transfers(rig).import_source(folder)

    assert [(report.counts["imported"], report.counts["unchanged"], report.failures) for report in (first, second, third)] == [
        (2, 1, 0), (0, 3, 0), (1, 2, 0),
    ]  # fmt: skip
    assert rejections == []


async def test_bad_front_matter_never_costs_the_note(rig: MemoryRig, tmp_path: Path) -> None:
    """Bad values are warnings with file and line; a file without readable text is rejected with its name and a reason."""
    folder = _write(
        tmp_path,
        {
            "bad-yaml.md": "---\na: [\n---\ntext",
            "bomb.md": "---\na: &a [x,x]\nb: &b [*a,*a]\ntags: [*b,*b]\n---\ntext",
            "confidence.md": "---\nconfidence: much\n---\ntext",
            "deep.md": "---\na: " + "[" * 3000 + "\n---\ntext",
            "huge.md": f"---\nconfidence: 1{'0' * 400}\n---\ntext",
            "long.md": f"---\ntitle: {'x' * 50_001}\ntags: [0x{'f' * 5_000}]\n---\ntext",
            "merges.md": "---\na0: &a0 {x: 1}\n"
            + "".join(f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 10)}]}}\n" for level in range(1, 12))
            + "---\ntext",
            "moment.md": "---\ncreated: !!timestamp noon\n---\ntext",
            "scope.md": "---\nscope: everyone\n---\ntext",
            "type.md": "---\ntype: Some Type\n---\ntext",
            "good.md": "text",
        },
    )
    (folder / "latin.md").write_bytes(b"caf\xe9")
    (folder / "large.md").write_bytes(b"x" * (8 * 1024 * 1024 + 1))
    Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.md")).write_bytes(b"A name of bytes.")
    os.mkfifo(folder / "pipe.md")  # opening it would block until there is a writer

    report, rejections = await Transfers(rig).import_source(folder)

    assert (report.counts["imported"], [item.why.partition(":")[0] for item in rejections]) == (12, ["large.md", "latin.md"])
    places = [warning.partition(":")[0] for warning in report.warnings]
    assert list(dict.fromkeys(places)) == [
        "bad-yaml.md, line 2", "bomb.md, line 3", "bomb.md, line 4", "confidence.md, line 2", "deep.md, line 2", "huge.md, line 2",
        *(f"merges.md, line {number}" for number in range(3, 14)), "moment.md, line 2", "scope.md, line 2", "type.md, line 2",
    ]  # fmt: skip


CONTENTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), min_size=1).filter(lambda text: bool(text.strip()))


@settings(max_examples=60, deadline=None)
@given(content=CONTENTS, tag=CONTENTS.map(lambda text: text[:20].lower()).filter(lambda text: bool(text.strip())))
@example(content="0", tag="0\x85")
def test_a_memory_exported_as_a_note_is_imported_unchanged(content: str, tag: str) -> None:
    """All fields stay the same, whatever characters they have."""
    memory = Memory(
        id="01a1ffbc-790a-7a77-8719-390c77d7371e", workspace_id=0, org=tag[:9], project="../up", agent_id=None, session_id=None,
        memory_scope=MemoryScope.PROJECT, type="fact", tags=(tag,), confidence=0.1, base_confidence=0.3, source=tag, content=content,
        content_at=NOON, created_at=NOON, updated_at=MTIME, archived_at=NOON,
    )  # fmt: skip
    if not memory.org or not memory.org.strip():
        return
    with TemporaryDirectory() as name:
        target = formats.create_note_folder(Path(name))
        target.write_header()
        target.write_memory(TransferRecord(memory=memory))

        assert read_memories(Path(name)) == [memory]
        (path,) = (path for path in Path(name).rglob("*") if path.is_file())
        assert (path.stat().st_mode & 0o777, path.resolve().is_relative_to(Path(name).resolve())) == (0o600, True)


async def test_exported_notes_have_readable_file_names(rig: MemoryRig, tmp_path: Path) -> None:
    """No content of a name leads out of the folder."""
    memory = await rig.remember("Grüße vom / Dach!\nmehr", org="../../etc", project="Web Shop")
    await MemoryExport(db=rig.db, clock=rig.clock).run(EVERYTHING, formats.create_note_folder(tmp_path / "out"))

    (path,) = (path for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert path.relative_to(tmp_path / "out").as_posix() == f"etc/web-shop/grue-vom-dach-{memory.id}.md"
    assert _contents(read_memories(tmp_path / "out")) == ["Grüße vom / Dach!\nmehr"]


OPEN_SOURCE = {
    "results": [
        {
            "id": "3C90C3CC-0d44-4b50-8888-8dd25736052a", "memory": "Likes tea.", "hash": "x", "metadata": {"category": "drinks"},
            "created_at": "2024-07-01T10:00:00.123456-07:00", "updated_at": "2024-07-02T10:00:00-07:00", "user_id": "alice",
        },
        {"id": "7", "memory": "Speaks French.", "created_at": None, "updated_at": None, "agent_id": "tutor", "user_id": "alice"},
        {"id": "8", "memory": "Is in a hurry.", "run_id": "r-1", "agent_id": "tutor", "metadata": {"type": "observation"}},
    ]
}  # fmt: skip
PLATFORM = {
    "memory": "Uses vim.",
    "id": "9",
    "user_id": "bob",
    "app_id": "ide",
    "categories": ["tools", "editors"],
    "expiration_date": "2030-01-31",
}
OPENMEMORY = {
    "id": "3c90c3cc-0d44-4b50-8888-8dd25736052b", "content": "Prefers dark mode.", "created_at": "2025-01-01T00:00:00+00:00",
    "updated_at": "2025-01-01T00:00:00+00:00", "state": "archived", "app": "cursor", "categories": ["ui"],
}  # fmt: skip


def test_ids_of_mem0_become_scopes() -> None:
    """run_id and agent_id select the scope, user_id becomes a tag, and UUIDs stay as ids."""
    tea, french, hurry = read_memories(orjson.dumps(OPEN_SOURCE))

    assert (tea.id, tea.content, tea.type, tea.memory_scope, tea.tags) == (
        "3c90c3cc-0d44-4b50-8888-8dd25736052a",
        "Likes tea.",
        "fact",
        MemoryScope.PROJECT,
        ("user:alice", "drinks"),
    )
    assert (tea.created_at, tea.updated_at) == (
        datetime(2024, 7, 1, 17, 0, 0, 123456, tzinfo=UTC),
        datetime(2024, 7, 2, 17, tzinfo=UTC),
    )
    assert (french.memory_scope, french.agent_id, french.created_at) == (MemoryScope.AGENT, "tutor", NOON)
    assert (hurry.memory_scope, hurry.session_id, hurry.agent_id, hurry.type) == (MemoryScope.SESSION, "r-1", "tutor", "observation")


@pytest.mark.parametrize(
    "source",
    [
        orjson.dumps(OPEN_SOURCE, option=orjson.OPT_INDENT_2),
        orjson.dumps(OPEN_SOURCE["results"]),
        b"\n".join(orjson.dumps(entry) for entry in OPEN_SOURCE["results"]) + b"\n",
        gzip.compress(b"\n" + orjson.dumps({"count": 3, "next": None, "results": OPEN_SOURCE["results"]})),
        orjson.dumps([{"id": entry["id"], "payload": {**entry, "data": entry["memory"]}} for entry in OPEN_SOURCE["results"]]),
    ],
    ids=["document", "list", "lines", "gzip", "payloads"],
)
def test_every_export_format_of_mem0_is_read(source: bytes) -> None:
    """The formats are those of the library, the server, the platform's pages and vector stores."""
    assert _contents(read_memories(source)) == ["Likes tea.", "Speaks French.", "Is in a hurry."]


def test_further_fields_of_the_platform_and_openmemory_are_read(tmp_path: Path) -> None:
    """These are categories, expiry, app and archived; deleted memories are not imported."""
    (platform_memory,) = read_memories(orjson.dumps([PLATFORM]))
    archive_bytes = io.BytesIO()
    with zipfile.ZipFile(archive_bytes, "w") as archive:
        archive.writestr("memories.json", b"{}")
        lines = b"\n".join(orjson.dumps(entry) for entry in (OPENMEMORY, {**OPENMEMORY, "state": "deleted"}))
        archive.writestr("memories.jsonl.gz", gzip.compress(lines))
    (tmp_path / "export.zip").write_bytes(archive_bytes.getvalue())
    (openmemory_memory,) = read_memories(tmp_path / "export.zip")

    assert (platform_memory.project, platform_memory.tags, platform_memory.expires_at) == (
        "ide",
        ("user:bob", "tools", "editors"),
        datetime(2030, 2, 1, tzinfo=UTC),
    )
    assert (openmemory_memory.content, openmemory_memory.project, openmemory_memory.tags, openmemory_memory.archived_at is not None) == (
        "Prefers dark mode.",
        "cursor",
        ("ui",),
        True,
    )


async def test_a_repeated_mem0_import_stores_nothing_new(rig: MemoryRig) -> None:
    """Ids may be UUIDs or not; a memory that changed in mem0 is a conflict."""
    transfers = Transfers(rig)
    reports = [(await transfers.import_source(orjson.dumps(OPEN_SOURCE)))[0] for _ in range(2)]
    changed_report, conflicts = await transfers.import_source(orjson.dumps(OPEN_SOURCE).replace(b"Likes tea.", b"Likes coffee."))

    assert [(report.counts["imported"], report.counts["unchanged"]) for report in reports] == [(3, 0), (0, 3)]
    assert (changed_report.counts["conflicts"], conflicts[0].why) == (1, "entry 1: it is already stored with another content")


def test_invalid_entries_are_rejected_with_their_position() -> None:
    """An entry without a text does not stop the others; an unreadable time is a warning."""
    lines = b'{"memory": "good"}\n{"memory": 1}\nnot json\n[]\n{"memory": "x", "created_at": "soon"}\n'

    assert read_rejections(lines) == [
        "line 2: memory: is missing; a memory needs one of memory, content, data or text",
        "line 3: the entry is not a JSON object",
        "line 4: the entry is not a JSON object",
    ]
    assert read_warnings(lines) == [
        "standard input, line 5: created_at: 'soon' is not a time in ISO 8601, nor a number of seconds; it was left out"
    ]
    assert read_rejections(b'{"answer": {}')[0].startswith("the file: the file is not valid JSON: ")
    assert read_rejections(b'{"answer": {}}')[0].startswith("the file: it has no memories in a form that is known: a list of mem0, ")


def test_a_truncated_archive_is_reported(tmp_path: Path) -> None:
    """A truncated archive is read up to its end."""
    compressed = gzip.compress(b"".join(orjson.dumps({"memory": os.urandom(40).hex()}) + b"\n" for _ in range(2_000)))
    (tmp_path / "cut.gz").write_bytes(compressed[: len(compressed) // 2])

    rejections = read_rejections(tmp_path / "cut.gz")
    assert len(rejections) == 1
    assert "reading failed" in rejections[0]


@pytest.mark.parametrize("source", [b"PK\x03\x04broken", b"# a note", b"\x89PNG\r\n", b"%PDF-1.4"])
def test_an_unknown_format_is_rejected(source: bytes) -> None:
    """The error comes before anything is stored."""
    with pytest.raises(ValidationFailed):
        read_memories(source)


def test_an_endless_line_is_not_read_into_memory() -> None:
    """A line that is too long for a memory is skipped."""
    header = b'{"kind":"rookery-memories","version":1}\n'
    rejections = read_rejections(header + b"x" * (5 * 1024 * 1024) + b'\n{"kind":"end"}\n')

    assert rejections == ["line 2: the line is too long for a memory"]


async def test_imported_files_cannot_select_a_workspace(rig: MemoryRig) -> None:
    """The workspace is the one of the command."""
    lines = orjson.dumps([{"memory": "x", "workspace_id": 2, "workspace": "other"}])
    await Transfers(rig).import_source(lines, ImportRequest(workspace_id=1))

    assert [
        len(lines_of_kind(await Transfers(rig).export_lines(replace(EVERYTHING, workspace_id=number)), "memory")) for number in (1, 2)
    ] == [1, 0]


def test_import_formats_are_detected(tmp_path: Path) -> None:
    """An explicit --from has precedence over the detection."""
    folder = _write(tmp_path, {"AGENTS.md": "- be kind\n- be brief"})

    assert _contents(read_memories(folder / "AGENTS.md", import_format="markdown")) == ["# AGENTS\n\n- be kind\n- be brief"]
    assert _contents(read_memories(_write(tmp_path, {"rules.md": "- be kind"}) / "rules.md", import_format="agents-md")) == ["be kind"]
    for import_format in ("jsonl", "mem0"):
        with pytest.raises(ValidationFailed):
            read_memories(folder, import_format=import_format)
    assert make_source(b"").import_format == "auto"
