"""The full-text index on real nodes of OpenSearch and Elasticsearch: the contract, and what happens if a server fails."""

from __future__ import annotations

import asyncio
import os
import signal
import zlib
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import httpx2
import pytest

from rookery.engines import texts
from rookery.engines.texts import TextEngine
from rookery.engines.texts.elastic import ElasticTextIndex
from rookery.engines.texts.elastic_connection import parse_address
from rookery.engines.texts.elastic_query import MAPPINGS
from rookery.kernel.errors import EngineReadOnly, EngineUnavailable, WrongSettings
from rookery.memory.text_queries import parse_question
from tests.deadlines import HANG_S
from tests.engines.conftest import make_document, make_filter
from tests.engines.engine_contracts import HowTested
from tests.engines.text_contract import TextContract, any_of, fill, find_ids
from tests.search_servers import Kind, SearchNode, make_data_folder, run_search_node

pytestmark = pytest.mark.external_service

_HERON = any_of("heron")


def _name_index(folder: Path) -> str:
    return f"test-{zlib.crc32(bytes(folder)):x}"


class _ElasticContract(TextContract):
    """The contract on a node. Each folder has an index of its own."""

    lacks = ElasticTextIndex.lacks

    @classmethod
    def run_node(cls, kind: Kind) -> Generator[SearchNode]:
        """Run a node for the tests of the class. The processes of the contract read its address from the environment."""
        with make_data_folder() as data, run_search_node(kind, data) as node, pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROOKERY_TEST_SEARCH_PORT", str(node.port))
            yield node

    @staticmethod
    def open_engine(folder: Path) -> TextEngine:
        address = f"elasticsearch://127.0.0.1:{os.environ['ROOKERY_TEST_SEARCH_PORT']}/{_name_index(folder)}"
        return ElasticTextIndex(parse_address(address), query_timeout_s=HANG_S)

    async def test_the_index_has_the_fields_of_the_specification(self, index: TextEngine, node: SearchNode, tmp_path: Path) -> None:
        """Names, keywords, a date, a content with English analysis. Other programs may search it."""
        await fill(index, a="The herons were nesting.")
        assert await find_ids(index, any_of("nest")) == ["a"]
        async with httpx2.AsyncClient(base_url=node.url, timeout=HANG_S) as client:
            mapping = (await client.get(f"/{_name_index(tmp_path)}/_mapping")).json()
            (fields,) = (entry["mappings"]["properties"] for entry in mapping.values())
            body = {"query": {"match": {"content": "nest"}}}
            response = await client.post(f"/{_name_index(tmp_path)}/_search", json=body)
            settings = (await client.get(f"/{_name_index(tmp_path)}/_settings")).json()

        keywords = ("id", "org", "project", "type", "agent_id", "tags", "source")
        assert {name: fields[name]["type"] for name in keywords} == dict.fromkeys(keywords, "keyword")
        assert (fields["content"]["type"], fields["content"]["analyzer"]) == ("text", "english")
        assert fields["created_at"]["type"] == "date"
        assert fields.keys() == cast("dict[str, object]", MAPPINGS["properties"]).keys()
        assert [hit["_source"]["id"] for hit in response.json()["hits"]["hits"]] == ["a"]
        assert list(settings) == [f"{_name_index(tmp_path)}-1"]

    async def test_a_deleted_index_is_created_again_with_its_fields(self, index: TextEngine, node: SearchNode, tmp_path: Path) -> None:
        """The server would otherwise guess the types of the fields, and filters would match other documents."""
        await index.put([make_document()])
        async with httpx2.AsyncClient(base_url=node.url, timeout=HANG_S) as client:
            for write in (True, False):
                await client.delete(f"/{_name_index(tmp_path)}-1")
                if write:
                    await index.put([make_document("b")])
                    assert await find_ids(index) == ["b"]
                else:
                    assert await find_ids(index) == []

    async def test_an_index_without_some_fields_gets_them(self, index: TextEngine, node: SearchNode, tmp_path: Path) -> None:
        """An index that has all fields is used as it is, and one without some is extended before the first write."""
        properties = cast("dict[str, object]", MAPPINGS["properties"])
        fewer = {name: field for name, field in properties.items() if name != "language_stems"}
        no_filter: dict[str, object] = {}
        body = {"mappings": {"dynamic": "strict", "properties": fewer}, "aliases": {_name_index(tmp_path): no_filter}}
        async with httpx2.AsyncClient(base_url=node.url, timeout=HANG_S) as client:
            (await client.put(f"/{_name_index(tmp_path)}-1", json=body)).raise_for_status()

        await index.put([make_document(content="Die Häuser sind auf dem Berg.")])

        assert await find_ids(index, parse_question("Haus")) == ["a"]

    async def test_more_results_than_one_search_returns_are_reached(self, index: TextEngine) -> None:
        """The servers return at most 10,000 results of a search at a time; pages continue beyond."""
        total = 10_050
        for start in range(0, total, 2_000):
            await index.put([make_document(f"m{number:05}") for number in range(start, min(start + 2_000, total))])

        assert await find_ids(index, limit=20, offset=10_020) == [f"m{number:05}" for number in range(10_020, 10_040)]
        assert await find_ids(index, limit=100, offset=10_040) == [f"m{number:05}" for number in range(10_040, total)]

    async def test_erased_words_are_in_no_file(self, index: TextEngine, node: SearchNode) -> None:
        """`erase` removes the words of deleted documents from every file of the index."""
        word = "zeppelin"
        await index.put([make_document("a", content=word), make_document("b")])
        assert await find_ids(index, any_of(word)) == ["a"]
        await index.drop(1, ["a"])
        await index.erase()

        data = Path(str(node.process.args[-2]))  # pyright: ignore[reportIndexIssue, reportUnknownArgumentType] - the command
        assert [path for path in data.rglob("*") if path.is_file() and word.encode() in path.read_bytes()] == []
        assert await find_ids(index) == ["b"]


class TestOpenSearch(_ElasticContract):
    """The contract on OpenSearch."""

    engine = "`opensearch:`"
    tested_on = HowTested.REAL_SERVER
    tested_with = "OpenSearch 3.8"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def node(cls) -> Generator[SearchNode]:
        """Run OpenSearch."""
        yield from cls.run_node("opensearch")


class TestElasticsearch(_ElasticContract):
    """The contract on Elasticsearch."""

    engine = "`elasticsearch:`"
    tested_on = HowTested.REAL_SERVER
    tested_with = "Elasticsearch 9.5 without its other modules"

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def node(cls) -> Generator[SearchNode]:
        """Run Elasticsearch."""
        yield from cls.run_node("elasticsearch")


class TestFailures:
    """Faults of the server."""

    @pytest.fixture(scope="class")
    @classmethod
    def node(cls) -> Generator[SearchNode]:
        """Run OpenSearch."""
        with make_data_folder() as data, run_search_node("opensearch", data) as node:
            yield node

    async def test_a_server_that_does_not_answer_is_unavailable_in_time(self, node: SearchNode) -> None:
        """Every wait is bounded, and the index works again afterwards."""
        async with _open(f"opensearch://127.0.0.1:{node.port}/stopped") as index:
            await index.put([make_document()])
        async with _open(f"opensearch://127.0.0.1:{node.port}/stopped", query_timeout_s=1.0) as index:
            node.process.send_signal(signal.SIGSTOP)
            try:
                with pytest.raises(EngineUnavailable, match="no answer within 1 s"):
                    await index.search(_HERON, access_filter=make_filter(), limit=1)
            finally:
                node.process.send_signal(signal.SIGCONT)
        async with _open(f"opensearch://127.0.0.1:{node.port}/stopped") as index:
            assert await find_ids(index) == ["a"]

    async def test_a_full_server_rejects_writes_and_answers_queries(self, node: SearchNode) -> None:
        """A server whose disk is full makes its indexes read-only."""
        async with (
            _open(f"opensearch://127.0.0.1:{node.port}/full") as index,
            httpx2.AsyncClient(base_url=node.url, timeout=HANG_S) as client,
        ):
            await index.put([make_document()])
            await client.put("/full-1/_settings", json={"index.blocks.read_only_allow_delete": True})
            with pytest.raises(EngineReadOnly, match="cluster_block_exception"):
                await index.put([make_document("b")])

            assert await find_ids(index) == ["a"]
            await client.put("/full-1/_settings", json={"index.blocks.read_only_allow_delete": None})
            await index.put([make_document("b")])
            assert await find_ids(index) == ["a", "b"]

    async def test_a_server_that_is_down_is_unavailable(self, node: SearchNode) -> None:
        """The error names neither the address nor the password."""
        async with _open("opensearch://user:password@127.0.0.1:1/x") as index:
            with pytest.raises(EngineUnavailable) as error:
                await index.put([make_document()])

        assert error.value.engine == "texts"
        assert "password" not in str(error.value)
        assert node.process.poll() is None

    async def test_an_answer_that_is_not_json_is_an_outage(self) -> None:
        """A proxy may answer in place of the server."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\n<html")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
        async with server, _open(f"opensearch://127.0.0.1:{port}") as index:
            with pytest.raises(EngineUnavailable, match="did not answer in JSON"):
                await index.setup()

    async def test_concurrent_queries_share_refreshes(self, node: SearchNode) -> None:
        """Each of many queries sees the writes before it, and not each of them needs a refresh of its own."""
        async with _open(f"opensearch://127.0.0.1:{node.port}/shared") as index:
            await index.put([make_document()])
            found = await asyncio.gather(*(index.search(_HERON, access_filter=make_filter(), limit=5) for _ in range(100)))
            async with httpx2.AsyncClient(base_url=node.url, timeout=HANG_S) as client:
                statistics = (await client.get("/shared/_stats/refresh")).json()

        assert {tuple(hit.memory_id for hit in hits) for hits in found} == {("a",)}
        assert statistics["_all"]["primaries"]["refresh"]["external_total"] < 20


@asynccontextmanager
async def _open(address: str, *, query_timeout_s: float = HANG_S) -> AsyncGenerator[ElasticTextIndex]:
    index = ElasticTextIndex(parse_address(address), query_timeout_s=query_timeout_s)
    try:
        yield index
    finally:
        await index.close()


@pytest.mark.parametrize(
    "address",
    [
        "elasticsearch://",
        "elasticsearch://h/Upper",
        "opensearch://h:0",
        "opensearch://h?shards=x",
        "opensearch://u:secret@h?shards=0",
        "opensearch://h?x=1",
    ],
)
def test_an_invalid_address_is_rejected(address: str, tmp_path: Path) -> None:
    """The error is one clear line without the password."""
    with pytest.raises(WrongSettings, match="invalid address; use elasticsearch://") as error:
        texts.open(address, data_dir=tmp_path)

    assert "secret" not in str(error.value)


def test_an_address_selects_index_and_copies(tmp_path: Path) -> None:
    """The index is rookery-memories by default; TLS is chosen by the scheme."""
    server = parse_address("opensearch+https://u:p%40ss@[::1]:9201?shards=3&replicas=2")

    assert (server.base_url, server.index, server.shards, server.replicas) == ("https://[::1]:9201", "rookery-memories", 3, 2)
    assert server.password is not None
    assert (server.user, server.password.reveal()) == ("u", "p@ss")
    assert isinstance(texts.open("elasticsearch://h", data_dir=tmp_path), ElasticTextIndex)
