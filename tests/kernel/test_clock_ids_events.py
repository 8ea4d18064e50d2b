"""Times, ids, events, periodic tasks and log lines."""

from __future__ import annotations

import asyncio
import io
import json
import multiprocessing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel import logs
from rookery.kernel.clock import format_iso, from_micros, parse_iso, parse_retry_after, to_micros
from rookery.kernel.events import EventBus
from rookery.kernel.ids import is_uuid, new_request_id, random_text, uuid7
from rookery.kernel.runtime import PeriodicTask, run_periodic_tasks
from tests.conftest import eventually

_MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - made aware by timezones


@given(_MOMENTS)
def test_a_time_is_stored_and_formatted_exactly(moment: datetime) -> None:
    """Times are ISO 8601 in UTC with Z, and are stored as microseconds."""
    assert from_micros(to_micros(moment)) == moment
    assert parse_iso(format_iso(moment)) == moment
    assert format_iso(moment).endswith("Z")


@given(_MOMENTS, _MOMENTS)
def test_formatted_times_sort_like_times(time: datetime, other_time: datetime) -> None:
    """The order of the texts is the order of the times."""
    if time.year >= 1000 and other_time.year >= 1000:
        assert (format_iso(time) < format_iso(other_time)) == (time < other_time)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_an_invalid_time_is_a_value_error(text: str) -> None:
    """Overflows in the input give a clear error too."""
    with pytest.raises(ValueError, match=r".+"):
        parse_iso(text)


def test_ids_are_unique_sorted_and_well_formed() -> None:
    """Records have a UUIDv7, and requests have `req_` with 20 characters."""
    ids = [uuid7() for _ in range(2000)]

    assert len(set(ids)) == len(ids)
    assert sorted(uuid[:13] for uuid in ids) == [uuid[:13] for uuid in ids]
    assert all(is_uuid(uuid) and uuid[14] == "7" and uuid[19] in "89ab" for uuid in ids)
    assert len(new_request_id()) == 24
    assert len(random_text(32)) == 32


def test_forked_processes_make_different_ids() -> None:
    """The random numbers are drawn in blocks. The processes of a server are forks, and none uses what is left of another's block."""
    uuid7()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        tails = [text[-16:] for ids in pool.map(_make_ids, [20, 20], chunksize=1) for text in ids]
    tails += [text[-16:] for text in _make_ids(20)]

    assert len(set(tails)) == 60


def _make_ids(count: int) -> list[str]:
    return [uuid7() for _ in range(count)]


def test_a_failing_listener_does_not_stop_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is logged, and the other listeners run."""

    @dataclass(frozen=True)
    class Happened:
        what: str

    bus, texts = EventBus(), list[str]()

    def fail(event: Happened) -> None:
        raise LookupError(event.what)

    bus.subscribe(Happened, fail)
    bus.subscribe(Happened, lambda event: texts.append(event.what))
    bus.publish(Happened("rain"))
    bus.publish("of another class")

    assert texts == ["rain"]
    assert "LookupError" in "".join(capsys.readouterr())


async def test_a_failing_periodic_task_is_repeated_and_stops_no_other() -> None:
    """The failure is logged."""
    runs = {"good": 0, "bad": 0}

    async def succeed() -> None:
        runs["good"] += 1

    async def fail() -> None:
        runs["bad"] += 1
        raise LookupError

    task = asyncio.create_task(
        run_periodic_tasks([PeriodicTask(name="good", interval_s=0.01, run=succeed), PeriodicTask(name="bad", interval_s=0.01, run=fail)])
    )
    await eventually(lambda: min(runs.values()) >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()


def test_no_log_line_contains_a_key() -> None:
    """This holds for fields, messages and exceptions."""
    stream = io.StringIO()
    saved_config = structlog.get_config()
    key, agent = "sk_live_" + "a" * 32, "ak_" + "B" * 32
    try:
        logs.configure_logging("info", stream)
        log = structlog.stdlib.get_logger("test")
        log.warning(key, field=f"Bearer {agent}", listed=[key])
        log.error("failed", exc_info=LookupError(key))
    finally:
        structlog.configure(**saved_config)

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["warning", "error"]
    assert key not in stream.getvalue()
    assert agent not in stream.getvalue()
    assert "LookupError" in lines[1]["exception"]
    assert abs(parse_iso(lines[0]["timestamp"]) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("120", 120.0),
        ("0.5", 0.5),
        ("-1", None),
        ("inf", None),
        ("soon", None),
        ("Sat, 21 Nov 2026 09:31:00 GMT", 60.0),
        ("Sat, 21 Nov 2026 09:31:00 -0000", 60.0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0.0),
        ("Sat, 01 Jan 20000000000000000000 00:00:00 GMT", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    """RFC 9110, 10.2.3. Webhooks and embedding services send it."""
    assert parse_retry_after(header, datetime(2026, 11, 21, 9, 30, tzinfo=UTC)) == seconds
