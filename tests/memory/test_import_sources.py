"""Imports of other programs' memories, from small files in the forms that these programs write."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import orjson
import pytest

from rookery.kernel.errors import ValidationFailed
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.store import transfer
from rookery.memory.transfer.formats import open_source
from rookery.memory.transfer.importing import ImportRequest
from rookery.memory.transfer.items import ImportedMemory, ImportOverrides
from rookery.memory.transfer.label_mappings import parse_mapping
from tests.memory.makers import MemoryRig, make_caller
from tests.memory.sqlite_sources import (
    LANGGRAPH,
    MCP_MEMORY_SERVICE,
    MEM0_HISTORY,
    MEMORI,
    OPEN_WEBUI,
    write_database,
    write_palace,
)
from tests.memory.transfers import EVERYTHING, NOON, Transfers, make_source, nonzero_counts, read_memories, read_rejections, read_warnings

HERON = "5b0c1f0e-8d53-4f0e-9d0a-3a8f1c6f2a10"
OTTER = "6c1d2f1e-9e64-4a1f-8e1b-4b9f2d7f3b21"


def _lines(*values: Mapping[str, object]) -> bytes:
    return b"\n".join(orjson.dumps(value) for value in values) + b"\n"


def _recognise(source: bytes | Path, **options: object) -> str | None:
    with open_source(make_source(source, **options)) as entries:
        for _ in entries:
            pass
    return entries.progress.recognised


def _read_imported(source: bytes | Path) -> list[ImportedMemory]:
    with open_source(make_source(source)) as items:
        return [item.content for item in items if isinstance(item.content, ImportedMemory)]


def _refuse(source: bytes | Path, **options: object) -> str:
    with pytest.raises(ValidationFailed) as caught:
        read_memories(source, **options)
    return caught.value.message


def _by_content(memories: Sequence[Memory]) -> dict[str, Memory]:
    return {memory.content: memory for memory in memories}


# All programs


def test_what_python_writes_as_json_costs_no_memory() -> None:
    """NaN, half of a letter beyond U+FFFF and NUL are in one field; all other texts are whole."""
    document = """{"results": [{"memory": "Herons \\ud83d nest \\ud83d\\ude00.", "score": NaN}, {"memory": "Cranes\\u0000 turn."}]}"""
    lines = document.removeprefix('{"results": [').removesuffix("]}").replace("}, {", "}\n{")

    for source in (document.encode(), lines.encode(), document.encode("utf-16")):
        assert [memory.content for memory in read_memories(source)] == ["Herons \ufffd nest \U0001f600.", "Cranes turn."]
    assert [memory.metadata for memory in read_memories(document.encode())] == [{}, {}]


# mem0


def test_a_mem0_memory_is_kept_to_the_end_of_its_last_day() -> None:
    """mem0's expiration_date is the last day, in UTC; a value with a time is that time."""
    lines = _lines(
        {"memory": "The crane is rented.", "expiration_date": "2030-01-31"},
        {"memory": "The pier is closed.", "expiration_date": "2030-01-31T08:00:00+02:00"},
    )

    assert [memory.expires_at for memory in read_memories(lines)] == [
        datetime(2030, 2, 1, tzinfo=UTC),
        datetime(2030, 1, 31, 6, tzinfo=UTC),
    ]


def test_own_fields_in_a_mem0_payload_are_metadata_and_tags() -> None:
    """A vector store's payload has the author's fields beside mem0's own; a Qdrant scroll has a list of such points."""
    payload = {
        "data": "Herons nest on the pier.", "hash": "h", "user_id": "kim", "tags": ["birds"], "category": "site", "project": "harbour",
        "created_at": "2026-03-01T10:00:00+01:00", "text_lemmatized": "heron nest", "role": "assistant",
    }  # fmt: skip
    scroll = {"result": {"points": [{"id": HERON, "payload": payload}], "next_page_offset": None}}
    rows, (point,) = read_memories(_lines({"id": HERON, "payload": payload})), read_memories(orjson.dumps(scroll))

    assert rows == [replace(point, created_at=rows[0].created_at)]
    assert point.tags == ("user:kim", "site", "birds")
    assert point.metadata == {"mem0_id": HERON, "tags": ["birds"], "category": "site", "project": "harbour", "role": "assistant"}
    assert (point.id, point.created_at) == (HERON, datetime(2026, 3, 1, 9, tzinfo=UTC))


@pytest.mark.parametrize(("count", "is_warned"), [(19, False), (20, True), (21, False), (100, True)])
def test_a_mem0_list_as_long_as_its_default_limit_is_warned_about(count: int, *, is_warned: bool) -> None:
    """get_all returns 20 memories by default, and older versions 100, without a word."""
    warnings = read_warnings(orjson.dumps({"results": [{"memory": f"Berth {number} is free."} for number in range(count)]}))

    assert [("top_k=1000000" in warning, f"exactly {count} memories" in warning) for warning in warnings] == [(True, True)] * is_warned


async def test_older_versions_of_mem0_become_history(rig: MemoryRig, tmp_path: Path) -> None:
    """history.db has the older texts; deleted memories stay deleted."""
    day = "2026-01-0{}T00:00:00+00:00".format
    rows = [
        ("1", HERON, None, "The gate opens at 7.", "ADD", day(1), day(1), 0, None, "user"),
        ("2", HERON, "The gate opens at 7.", "The gate opens at 8.", "UPDATE", day(1), day(2), 0, None, "user"),
        ("3", HERON, "The gate opens at 8.", "The gate opens at 9.", "UPDATE", day(1), day(3), 0, None, "user"),
        ("4", OTTER, "The old crane.", None, "DELETE", day(1), day(3), 1, None, "user"),
    ]
    history = write_database(tmp_path / "history.db", MEM0_HISTORY, [("history", row) for row in rows])
    memory = {"id": HERON, "memory": "The gate opens at 9.", "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-03T00:00:00Z"}
    transfers = Transfers(rig)

    reports = [(await transfers.import_source(_lines(memory), companion=history))[0] for _ in range(2)]
    chain = await rig.services.records.history(make_caller(), HERON)

    assert [nonzero_counts(report) for report in reports] == [{"imported": 3}, {"unchanged": 3}]
    assert [(entry.content, entry.archived_at is None) for entry in chain if isinstance(entry, Memory)] == [
        ("The gate opens at 7.", False),
        ("The gate opens at 8.", False),
        ("The gate opens at 9.", True),
    ]
    assert "import the result of get_all" in _refuse(history)
    (tmp_path / "text.db").write_text("no database", encoding="utf-8")
    for companion in (tmp_path / "text.db", tmp_path / "missing.db"):
        assert f"{companion} cannot be read as a SQLite file: " in _refuse(_lines(memory), companion=companion)
    assert "only mem0 and basic-memory" in _refuse(_lines({"type": "entity", "name": "a", "observations": []}), companion=history)


async def test_a_newer_version_can_be_taken(rig: MemoryRig) -> None:
    """By default the stored memory stays, and the report says which option takes the newer one; feedback and history stay."""
    transfers = Transfers(rig)
    first = {"id": HERON, "memory": "The gate opens at 7.", "updated_at": "2026-01-01T00:00:00Z", "metadata": {"tags": ["gate"]}}
    second = {**first, "memory": "The gate opens at 8.", "updated_at": "2026-01-02T00:00:00Z", "metadata": {"tags": ["gate", "winter"]}}
    newer = ImportRequest(workspace_id=1, takes_newer=True)
    await transfers.import_source(_lines(first))
    await transfers.run_jobs()

    kept_report, (conflict,) = await transfers.import_source(_lines(second))
    dry_report, (dry_item,) = await transfers.import_source(_lines(second), replace(newer, dry_run=True))
    report, _ = await transfers.import_source(_lines(second), newer)
    again, _ = await transfers.import_source(_lines(second), newer)
    older, _ = await transfers.import_source(_lines(first), newer)
    await transfers.run_jobs()
    stored = await rig.services.records.get(make_caller(), HERON)

    assert (nonzero_counts(kept_report), conflict.why.endswith("--on-conflict newer takes it")) == ({"conflicts": 1}, True)
    assert [nonzero_counts(item) for item in (dry_report, report, again, older)] == [
        {"changed": 1}, {"changed": 1}, {"unchanged": 1}, {"unchanged": 1},
    ]  # fmt: skip
    assert (dry_item.action, stored.content, stored.tags) == ("change", "The gate opens at 8.", ("gate", "winter"))
    assert stored.updated_at == datetime(2026, 1, 2, tzinfo=UTC)
    assert stored.indexed_at is not None


# server-memory

GRAPH: list[dict[str, object]] = [
    {"type": "entity", "name": "north pier", "entityType": "site", "observations": ["It is closed in May.", "Herons nest there."]},
    {"type": "entity", "name": "Kim", "entityType": "person", "observations": []},
    {"type": "relation", "from": "Kim", "to": "north pier", "relationType": "looks after"},
]


def test_observations_and_relations_of_server_memory_are_memories(tmp_path: Path) -> None:
    """Its file and the result of read_graph give the same memories; their time is that of the file."""
    file = tmp_path / "memory.jsonl"
    file.write_bytes(_lines(*GRAPH).rstrip())
    graph = {"entities": [{key: value for key, value in entity.items() if key != "type"} for entity in GRAPH[:2]], "relations": GRAPH[2:]}
    (tmp_path / "graph.json").write_bytes(orjson.dumps(graph, option=orjson.OPT_INDENT_2))
    memories = read_memories(file)

    assert [memory.content for memory in memories] == [memory.content for memory in read_memories(tmp_path / "graph.json")]
    assert [(memory.content, memory.tags) for memory in memories] == [
        ("north pier: It is closed in May.", ("north pier", "site")),
        ("north pier: Herons nest there.", ("north pier", "site")),
        ("Kim looks after north pier", ("Kim", "north pier")),
    ]
    assert memories[0].metadata == {"server_memory_id": "north pier", "entity": "north pier", "entity_type": "site"}
    assert memories[0].created_at == datetime.fromtimestamp(file.stat().st_mtime, tz=UTC)
    assert _recognise(file) == "a graph of server-memory, as JSON lines"


# mcp-memory-service


def _add_row(number: int, content_hash: str, content: str, **fields: object) -> tuple[str, Sequence[object]]:
    values = {
        "id": number, "content_hash": content_hash, "content": content, "tags": "harbour,project:pier", "memory_type": "note",
        "metadata": '{"user": "kim"}', "created_at": 1_790_000_000.25 + number, "updated_at": 1_790_000_000.25 + number, **fields,
    }  # fmt: skip
    return f"memories({', '.join(values)})", list(values.values())


async def test_the_file_of_mcp_memory_service_is_imported_with_its_versions(rig: MemoryRig, tmp_path: Path) -> None:
    """Deleted memories stay deleted though the file has their text; an older version is archived, in the history of the newer."""
    rows = [
        _add_row(1, "a1", "Tide tables are in the blue folder.", memory_type="Reference", confidence=0.5),
        _add_row(2, "b2", "The ferry leaves at 9.", superseded_by="c3", metadata='{"superseded_by": "c3"}'),
        _add_row(3, "c3", "The ferry leaves at 10.", parent_id="b2", version=2, store="work"),
        _add_row(4, "d4", "A secret that was deleted.", deleted_at=1_790_000_100.0),
        _add_row(5, "e5", "The lamp is green.", metadata="not json", memory_type="No such type!", created_at="soon"),
    ]
    file = write_database(tmp_path / "sqlite_vec.db", MCP_MEMORY_SERVICE, rows)
    transfers = Transfers(rig)
    report, rejections = await transfers.import_source(file)
    again, _ = await transfers.import_source(file)
    memories = _by_content(read_memories(file))
    ferry = next(memory for memory in await _list_stored(rig) if memory.content == "The ferry leaves at 10.")
    history = [entry.content for entry in await rig.services.records.history(make_caller(), ferry.id) if isinstance(entry, Memory)]

    assert (nonzero_counts(report), nonzero_counts(again), rejections) == ({"imported": 4}, {"unchanged": 4}, [])
    assert history == ["The ferry leaves at 9.", "The ferry leaves at 10."]
    tides, old = memories["Tide tables are in the blue folder."], memories["The ferry leaves at 9."]
    assert (tides.type, tides.confidence, tides.tags) == ("reference", 0.5, ("harbour", "project:pier"))
    assert tides.created_at == datetime.fromtimestamp(1_790_000_001.25, tz=UTC)
    assert old.archived_at is not None
    assert memories["The ferry leaves at 10."].metadata == {"mcp_memory_service_id": "c3", "user": "kim", "store": "work", "version": 2}
    lamp = memories["The lamp is green."]
    assert (lamp.type, lamp.metadata) == ("observation", {"mcp_memory_service_id": "e5"})
    assert [warning.partition(": ")[2].partition(":")[0] for warning in report.warnings] == ["metadata", "created_at", "type"]
    assert all(warning.startswith("sqlite_vec.db, row 5 of memories: ") for warning in report.warnings)


async def _list_stored(rig: MemoryRig) -> list[Memory]:
    records = await rig.db.read(lambda tx: transfer.list_batch(tx, EVERYTHING, at=rig.clock(), after="", limit=100))
    return [record.memory for record in records]


def test_the_export_of_mcp_memory_service_has_times_in_seconds() -> None:
    """It has both versions of a memory, linked by the metadata of the older one alone."""
    export: dict[str, object] = {
        "export_metadata": {"exporter_version": "5.0.1"},
        "memories": [
            {"content": "The ferry leaves at 10.", "content_hash": "c3", "tags": ["Ferry"], "created_at": 1_790_000_003.5, "metadata": {}},
            {
                "content": "The ferry leaves at 9.", "content_hash": "b2", "tags": [], "created_at": 1_790_000_002,
                "metadata": {"superseded_by": "c3"},
            },
        ],
    }  # fmt: skip
    new, old = _read_imported(orjson.dumps(export))

    assert new.supersedes == old.identity == ("mcp-memory-service", "b2")
    assert [memory.archived_at is None for memory in read_memories(orjson.dumps(export))] == [True, False]
    assert read_memories(orjson.dumps(export))[0].created_at == datetime.fromtimestamp(1_790_000_003.5, tz=UTC)


async def test_damaged_versions_of_mcp_memory_service_cost_only_their_links(rig: MemoryRig) -> None:
    """Two that name each other as the newer one, one that names itself, and one without a hash are all imported, once."""
    links = {"a1": "b2", "b2": "a1", "c3": "c3", "d4": "none"}
    memories: list[dict[str, object]] = [
        {"content": f"Version {name}.", "content_hash": name, "created_at": 1_790_000_000, "metadata": {"superseded_by": newer}}
        for name, newer in links.items()
    ]
    source = orjson.dumps({"export_metadata": {}, "memories": [*memories, {"content": "No hash.", "created_at": 1_790_000_000}]})
    transfers = Transfers(rig)

    first, _ = await transfers.import_source(source)
    second, _ = await transfers.import_source(source)

    assert (nonzero_counts(first), nonzero_counts(second)) == ({"imported": 5}, {"unchanged": 5})


# LangGraph


def test_items_of_a_langgraph_store_are_memories(tmp_path: Path) -> None:
    """The SQLite file has naive times in UTC, but expiry with an offset; an item without a text is kept as JSON."""
    at, crane_text = "2026-05-01 08:00:00", b'{"content": "The crane lifts 9 t.", "tags": ["crane"], "weight": 9}'
    rows: list[tuple[str, Sequence[object]]] = [
        ("store", ("memories.kim.pier", "m1", crane_text, at, at, "2031-01-01 10:00:00.5+02:00", 60.0)),
        ("store", ("prefs", "m2", b'{"colour": "blue"}', at, at, None, None)),
        ("store", ("prefs", "m3", b"{broken", at, at, None, None)),
    ]
    file = write_database(tmp_path / "store.db", LANGGRAPH, rows)
    item = {
        "namespace": ["memories", "kim", "pier"],
        "key": "m1",
        "value": {"content": "The crane lifts 9 t.", "tags": ["crane"], "weight": 9},
    }
    (from_lines,) = read_memories(_lines({**item, "created_at": "2026-05-01T08:00:00", "score": None}))
    crane, colour = (imported.memory for imported in _read_imported(file))

    assert (
        (crane.content, crane.tags) == (from_lines.content, from_lines.tags) == ("The crane lifts 9 t.", ("ns:memories.kim.pier", "crane"))
    )
    assert crane.metadata == from_lines.metadata == {"langgraph_id": "memories.kim.pier/m1", "weight": 9}
    assert crane.created_at == from_lines.created_at == datetime(2026, 5, 1, 8, tzinfo=UTC)
    assert crane.expires_at == datetime(2031, 1, 1, 8, 0, 0, 500_000, tzinfo=UTC)
    assert colour.content == '{"colour":"blue"}'
    assert read_rejections(file) == ["item prefs/m3: value: is not JSON"]


# MemPalace


def test_pieces_of_a_palace_are_joined_and_its_times_get_a_zone(tmp_path: Path) -> None:
    """A long text is cut inside words; its times are local ones without a zone."""
    field = {
        "wing": "harbour",
        "room": "north",
        "added_by": "kim",
        "filed_at": "2026-05-01T09:00:00.5",
        "source_file": "",
        "chunk_index": 0,
    }
    rows: list[dict[str, object]] = [
        {"id": "drawer_b_chunk_000001", **field, "parent_drawer_id": "drawer_b", "chunk_index": 1, "chroma:document": "rons nest."},
        {"id": "drawer_b_chunk_000000", **field, "parent_drawer_id": "drawer_b", "chroma:document": "He"},
        {"id": "drawer_a", **field, "chroma:document": "The lamp is green.", "last_modified": "2026-05-02T09:00:00"},
        {"id": "drawer_c_chunk_000001", **field, "parent_drawer_id": "drawer_c", "chunk_index": 1, "chroma:document": "half"},
        {"id": "drawer_c_chunk_000002", **field, "parent_drawer_id": "drawer_c", "chunk_index": 2, "chroma:document": " a text"},
    ]
    file = write_palace(tmp_path / "chroma.sqlite3", rows)
    memories = _by_content(read_memories(file, timezone=ZoneInfo("Asia/Tokyo")))

    herons, lamp = memories["Herons nest."], memories["The lamp is green."]
    assert (herons.project, herons.tags, herons.type) == ("harbour", ("north", "added-by:kim"), "documentation")
    assert (herons.metadata, herons.created_at) == ({"mempalace_id": "drawer_b"}, datetime(2026, 5, 1, 0, 0, 0, 500_000, tzinfo=UTC))
    assert lamp.updated_at == datetime(2026, 5, 2, tzinfo=UTC)
    assert read_warnings(file, timezone=UTC) == [
        "chroma.sqlite3, drawer drawer_c: chunk_index: pieces are missing or doubled: the store has 1, 2"
    ]
    assert "--timezone" in read_warnings(file)[0]


def test_a_markdown_export_of_a_palace_is_refused(tmp_path: Path) -> None:
    """It has pieces of texts, which would become broken memories."""
    (tmp_path / "harbour").mkdir()
    (tmp_path / "index.md").write_text("# Palace Export — 2026-05-01\n\n| Wing |\n", encoding="utf-8")
    (tmp_path / "harbour" / "north.md").write_text("# harbour / north\n\n## drawer_a\n\n> The lamp is green.\n", encoding="utf-8")

    assert "import the file chroma.sqlite3" in _refuse(tmp_path)
    assert "import the file chroma.sqlite3" in read_rejections(tmp_path / "harbour")[0]


# Graphiti, Memori, Open WebUI, Letta


def test_a_fact_of_graphiti_that_has_ended_is_archived() -> None:
    """An invalid or expired fact never comes in as a live one."""
    fact = {
        "uuid": "f1",
        "group_id": "kim",
        "name": "OPENS_AT",
        "fact": "The gate opens at 7.",
        "created_at": "2026-05-01T08:00:00",
        "valid_at": None,
    }
    ended = {**fact, "uuid": "f2", "fact": "The gate opened at 6.", "invalid_at": "2026-05-02T08:00:00+09:00"}
    live, old = read_memories(orjson.dumps({"edges": [fact, ended]}))

    assert (live.tags, live.archived_at, live.created_at) == (("group:kim", "OPENS_AT"), None, datetime(2026, 5, 1, 8, tzinfo=UTC))
    assert old.archived_at == datetime(2026, 5, 1, 23, tzinfo=UTC)
    assert [memory.content for memory in read_memories(orjson.dumps(fact, option=orjson.OPT_INDENT_2))] == ["The gate opens at 7."]


def test_facts_of_memori_belong_to_users(tmp_path: Path) -> None:
    """Its naive times are UTC."""
    rows: list[tuple[str, Sequence[object]]] = [
        ("memori_entity", (7, "e", "kim")),
        ("memori_entity_fact", (1, "f1", 7, "Kim sails.", b"", 3, "2026-05-01 08:00:00", "u", "2026-05-01 08:00:00", None)),
    ]
    (memory,) = read_memories(write_database(tmp_path / "memori.db", MEMORI, rows))

    assert (memory.content, memory.tags, memory.metadata) == ("Kim sails.", ("user:kim",), {"memori_id": "f1", "num_times": 3})
    assert memory.created_at == datetime(2026, 5, 1, 8, tzinfo=UTC)


def test_memories_of_open_webui_have_times_in_seconds_or_milliseconds(tmp_path: Path) -> None:
    """The database and the JSON list give the same memories."""
    rows = [
        {"id": "m1", "user_id": "kim", "content": "Kim sails.", "updated_at": 1_790_000_001, "created_at": 1_790_000_000},
        {"id": "m2", "user_id": "kim", "content": "Kim rows.", "updated_at": 1_790_000_001_000, "created_at": 1_790_000_000_000},
    ]
    from_list = read_memories(orjson.dumps(rows))
    from_file = read_memories(write_database(tmp_path / "webui.db", OPEN_WEBUI, [("memory", list(row.values())) for row in rows]))

    assert from_list == from_file
    assert {(memory.created_at, memory.updated_at) for memory in from_list} == {
        (datetime.fromtimestamp(1_790_000_000, tz=UTC), datetime.fromtimestamp(1_790_000_001, tz=UTC))
    }


def test_blocks_of_a_letta_agent_belong_to_the_agent() -> None:
    """Empty blocks and messages are no memories."""
    file = {
        "agents": [{"name": "pilot", "block_ids": ["block-0", "block-1"], "messages": [{"content": "hello"}]}],
        "blocks": [
            {"id": "block-0", "label": "human", "value": "Kim sails.", "description": "About the user"},
            {"id": "block-1", "label": "persona", "value": " "},
        ],
        "created_at": "2026-05-01T08:00:00Z",
    }
    (memory,) = read_memories(orjson.dumps(file))

    assert (memory.content, memory.agent_id, memory.memory_scope, memory.tags) == ("Kim sails.", "pilot", MemoryScope.AGENT, ("human",))
    assert (memory.metadata, memory.created_at) == (
        {"letta_id": "block-0", "description": "About the user"},
        datetime(2026, 5, 1, 8, tzinfo=UTC),
    )


# What cannot be imported


@pytest.mark.parametrize("document", [[{"title": "x", "mapping": {}, "current_node": "n"}], [{"uuid": "u", "chat_messages": []}]])
def test_exports_of_conversations_are_refused_with_the_reason(document: object) -> None:
    """They have messages, not memories."""
    (reason,) = read_rejections(orjson.dumps(document))

    assert "it has whole conversations, not memories" in reason


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("CREATE TABLE points (id TEXT, point BLOB)", "its rows are Python pickles"),
        ("CREATE TABLE a (b); CREATE TABLE c (d)", "its tables are a, c"),
        ("CREATE TABLE memories (a); CREATE TABLE tombstones (a); CREATE TABLE memory_tags (a)", "export it with `rookery export`"),
        (
            "CREATE TABLE embeddings (id, segment_id, embedding_id); CREATE TABLE embedding_metadata (id, key, string_value)",
            "a Chroma database",
        ),
    ],
)  # fmt: skip
def test_databases_are_recognised_by_their_tables(schema: str, reason: str, tmp_path: Path) -> None:
    """A file that cannot be imported is named, with what to do instead."""
    assert reason in _refuse(write_database(tmp_path / "some.db", schema, []))


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    """The error comes before anything is stored, or names where reading stopped."""
    (tmp_path / "bad.db").write_bytes(b"SQLite format 3\0" + b"x" * 500)

    assert "cannot be read as a SQLite file" in _refuse(tmp_path / "bad.db")
    assert "name the unpacked file" in _refuse((tmp_path / "bad.db").read_bytes())


@pytest.mark.parametrize("is_open", [True, False])
def test_rows_in_a_write_ahead_log_are_read(tmp_path: Path, *, is_open: bool) -> None:
    """A program that still runs has its last rows there. The import leaves no file behind."""
    file = tmp_path / "webui.db"
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(OPEN_WEBUI)
    connection.execute("INSERT INTO memory VALUES ('m1', 'kim', 'Kim sails.', 1790000000, 1790000000)")
    connection.commit()
    if not is_open:
        connection.close()
    before = sorted(path.name for path in tmp_path.iterdir())

    assert [memory.content for memory in read_memories(file)] == ["Kim sails."]
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    connection.close()


# Mappings


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        ("user:kim=agent:pilot", ("agent", "pilot", None, ("crane",))),
        ("user:*=agent:*", ("agent", "kim", None, ("crane",))),
        ("user:ki*=agent:x-*", ("agent", "x-m", None, ("crane",))),
        ("user:kim=project:harbour", ("project", None, "harbour", ("crane",))),
        ("user:kim=tag:owner", ("project", None, None, ("crane", "owner"))),
        ("tag:crane=project:lifting", ("project", None, "lifting", ("user:kim",))),
        ("user:bo=agent:bo", ("project", None, None, ("user:kim", "crane"))),
    ],
)
def test_a_mapping_moves_a_user_or_tag_into_a_field(mapping: str, expected: tuple[object, ...]) -> None:
    """A memory that moves to an agent has scope agent; * stands for any name."""
    (memory,) = read_memories(_lines({"memory": "The crane lifts 9 t.", "user_id": "kim", "categories": ["crane"]}))
    mapped = ImportOverrides(mappings=(parse_mapping(mapping),)).apply_to(memory)

    assert (mapped.memory_scope.value, mapped.agent_id, mapped.project, mapped.tags) == expected


def test_a_mapping_from_an_agent_gives_up_its_scope() -> None:
    """A memory of an agent that becomes a user's is one of the project."""
    (memory,) = read_memories(_lines({"memory": "The crane lifts 9 t.", "agent_id": "pilot"}))
    mapped = ImportOverrides(mappings=(parse_mapping("agent:pilot=user:kim"),)).apply_to(memory)

    assert (mapped.memory_scope, mapped.agent_id, mapped.tags) == (MemoryScope.PROJECT, None, ("user:kim",))


@pytest.mark.parametrize("text", ["user", "user:kim", "user:kim=", "user:=agent:x", "user:kim=agent:*", "a:b=c:d=e:f"])
def test_a_text_that_is_no_mapping_is_refused(text: str) -> None:
    """The error names the form."""
    with pytest.raises(ValueError, match=r"user:bo=agent:bo|before it"):
        parse_mapping(text)


# Limits


async def test_what_does_not_fit_costs_a_warning_and_not_the_memory(rig: MemoryRig) -> None:
    """Too many tags, long names and large metadata are shortened or left out."""
    entry = {
        "memory": "The crane lifts 9 t.", "app_id": "p" * 300, "categories": [f"t{number}" for number in range(80)], "updated_at": [],
        "metadata": {**{f"k{number}": number for number in range(80)}, "big": "x" * 20_000, "tags": 5, "nul": "a\0b"},
    }  # fmt: skip
    report, rejections = await Transfers(rig).import_source(_lines(entry))

    assert (nonzero_counts(report), rejections) == ({"imported": 1}, [])
    assert sorted({warning.split(": ")[1] for warning in report.warnings}) == ["metadata", "project", "tags", "updated_at"]


def test_no_more_than_a_thousand_warnings_are_listed() -> None:
    """Memory use does not depend on the number of memories."""
    lines = _lines(*({"memory": f"Berth {number} is free.", "created_at": "soon"} for number in range(1_500)))
    with open_source(make_source(lines)) as entries:
        assert sum(1 for _ in entries) == 1_500

    assert (len(entries.progress.warnings), entries.progress.warning_count) == (1_000, 1_500)


def test_the_default_time_is_that_of_the_file_or_of_the_import(tmp_path: Path) -> None:
    """Standard input has no time of its own."""
    (tmp_path / "m.json").write_bytes(_lines({"memory": "x"}))

    assert read_memories(_lines({"memory": "x"}))[0].created_at == NOON
    assert abs(read_memories(tmp_path / "m.json")[0].created_at - datetime.now(UTC)) < timedelta(minutes=5)
