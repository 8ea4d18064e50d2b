"""Time, ids, events, chores and log lines."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel import logs
from rookery.kernel.clock import format_iso, from_micros, parse_iso, to_micros
from rookery.kernel.events import EventBus
from rookery.kernel.ids import is_uuid, new_request_id, random_text, uuid7
from rookery.kernel.periodic import PeriodicTask, run_periodic_tasks
from tests.conftest import eventually

_MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - made aware by timezones


@given(_MOMENTS)
def test_a_moment_survives_storing_and_showing(moment: datetime) -> None:
    """D-13: times are ISO 8601 UTC with Z; stored as microseconds, exactly."""
    assert from_micros(to_micros(moment)) == moment
    assert parse_iso(format_iso(moment)) == moment
    assert format_iso(moment).endswith("Z")


@given(_MOMENTS, _MOMENTS)
def test_shown_times_sort_as_times(one: datetime, other: datetime) -> None:
    """D-13: texts that sort as what they mean."""
    if one.year >= 1000 and other.year >= 1000:
        assert (format_iso(one) < format_iso(other)) == (one < other)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    """D-10: any overflow in the input returns a clear error."""
    with pytest.raises(ValueError, match=r".+"):
        parse_iso(text)


def test_ids_are_new_sorted_and_of_their_form() -> None:
    """D-13: UUIDv7 for records; D-11: req_ and 20 characters."""
    ids = [uuid7() for _ in range(2000)]

    assert len(set(ids)) == len(ids)
    assert sorted(each[:13] for each in ids) == [each[:13] for each in ids]
    assert all(is_uuid(each) and each[14] == "7" and each[19] in "89ab" for each in ids)
    assert len(new_request_id()) == 24
    assert len(random_text(32)) == 32


def test_a_listener_that_fails_does_not_silence_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """House 6, errors: caught at the top of a bus listener, logged, and the others go on."""

    @dataclass(frozen=True)
    class Happened:
        what: str

    bus, heard = EventBus(), list[str]()

    def fail(event: Happened) -> None:
        raise LookupError(event.what)

    bus.subscribe(Happened, fail)
    bus.subscribe(Happened, lambda event: heard.append(event.what))
    bus.publish(Happened("rain"))
    bus.publish("of another class")

    assert heard == ["rain"]
    assert "LookupError" in "".join(capsys.readouterr())


async def test_a_chore_that_fails_is_tried_again_and_stops_nothing() -> None:
    """House 6, async: every task has an owner; a failing chore is logged and repeated."""
    runs = {"good": 0, "bad": 0}

    async def good() -> None:
        runs["good"] += 1

    async def bad() -> None:
        runs["bad"] += 1
        raise LookupError

    task = asyncio.create_task(
        run_periodic_tasks([PeriodicTask(name="good", interval_s=0.01, run=good), PeriodicTask(name="bad", interval_s=0.01, run=bad)])
    )
    await eventually(lambda: min(runs.values()) >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert task.cancelled()


def test_no_key_is_written_in_any_line() -> None:
    """Spec 5.2 rule 2: not in fields, messages or exceptions, ours or a library's."""
    stream = io.StringIO()
    saved = structlog.get_config()
    key, agent = "sk_live_" + "a" * 32, "ak_" + "B" * 32
    try:
        logs.configure_logging("info", stream)
        log = structlog.stdlib.get_logger("test")
        log.warning(key, field=f"Bearer {agent}", listed=[key])
        log.error("failed", exc_info=LookupError(key))
    finally:
        structlog.configure(**saved)

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["level"] for line in lines] == ["warning", "error"]
    assert key not in stream.getvalue()
    assert agent not in stream.getvalue()
    assert "LookupError" in lines[1]["exception"]
    assert abs(parse_iso(lines[0]["timestamp"]) - datetime.now(UTC)) < timedelta(minutes=1)
