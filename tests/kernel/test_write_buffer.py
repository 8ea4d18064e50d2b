"""The buffer of rows that are written in batches (`kernel.write_buffer`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.write_buffer import WriteBuffer
from tests.conftest import eventually


@dataclass
class RowStore:
    """A store that rejects some rows, and all rows while it is down."""

    is_down: bool = False
    rejected: frozenset[int] = frozenset()
    batches: list[list[int]] = field(default_factory=list[list[int]])

    async def write(self, batch: Sequence[int]) -> None:
        """Store a batch, as a whole or not at all."""
        if self.is_down:
            raise EngineUnavailable("database", "it is down")
        if self.rejected & set(batch):
            msg = "constraint violated"
            raise ValueError(msg)
        self.batches.append(list(batch))


async def test_rows_are_written_in_order_and_in_batches() -> None:
    """A batch is one transaction (redesign 4)."""
    store = RowStore()
    buffer = WriteBuffer(store.write, name="test.rows", batch_size=2)

    for number in range(5):
        buffer.add(number)
    await buffer.flush()

    assert store.batches == [[0, 1], [2, 3], [4]]
    assert len(buffer) == 0


async def test_rows_are_written_without_a_call_after_the_delay() -> None:
    """A row needs no call after `add`."""
    store = RowStore()
    buffer = WriteBuffer(store.write, name="test.rows", delay_s=0.001)

    buffer.add(1)
    await eventually(lambda: store.batches == [[1]])
    await buffer.aclose()

    assert store.batches == [[1]]


async def test_rows_stay_in_order_while_the_store_is_down() -> None:
    """A failed write loses nothing and changes no order."""
    store = RowStore(is_down=True)
    buffer = WriteBuffer(store.write, name="test.rows", batch_size=2)
    for number in range(3):
        buffer.add(number)

    with pytest.raises(EngineUnavailable):
        await buffer.flush()
    store.is_down = False
    buffer.add(3)
    await buffer.flush()

    assert store.batches == [[0, 1], [2, 3]]
    assert buffer.dropped == 0


async def test_a_rejected_row_does_not_block_the_others() -> None:
    """The store rejects one row of a batch: the others are written."""
    store = RowStore(rejected=frozenset({1}))
    buffer = WriteBuffer(store.write, name="test.rows")
    for number in range(3):
        buffer.add(number)

    await buffer.flush()

    assert store.batches == [[0], [2]]
    assert (len(buffer), buffer.dropped) == (0, 1)


async def test_a_full_buffer_drops_the_newest_or_the_oldest_rows() -> None:
    """Usage keeps its oldest rows, training its newest."""
    newest, oldest = RowStore(), RowStore()
    keeps_old = WriteBuffer(newest.write, name="test.rows", max_rows=2, drops="newest")
    keeps_new = WriteBuffer(oldest.write, name="test.rows", max_rows=2, drops="oldest")
    for number in range(4):
        keeps_old.add(number)
        keeps_new.add(number)

    await keeps_old.flush()
    await keeps_new.flush()

    assert (newest.batches, oldest.batches) == ([[0, 1]], [[2, 3]])
    assert (keeps_old.dropped, keeps_new.dropped) == (2, 2)


async def test_a_cancelled_write_loses_no_row() -> None:
    """The row returns to the buffer."""
    started, store = asyncio.Event(), RowStore()

    async def write(batch: Sequence[int]) -> None:
        if not started.is_set():
            started.set()
            await asyncio.Event().wait()
        await store.write(batch)

    buffer = WriteBuffer(write, name="test.rows")
    buffer.add(1)
    flushing = asyncio.create_task(buffer.flush())
    await started.wait()
    flushing.cancel()
    await asyncio.wait([flushing])
    await buffer.flush()

    assert store.batches == [[1]]


async def test_an_awake_buffer_writes_without_rows() -> None:
    """The owner may have values of its own, such as counts by key."""
    store = RowStore()
    buffer = WriteBuffer(store.write, name="test.rows")

    await buffer.flush()
    buffer.wake()
    await buffer.flush()
    await buffer.flush()

    assert store.batches == [[]]


async def test_closing_writes_the_last_rows_and_counts_those_that_are_lost() -> None:
    """A shutdown writes the buffer; with a broken store the loss is counted."""
    working, broken = RowStore(), RowStore(is_down=True)
    written = WriteBuffer(working.write, name="test.rows", delay_s=60)
    lost = WriteBuffer(broken.write, name="test.rows", delay_s=60)
    written.add(1)
    lost.add(1)

    await written.aclose()
    await lost.aclose()

    assert working.batches == [[1]]
    assert (len(lost), lost.dropped) == (0, 1)
