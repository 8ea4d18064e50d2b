"""The file with the first keys: deleted once it is not needed."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

from rookery.access.first_run import (
    MAX_FILE_AGE,
    MIN_FILE_AGE,
    FirstKeysFile,
    FirstRunResult,
    create_first_keys,
    find_keys_file,
    write_keys_file,
)
from rookery.access.store import keys
from rookery.kernel.clock import to_micros
from rookery.kernel.pages import PageSlice
from rookery.kernel.secret import Secret
from tests.access.makers import Access
from tests.conftest import OPERATOR, FakeClock


async def _write_file(access: Access, folder: Path) -> FirstRunResult:
    first_run = await create_first_keys(access.db, access.bcrypt, access.audit, access.clock)
    path = write_keys_file(folder, first_run, url="http://127.0.0.1:8400")
    written_at = access.clock().timestamp()
    os.utime(path, (written_at, written_at))
    return first_run


async def _use_key(access: Access, key: Secret | None) -> None:
    assert key is not None
    await access.admit(key.reveal())
    await access.usage.flush()


async def test_the_file_is_deleted_once_both_keys_were_used(access: Access, clock: FakeClock, tmp_path: Path) -> None:
    """first-run.json stayed for ever with both keys in plain text. An hour at least, so that a script may read it twice."""
    first_run, file = await _write_file(access, tmp_path), FirstKeysFile(tmp_path, access.db, clock)

    await _use_key(access, first_run.api_key)
    clock.advance(seconds=MIN_FILE_AGE.total_seconds() + 1)
    assert not await file.delete_if_unneeded(), "the agent key was not used yet"
    await _use_key(access, first_run.agent_key)
    assert find_keys_file(tmp_path) == tmp_path / "first-run.json"
    assert await file.delete_if_unneeded()
    assert find_keys_file(tmp_path) is None
    assert not await file.delete_if_unneeded(), "there is nothing left to delete"


async def test_the_file_is_kept_for_at_least_an_hour_and_at_most_a_week(access: Access, clock: FakeClock, tmp_path: Path) -> None:
    """A forgotten file is deleted after 7 days."""
    first_run, file = await _write_file(access, tmp_path), FirstKeysFile(tmp_path, access.db, clock)
    assert not await file.delete_if_unneeded()

    clock.advance(seconds=MAX_FILE_AGE.total_seconds() - 1)
    assert not await file.delete_if_unneeded(), "no key was used"
    clock.advance(seconds=2)
    assert await file.delete_if_unneeded()

    await _use_key(access, first_run.api_key)
    await _use_key(access, first_run.agent_key)
    path = write_keys_file(tmp_path, first_run, url="http://127.0.0.1:8400")
    written_at = clock().timestamp()
    os.utime(path, (written_at, written_at))
    assert not await file.delete_if_unneeded(), "it was written less than an hour ago"


async def test_a_key_that_was_deleted_does_not_keep_the_file(access: Access, clock: FakeClock, tmp_path: Path) -> None:
    """A deleted key needs no file."""
    first_run, file = await _write_file(access, tmp_path), FirstKeysFile(tmp_path, access.db, clock)
    await _use_key(access, first_run.api_key)
    agent_keys = await access.db.read(
        lambda tx: keys.list_key_page(tx, "agent", first_run.workspace_id or 0, at=to_micros(clock()), environment=None, page=PageSlice(10))
    )
    await access.agent_keys.delete(first_run.workspace_id or 0, agent_keys[0][0].key.id, by=OPERATOR)
    clock.advance(seconds=MIN_FILE_AGE.total_seconds())

    assert await file.delete_if_unneeded()


async def test_an_unreadable_file_of_that_name_is_kept_for_a_week(access: Access, clock: FakeClock, tmp_path: Path) -> None:
    """The keys of an unreadable file do not count as used."""
    path = tmp_path / "first-run.json"
    path.write_text("{", encoding="utf-8")
    written_at = (clock() - timedelta(days=2)).timestamp()
    os.utime(path, (written_at, written_at))

    assert not await FirstKeysFile(tmp_path, access.db, clock).delete_if_unneeded()
