"""The full-text index in PostgreSQL: the contract on a real server, its scores, and failures."""

from __future__ import annotations

import asyncio
import math
import os
import random
import zlib
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from rookery.engines import texts
from rookery.engines.texts import TextEngine
from rookery.engines.texts.postgresql import PostgresTextIndex
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import MemoryScope, TextQuery
from rookery.memory.ports import TextFeature
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.engines.conftest import NOW, CloseAtEnd, make_document, make_filter
from tests.engines.engine_contracts import HowTested
from tests.engines.text_contract import TextContract, any_of, fill, find_ids

pytestmark = pytest.mark.external_service

_SERVER = "ROOKERY_TEST_TEXTS_URL"


class TestPostgres(TextContract):
    """The contract. Each folder has a schema of its own, in a database of the class."""

    engine = "`postgresql:`"
    tested_on = HowTested.REAL_SERVER
    tested_with = "PostgreSQL 18"

    lacks = PostgresTextIndex.lacks

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def server(cls, postgres_class_database: str) -> Generator[str]:
        """Use a database of the class. The processes of the contract read its address from the environment."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(_SERVER, postgres_class_database)
            yield postgres_class_database

    @staticmethod
    def open_engine(folder: Path) -> TextEngine:
        return PostgresTextIndex(_select_schema(os.environ[_SERVER], folder), query_timeout_s=HANG_S)

    async def test_a_score_is_bm25(self, index: TextEngine) -> None:
        """PostgreSQL has no bm25, so its parts are read from what it has: each number of occurrences, and words only in tags."""
        contents = {f"m{count:02}": "heron " * count + "pelican " * (40 - count) for count in (1, 2, 3, 31, 32, 33, 40)}
        documents = [make_document(memory_id, content=content) for memory_id, content in contents.items()]
        await index.put(
            [*documents, make_document("tag", content="pelican " * 40, tags=("heron",)), make_document("other", content="roof")]
        )

        hits = await index.search(any_of("heron"), access_filter=make_filter(), limit=20)

        total, found, length = len(contents) + 2, len(contents) + 1, (40 * (len(contents) + 1) + 1) / (len(contents) + 2)
        counts = {"tag": 0.5, **{memory_id: min(content.split().count("heron"), 32) for memory_id, content in contents.items()}}
        norm = 1.2 * (0.25 + 0.75 * 40 / length)
        weight = math.log(1 + (total - found + 0.5) / (found + 0.5))
        expected = {memory_id: weight * count * 2.2 / (count + norm) for memory_id, count in counts.items()}
        assert {hit.memory_id: hit.score for hit in hits} == pytest.approx(expected)

    async def test_phrases_are_found_anywhere_in_the_longest_text(self, index: TextEngine) -> None:
        """PostgreSQL stores 256 positions of a word, up to the 16,383rd word. A text of the maximum length has more."""
        text = "night " * 8_000 + "the night heron"
        await index.put([make_document("a", content=text), make_document("b", content="night " * 300 + "the heron at night")])

        assert await find_ids(index, TextQuery(phrases=("night heron",))) == ["a"]

    async def test_a_text_whose_words_exceed_a_tsvector_is_indexed_up_to_its_limit(self, index: TextEngine) -> None:
        """50,000 different letters of four bytes make 100,000 lexemes, and a `tsvector` has less than 1 MiB."""
        text = "".join(chr(0x20000 + number) for number in range(42_700)) + "".join(chr(0x4E00 + number) for number in range(7_300))
        await index.put([make_document("a", workspace_id=2**62, content=text, tags=("heron",))])

        assert await find_ids(index, access_filter=make_filter(2**62)) == ["a"]
        assert await find_ids(index, TextQuery(any_of=(text[:2],)), access_filter=make_filter(2**62)) == ["a"]

    async def test_a_question_reads_the_documents_of_its_rare_words(self, tmp_path: Path, close_at_end: CloseAtEnd) -> None:
        """A word that most documents have does not decide which ones are scored, but counts in their scores."""
        index = close_at_end(PostgresTextIndex(_select_schema(os.environ[_SERVER], tmp_path), max_scored_documents=20))

        await self.test_a_question_finds_the_best_hits_of_a_search(index)
        await self.test_a_question_uses_frequent_words_if_rare_ones_find_too_few(index)

    async def test_words_of_other_workspaces_change_no_score(self, index: TextEngine) -> None:
        """Statistics are those of the workspace alone."""
        await fill(index, a="heron roof", b="the roof")
        query = TextQuery(any_of=("heron", "roof"), is_question=True)
        before = await index.search(query, access_filter=make_filter(), limit=10)
        await index.put([make_document(f"theirs{number}", workspace_id=2, content="heron " * number) for number in range(1, 30)])

        assert await index.search(query, access_filter=make_filter(), limit=10) == before

    async def test_cancelled_requests_leave_no_connection_behind(self, index: TextEngine) -> None:
        """After many cancelled requests, all connections of the pool are free."""
        await index.put([make_document(f"m{number:02}") for number in range(20)])
        source = random.Random(2)
        for _ in range(20):
            tasks = [asyncio.create_task(find_ids(index)) for _ in range(15)]
            await asyncio.wait(tasks[: source.randrange(1, 15)], return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        results = await asyncio.gather(*(find_ids(index) for _ in range(40)))
        assert {len(result) for result in results} == {20}

    async def test_a_deleted_table_is_created_again(self, index: TextEngine, tmp_path: Path) -> None:
        """The index is derived data; `rookery brain:reindex` fills it again."""
        await index.put([make_document("a")])
        async with await psycopg.AsyncConnection.connect(_select_schema(os.environ[_SERVER], tmp_path), autocommit=True) as connection:
            for write in (True, False):
                await connection.execute("DROP TABLE rookery_texts")
                if write:
                    await index.put([make_document("b")])
                    assert await find_ids(index) == ["b"]
                else:
                    assert await find_ids(index) == []

    async def test_a_query_that_takes_too_long_is_cancelled(self, tmp_path: Path, close_at_end: CloseAtEnd) -> None:
        """No request waits without a bound, and the engine still works."""
        address = _select_schema(os.environ[_SERVER], tmp_path)
        await close_at_end(self.open_engine(tmp_path)).put([make_document()])
        index = close_at_end(PostgresTextIndex(address, query_timeout_s=0.2))
        async with await psycopg.AsyncConnection.connect(address) as connection:
            await connection.execute("LOCK TABLE rookery_texts")
            with pytest.raises(EngineUnavailable, match="statement timeout"):
                await index.count(1)

        assert await close_at_end(self.open_engine(tmp_path)).count(1) == 1

    async def test_an_erasure_keeps_what_was_not_deleted(self, index: TextEngine) -> None:
        """It frees the space of deleted rows; PostgreSQL keeps their bytes until it uses the space again."""
        await fill(index, a="heron", b="heron")
        await index.drop(1, ["a"])
        await index.erase()

        assert await find_ids(index) == ["b"]
        assert TextFeature.ERASURE in PostgresTextIndex.lacks


async def test_narrow_filters_are_answered_by_their_indexes(postgres_database: str, tmp_path: Path) -> None:
    """Otherwise a search for a common word reads all rows with it. Setup creates dropped indexes again."""
    rare = make_document("", content="heron", memory_scope=MemoryScope.SHARED)
    searches = {
        "facets": (replace(rare, tags=("rare",)), make_filter(tags=frozenset({"rare"}))),
        "agents": (
            replace(rare, memory_scope=MemoryScope.AGENT, agent_id="rare"),
            make_filter(agent_id="rare", scopes=frozenset({MemoryScope.AGENT})),
        ),
        "sessions": (
            replace(rare, memory_scope=MemoryScope.SESSION, session_id="rare"),
            make_filter(session_id="rare", scopes=frozenset({MemoryScope.SESSION})),
        ),
        "times": (replace(rare, created_at=NOW + timedelta(hours=2)), make_filter(since=NOW + timedelta(hours=1))),
    }
    index = texts.open(postgres_database, data_dir=tmp_path)
    await index.put([make_document(f"common{number:04}", content="heron") for number in range(4_000)])
    await index.put([replace(document, memory_id=name) for name, (document, _) in searches.items()])
    async with await psycopg.AsyncConnection.connect(postgres_database, autocommit=True) as connection:
        for name in searches:
            await connection.execute(f"DROP INDEX rookery_texts_{name}".encode())
        await index.setup()
        await connection.execute("VACUUM ANALYZE rookery_texts")
        found = {name: await find_ids(index, access_filter=access_filter) for name, (_, access_filter) in searches.items()}
        await index.close()  # a connection reports the use of indexes when it ends, at the latest

        async def are_used() -> bool:
            await connection.execute("SELECT pg_stat_clear_snapshot()")
            cursor = await connection.execute("SELECT indexrelname FROM pg_stat_user_indexes WHERE idx_scan > 0")
            return {name for (name,) in await cursor.fetchall()} >= {f"rookery_texts_{name}" for name in searches}

        await eventually(are_used)

    assert found == {name: [name] for name in searches}


async def test_a_server_that_is_down_is_unavailable(tmp_path: Path) -> None:
    """The error contains no password."""
    index = texts.open("postgresql://user:secret@127.0.0.1:1/none", data_dir=tmp_path)
    with pytest.raises(EngineUnavailable) as error:
        await index.count(1)
    await index.close()

    assert error.value.engine == "texts"
    assert "secret" not in str(error.value)


def _select_schema(server: str, folder: Path) -> str:
    schema = f"s{zlib.crc32(bytes(folder)):x}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
    return f"{server}{'&' if '?' in server else '?'}options={quote(f'-c search_path={schema}')}"
