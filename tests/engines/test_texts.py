"""The embedded engine of `TextIndex`: the contract, and properties of its file."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from rookery.engines import texts
from rookery.engines.texts import TextEngine
from rookery.engines.texts.embedded import EmbeddedTextIndex, TextIndexLimits
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from tests.engines.conftest import CloseAtEnd, damage, make_document, make_filter, remove
from tests.engines.text_contract import OpenIndex, TextContract, any_of, fill, find_ids


class TestTheEmbeddedIndex(TextContract):
    """The contract, for SQLite's FTS5."""

    engine = "`embedded:`"

    lacks = EmbeddedTextIndex.lacks

    @staticmethod
    def open_engine(folder: Path) -> TextEngine:
        return texts.open("embedded:", data_dir=folder)

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return the path of the engine's file."""
        return tmp_path / "texts.db"

    async def test_a_question_ignores_very_frequent_words(self, path: Path, close_at_end: CloseAtEnd) -> None:
        """`TextQuery.is_question` needs only the best hits; a search still finds all."""
        limits = TextIndexLimits(max_scored_documents=20)

        await self.test_a_question_finds_the_best_hits_of_a_search(close_at_end(EmbeddedTextIndex(path, limits=limits)))

    async def test_a_question_uses_frequent_words_although_it_may_ignore_them(self, path: Path, close_at_end: CloseAtEnd) -> None:
        """Words are ignored only for speed, never at the cost of results."""
        limits = TextIndexLimits(max_scored_documents=1, min_documents_factor=0)

        await self.test_a_question_uses_frequent_words_if_rare_ones_find_too_few(close_at_end(EmbeddedTextIndex(path, limits=limits)))

    @pytest.mark.parametrize("with_journal", [True, False])
    @pytest.mark.parametrize("while_in_use", [True, False])
    async def test_a_deleted_file_is_an_empty_index_that_can_be_filled(
        self, open_index: OpenIndex, path: Path, while_in_use: bool, with_journal: bool
    ) -> None:
        """Derived stores may be deleted and rebuilt by brain:reindex."""
        index = open_index()
        await fill(index, a="heron")
        assert await find_ids(index) == ["a"]
        if not while_in_use:
            await index.close()
            index = open_index()

        remove(path, with_journal=with_journal)

        assert await find_ids(index) == []
        await fill(index, b="heron")
        assert await find_ids(index) == ["b"]
        assert await find_ids(open_index()) == ["b"]

    @pytest.mark.skipif(sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="it needs Linux and two CPUs")
    async def test_a_lone_search_leaves_half_of_the_cpus(self, open_index: OpenIndex) -> None:
        """The words are searched beside the embedding of a question. Searches at the same time may use every CPU."""
        index = open_index()
        await fill(index, a="heron")

        for _ in range(20):
            assert await asyncio.gather(*(find_ids(index) for _ in range(4))) == [["a"]] * 4

        threads = {thread.name: thread.native_id for thread in threading.enumerate() if thread.name.startswith("texts-")}
        cpus = {name: os.sched_getaffinity(native_id) for name, native_id in threads.items() if native_id is not None}
        assert cpus.pop("texts-lone-query_0") == set(sorted(os.sched_getaffinity(0))[: len(os.sched_getaffinity(0)) // 2])
        assert cpus["texts-query_0"] == os.sched_getaffinity(0)

    async def test_a_damaged_file_is_reported_with_a_remedy(self, open_index: OpenIndex, path: Path) -> None:
        """The remedy is to rebuild the index, and it needs no restart."""
        damage(path, at=0)
        index = open_index()

        for call in (index.setup(), index.put([make_document()]), index.search(any_of("heron"), access_filter=make_filter(), limit=1)):
            with pytest.raises(EngineUnavailable, match=r"texts\.db .*delete it.*rookery brain:reindex"):
                await call

        remove(path)
        await fill(index, a="heron")
        assert await find_ids(index) == ["a"]

    async def test_an_unusable_folder_makes_the_engine_unavailable(self, path: Path) -> None:
        """Errors of the engine are mapped to the error of the port."""
        (path.parent / "taken").touch()
        index = texts.open("embedded:", data_dir=path.parent / "taken")

        with pytest.raises(EngineUnavailable, match="taken"):
            await index.start()
        await index.close()

    async def test_damage_inside_the_file_is_reported_with_the_same_remedy(self, open_index: OpenIndex, path: Path) -> None:
        """Such a file opens without an error."""
        index = open_index()
        await index.put([make_document(f"m{number}", content="heron " * 100) for number in range(100)])
        await index.close()
        damage(path, at=4096)

        with pytest.raises(EngineUnavailable, match=r"texts\.db .*delete it.*rookery brain:reindex"):
            await find_ids(open_index())

    async def test_a_query_that_takes_too_long_is_interrupted(self, path: Path) -> None:
        """No request waits without a bound, and the engine still works."""
        index = EmbeddedTextIndex(path, timeout_s=0)
        try:
            await index.put([make_document(f"m{number}") for number in range(3000)])

            with pytest.raises(EngineUnavailable, match="took longer"):
                await index.search(any_of("heron"), access_filter=make_filter(), limit=1)

            assert await index.search(any_of("unknown"), access_filter=make_filter(), limit=1) == []
        finally:
            await index.close()


def test_an_unknown_engine_is_rejected(tmp_path: Path) -> None:
    """The error is one line without the URL, which may contain a password."""
    with pytest.raises(WrongSettings) as error:
        texts.open("nothing://user:secret@host", data_dir=tmp_path)

    assert "secret" not in error.value.message
