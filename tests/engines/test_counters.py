"""The embedded engine of `RateLimitCounter`: the contract, and properties of its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.access.ports import RateLimitCounter
from rookery.engines.counters import open as open_counter
from rookery.engines.counters.embedded import EmbeddedCounter
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect
from tests.engines.counter_contract import START, WINDOW, CounterContract


class TestTheEmbeddedCounter(CounterContract):
    """The contract, for counters in a SQLite file."""

    engine = "`embedded:`"

    lacks = EmbeddedCounter.lacks

    @staticmethod
    def open_engine(folder: Path) -> RateLimitCounter:
        return open_counter("embedded:", data_dir=folder)

    async def test_a_counter_without_its_folder_is_unavailable(self, tmp_path: Path) -> None:
        """Every engine maps its own errors to the error of the port."""
        counter = self.open_engine(tmp_path / "missing")

        with pytest.raises(EngineUnavailable):
            await counter.spend("key", limit=1, window_us=WINDOW, now_us=START)
        with pytest.raises(EngineUnavailable):
            await counter.peek("key", window_us=WINDOW, now_us=START)
        await counter.close()

    async def test_a_counter_with_a_damaged_file_recovers_when_it_is_deleted(self, tmp_path: Path) -> None:
        """The counter is unavailable while the file is damaged."""
        (tmp_path / "counters.db").write_bytes(b"this is not a database" * 1000)
        counter = self.open_engine(tmp_path)
        with pytest.raises(EngineUnavailable):
            await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        (tmp_path / "counters.db").unlink()

        assert (await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)).used == 1
        await counter.close()

    async def test_a_counter_locked_by_another_process_is_unavailable_until_it_is_released(
        self, tmp_path: Path, counter: RateLimitCounter
    ) -> None:
        """A request waits a bounded time, and the count continues afterwards."""
        await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        other = connect(tmp_path / "counters.db")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EngineUnavailable):
            await counter.spend("key", limit=9, window_us=WINDOW, now_us=START)
        other.execute("ROLLBACK")
        other.close()

        assert (await counter.peek("key", window_us=WINDOW, now_us=START)).used == 1


def test_an_unknown_url_is_rejected(tmp_path: Path) -> None:
    """The error is one clear line without the password."""
    with pytest.raises(WrongSettings) as error:
        open_counter("memcached://user:password@host", data_dir=tmp_path)

    assert "password" not in str(error.value)
