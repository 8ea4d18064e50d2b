"""The journal of sends on disks that fail, and journals that do not count."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rookery.kernel.clock import utc_now
from rookery.kernel.db.leases import make_worker_id
from rookery.notifications.messages import ChannelType, SendOutcome, SendResult
from rookery.notifications.models import ChannelStatus, SubscriberChannel
from rookery.notifications.send_journal import MAX_JOURNAL_BYTES, JournalContent, SendJournal
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store.queue import ClaimedNotification


def _attempt(id_: str, outcome: SendOutcome = SendOutcome.SENT, *, reason: str | None = None) -> SendAttempt:
    now = utc_now()
    channel = SubscriberChannel(
        id="c", workspace_id=1, subscriber_id="s", position=0, type=ChannelType.WEBHOOK, address="http://127.0.0.1/", p256dh="", auth="",
        host="127.0.0.1", status=ChannelStatus.ACTIVE, status_reason=None, last_confirmed_at=None, created_at=now,
    )  # fmt: skip
    claim = ClaimedNotification(
        id=id_, workspace_id=1, campaign_id="n", external_id="e", channel=channel, locale=None, attributes="{}", attempt_number=1,
        used_attempts=0, due_at=now, expires_at=now + timedelta(hours=1),
    )  # fmt: skip
    result = SendResult(outcome=outcome, status=204, reason=reason)
    return SendAttempt(claim=claim, result=result, started_at=now, ended_at=now, duration_s=0.5)


@pytest.fixture
def journal(tmp_path: Path) -> SendJournal:
    """Return a journal in an empty folder."""
    return SendJournal(tmp_path / "sends")


def _read(journal: SendJournal, worker_id: str) -> JournalContent:
    content = journal.read(worker_id)
    assert content is not None
    return content


def test_a_journal_has_what_began_and_what_ended(journal: SendJournal) -> None:
    """Another process reads the attempts and their results."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    assert journal.begin(("one", 1))
    assert journal.begin(("two", 1))
    journal.finish(_attempt("one", SendOutcome.GONE, reason="The receiver answered 410."))
    content = _read(journal, worker_id)

    assert set(content.begun) == {("one", 1), ("two", 1)}
    assert {attempt: result.result for attempt, result in content.results.items()} == {
        ("one", 1): SendResult(outcome=SendOutcome.GONE, status=204, reason="The receiver answered 410.")
    }


def test_a_line_that_was_cut_off_did_not_begin(journal: SendJournal) -> None:
    """The line is written before the message, so an incomplete line is of a message that was not sent."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    journal.begin(("one", 1))
    (file,) = journal.folder.iterdir()
    with file.open("ab") as stream:
        stream.write(b'{"begun":[["two"')

    assert set(_read(journal, worker_id).begun) == {("one", 1)}


def test_a_damaged_journal_does_not_count(journal: SendJournal) -> None:
    """Without a journal all claims are unknown, so nothing is sent twice."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    journal.begin(("one", 1))
    (file,) = journal.folder.iterdir()
    file.write_bytes(b"\x00\x00\n" + file.read_bytes())

    assert journal.read(worker_id) is None


@pytest.mark.parametrize("start", ["00000000-0000-0000-0000-000000000000-77", "0123456789abcdef"], ids=["another boot", "no boot"])
def test_a_journal_of_an_earlier_boot_does_not_count(journal: SendJournal, start: str) -> None:
    """When the system stopped, the last lines may be lost with its memory."""
    worker_id = f"{socket.gethostname()}:1:{start}:a"
    journal.open(worker_id)
    journal.begin(("one", 1))

    assert journal.read(worker_id) is None


def test_a_large_journal_is_written_again_with_what_is_open(journal: SendJournal) -> None:
    """It does not grow with the campaign, and loses nothing that the record store lacks."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    journal.begin(("open", 1))
    unstored = _attempt("unstored", reason="x" * 400)
    journal.begin(unstored.claim.attempt_key)
    journal.finish(unstored)
    stored = [_attempt(f"stored{number}", reason="x" * 500) for number in range(MAX_JOURNAL_BYTES // 500)]
    for attempt in stored:
        journal.begin(attempt.claim.attempt_key)
        journal.finish(attempt)
    (file,) = journal.folder.iterdir()
    assert file.stat().st_size > MAX_JOURNAL_BYTES
    journal.forget_stored([unstored])
    journal.begin(("next", 1))
    content = _read(journal, worker_id)

    assert file.stat().st_size < 2_000
    assert set(content.begun) == {("open", 1), ("unstored", 1), ("next", 1)}
    assert set(content.results) == {("unstored", 1)}


def test_a_journal_whose_process_was_killed_while_it_wrote_it_again_is_deleted(journal: SendJournal) -> None:
    """The next process deletes what it has read, with the copy that was not complete."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    journal.begin(("one", 1))
    (file,) = journal.folder.iterdir()
    file.with_suffix(".new").write_bytes(b'{"begun":[["o')
    assert set(_read(journal, worker_id).begun) == {("one", 1)}
    journal.delete([worker_id])

    assert list(journal.folder.iterdir()) == []


def test_a_journal_is_empty_when_all_is_stored(journal: SendJournal) -> None:
    """An orderly stop leaves no file."""
    worker_id = make_worker_id("a")
    journal.open(worker_id)
    journal.begin(("one", 1))
    journal.finish(_attempt("one"))
    journal.forget_stored([])
    (file,) = journal.folder.iterdir()
    assert file.read_bytes() == b""
    journal.close(is_empty=True)

    assert list(journal.folder.iterdir()) == []


def _fill_disk(journal: SendJournal, worker_id: str) -> None:
    """Let every write to the journal fail as on a full disk."""
    journal.open(worker_id)
    (file,) = journal.folder.iterdir()
    journal.close(is_empty=True)
    file.symlink_to("/dev/full")
    journal.open(worker_id)


def _block_folder(journal: SendJournal, worker_id: str) -> None:
    journal.folder.write_text("", encoding="utf-8")
    journal.open(worker_id)


@pytest.mark.parametrize("break_journal", [_fill_disk, _block_folder])
def test_messages_are_sent_without_a_journal_that_cannot_be_written(
    journal: SendJournal, break_journal: Callable[[SendJournal, str], None]
) -> None:
    """A journal that lacks a message would lead to a second one, so it is deleted. A process without one may have sent all its claims."""
    worker_id = make_worker_id("a")
    break_journal(journal, worker_id)

    assert journal.begin(("one", 1))
    assert journal.begin(("two", 1))
    assert journal.read(worker_id) is None


def test_nothing_is_sent_while_a_journal_can_be_neither_written_nor_deleted(journal: SendJournal, tmp_path: Path) -> None:
    """The attempt is refused, because the next process would send the message again."""
    worker_id = make_worker_id("a")
    _fill_disk(journal, worker_id)
    journal.folder.rename(tmp_path / "moved")
    journal.folder.write_text("", encoding="utf-8")
    assert not journal.begin(("one", 1))
    journal.folder.unlink()

    assert journal.begin(("one", 1)), "the journal is gone, so that it cannot mislead"
