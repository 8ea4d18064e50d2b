"""Sealing at rest, and the change of keys."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Integer, LargeBinary, MetaData, Table, Text, insert, select, text, update

from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.db import Database, Tx, open_database
from rookery.kernel.errors import WrongSettings
from rookery.kernel.idempotency_store import SEALED_COLUMN, stored_responses
from rookery.kernel.sealing import DecryptionFailed, KeyRotation, KeySource, SealContext, SealedColumn, Sealer, SecretKey, store
from rookery.kernel.secret import Secret
from rookery.wiring import build_platform
from tests.conftest import eventually
from tests.deadlines import HANG_S

FIRST, SECOND, THIRD = (Secret(f"{word} secret key of this test, 0123456789") for word in ("first", "second", "third"))
_MANY = 70
"""More rows than two transactions of a key rotation have."""


class Box:
    """A record store with sealed texts in the column of stored responses."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder

    def source(self, configured: Secret | None = None, previous: Secret | None = None) -> KeySource:
        """Return the key source of a process with these settings."""
        return KeySource(self.folder, configured=configured, previous=previous)

    async def sealer(self, configured: Secret | None = None, previous: Secret | None = None) -> Sealer:
        """Return the started sealer of a process with these settings."""
        sealer = Sealer(self.db, self.source(configured, previous), [SEALED_COLUMN], utc_now)
        await sealer.start()
        return sealer

    def rotation(self, configured: Secret | None = None, previous: Secret | None = None) -> KeyRotation:
        """Return the key rotation of a process with these settings."""
        return KeyRotation(self.db, self.source(configured, previous), [SEALED_COLUMN], utc_now)

    async def put(self, sealer: Sealer, *ids: str) -> None:
        """Store a text with the id for each id."""

        def work(tx: Tx) -> None:
            for name in ids:
                row = {
                    "id": name,
                    "workspace_id": 1,
                    "owner": None,
                    "until": 0,
                    "sealed": sealer.seal(tx, f"text {name}".encode(), make_context(name)),
                }
                tx.execute(insert(stored_responses), row)

        await self.db.write(work)

    async def rows(self) -> dict[str, bytes]:
        """Return the sealed texts by id."""
        rows = await self.db.read(lambda tx: tx.fetch_all(select(stored_responses)))
        return {row.text("id"): row.blob("sealed") for row in rows}

    async def open_all(self, sealer: Sealer) -> dict[str, str]:
        """Return the decrypted texts by id."""
        return {name: sealer.open(sealed, make_context(name)).decode() for name, sealed in (await self.rows()).items()}

    async def change(self, name: str, sealed: bytes) -> None:
        """Overwrite a sealed text."""
        await self.db.write(lambda tx: tx.execute(update(stored_responses).where(stored_responses.c.id == name).values(sealed=sealed)))


def make_context(name: str) -> SealContext:
    """Return the context of a text."""
    return SealContext("kept answer", 1, name)


@pytest.fixture
async def box(database: Database, data_dir: Path) -> Box:
    """Return an empty store."""
    return Box(database, data_dir)


@given(st.binary(max_size=300), st.text(), st.integers(0, 2**62), st.text())
def test_a_sealed_text_opens_only_in_its_context(content: bytes, purpose: str, workspace_id: int, name: str) -> None:
    """A text is bound to its purpose, workspace and row, and each sealing gives other bytes."""
    key, other_key = SecretKey(FIRST), SecretKey(SECOND)
    context = SealContext(purpose, workspace_id, name)
    sealed = key.seal(content, context)

    assert key.open(sealed, context) == content
    assert key.seal(content, context) != sealed
    for other_context in (
        SealContext(purpose + "x", workspace_id, name),
        SealContext(purpose, workspace_id + 1, name),
        SealContext(purpose, workspace_id, name + "x"),
    ):
        with pytest.raises(DecryptionFailed):
            key.open(sealed, other_context)
    with pytest.raises(DecryptionFailed):
        other_key.open(sealed, context)


@given(st.binary(max_size=50), st.data())
def test_a_changed_sealed_text_does_not_open(content: bytes, data: st.DataObject) -> None:
    """A flipped bit or a truncation is detected."""
    key = SecretKey(FIRST)
    sealed = bytearray(key.seal(content, make_context("a")))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    end = data.draw(st.integers(0, len(sealed) - 1))
    with pytest.raises(DecryptionFailed):
        key.open(bytes(sealed[:end]), make_context("a"))
    sealed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DecryptionFailed):
        key.open(bytes(sealed), make_context("a"))


def test_a_secret_key_does_not_print() -> None:
    """Secrets have no readable repr; only the id of a key is stored."""
    key = SecretKey(FIRST)

    assert FIRST.reveal() not in f"{key!r} {key}"
    assert key.id == SecretKey(Secret(FIRST.reveal())).id != SecretKey(SECOND).id


@pytest.mark.parametrize("weak", ["", "short", "a" * 31, "abcdefg" * 10, "a" * 64])
def test_a_weak_secret_key_is_rejected(weak: str) -> None:
    """A key has at least 32 characters without repetition; the error does not contain the key."""
    with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY") as error:
        load_settings({"ROOKERY_SECRET_KEY": weak})

    assert "\n" not in error.value.message
    assert not weak or weak not in error.value.message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("choose-32-random-characters-or-more", "placeholder"),
        ("Choose 32 Random Characters Or More!", "placeholder"),
        ("please-change-me-before-production-2026", "placeholder"),
        ("0123456789abcdef0123456789abcdef", "repeated"),
        ("abcdefghijklmnopqrstuvwxyz0123456789", "sequence"),
        ("a" * 40, "32 random characters"),
    ],
)
def test_a_secret_key_that_is_not_random_is_rejected(text: str, reason: str) -> None:
    """The placeholder of the documentation was accepted in production."""
    with pytest.raises(WrongSettings, match=reason) as error:
        load_settings({"ROOKERY_SECRET_KEY": text, "ROOKERY_ENVIRONMENT": "production"})

    assert text not in error.value.message
    assert "openssl rand -base64 32" in error.value.message


def test_random_secret_keys_are_accepted() -> None:
    """No output of `openssl rand` is mistaken for a placeholder."""
    for _ in range(2_000):
        random_bytes = os.urandom(32)
        for key in (base64.b64encode(random_bytes).decode("ascii"), random_bytes.hex()):
            assert load_settings({"ROOKERY_SECRET_KEY": key}).settings.secret_key == Secret(key)


def test_a_weak_previous_key_is_accepted_for_a_rotation() -> None:
    """ROOKERY_SECRET_KEY_PREVIOUS may be weak, so that a weak key can be replaced."""
    placeholder = "choose-32-random-characters-or-more"

    assert load_settings({"ROOKERY_SECRET_KEY_PREVIOUS": placeholder}).settings.secret_key_previous == Secret(placeholder)


def test_a_secret_key_may_be_in_a_separate_file(tmp_path: Path) -> None:
    """Secret parts may be ${NAME} or a file."""
    (tmp_path / "key").write_text(FIRST.reveal() + "\n", encoding="utf-8")

    assert load_settings({"ROOKERY_SECRET_KEY": "${KEY}", "KEY_FILE": str(tmp_path / "key")}).settings.secret_key == FIRST


async def test_the_first_start_creates_a_private_key_file(box: Box) -> None:
    """The file is secret.key with mode 0600; the next start uses it."""
    first = await box.sealer()
    await box.put(first, "a")
    path = box.source().path

    assert (path.stat().st_mode & 0o777, [file.name for file in box.folder.glob("secret.key*")]) == (0o600, ["secret.key"])
    assert await box.open_all(await box.sealer()) == {"a": "text a"}
    assert b"text a" not in (await box.rows())["a"]


def test_processes_that_start_together_create_one_key(tmp_path: Path) -> None:
    """No process may seal with a key that another one overwrites."""
    with ThreadPoolExecutor(8) as threads:
        keys = [future.result().id for future in [threads.submit(KeySource(tmp_path).get_or_create_first) for _ in range(8)]]

    assert len(set(keys)) == 1


@pytest.mark.parametrize(("database_url", "is_refused"), [("embedded:", False), ("postgresql://h/d", True)])
def test_a_shared_store_and_production_need_a_configured_key(tmp_path: Path, database_url: str, is_refused: bool) -> None:
    """Without the setting the start fails there."""
    settings = Settings(data_dir=tmp_path, database_url=Secret(database_url))
    assert build_platform(replace(settings, secret_key=FIRST, environment="production"))
    with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY must be set in production"):
        build_platform(replace(settings, environment="production"))
    if is_refused:
        with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY must be set on a shared"):
            build_platform(settings)
    else:
        assert build_platform(settings)


async def test_a_start_without_the_right_key_fails(box: Box) -> None:
    """The error names the missing key and the remedy."""
    sealer = await box.sealer()
    await box.put(sealer, "a")
    path = box.source().path
    key_file = path.read_bytes()
    missing = box.source().get_or_create_first().id

    with pytest.raises(WrongSettings, match=missing):
        await Sealer(box.db, KeySource(box.folder.parent, configured=SECOND), [SEALED_COLUMN], utc_now).start()
    path.unlink()
    with pytest.raises(WrongSettings, match=r"--lost"):
        await box.sealer()
    assert not path.exists()
    path.write_bytes(b"# nothing\n")
    with pytest.raises(WrongSettings, match="contains no valid key"):
        await box.sealer()
    path.write_bytes(key_file)
    assert await box.open_all(await box.sealer()) == {"a": "text a"}


async def test_a_text_moved_to_another_row_does_not_open(box: Box) -> None:
    """Write access to the store is not enough to replace one text by another."""
    sealer = await box.sealer()
    await box.put(sealer, "a", "b")
    await box.change("b", (await box.rows())["a"])

    with pytest.raises(DecryptionFailed):
        await box.open_all(sealer)


async def test_a_rotation_seals_all_texts_with_a_new_key_and_deletes_the_old_one(box: Box) -> None:
    """A running process seals its next text with the new key."""
    running_sealer = await box.sealer()
    await box.put(running_sealer, *(f"{number:03}" for number in range(_MANY)))
    path = box.source().path
    old_key, key_file_before = SecretKey(box.source().read_key_texts()[0]), path.read_bytes()

    rotation = await box.rotation().rotate()
    await box.put(running_sealer, "later")

    assert (rotation.is_changed, rotation.resealed_count, rotation.deleted_count) == (True, _MANY, 0)
    new_key = box.source().get_or_create_first()
    assert (rotation.key_id, path.stat().st_mode & 0o777, list(box.source().load_keys())) == (new_key.id, 0o600, [new_key.id])
    assert new_key.id != old_key.id
    assert key_file_before.splitlines()[-1] not in path.read_bytes()
    rows = await box.rows()
    assert {sealed[: len(new_key.head)] for sealed in rows.values()} == {new_key.head}
    assert await box.open_all(running_sealer) == await box.open_all(await box.sealer()) == {name: f"text {name}" for name in rows}


_ROTATE_AND_KILL = """
import asyncio, os, signal, sys
from pathlib import Path
from rookery.kernel.clock import utc_now
from rookery.kernel.db import open_database
from rookery.kernel.idempotency_store import SEALED_COLUMN
from rookery.kernel.sealing import KeyRotation, KeySource

url, folder, last = sys.argv[1], Path(sys.argv[2]), sys.argv[3]

def step(name):
    if name == last:
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(KeyRotation(open_database(url, data_dir=folder), KeySource(folder), [SEALED_COLUMN], utc_now).rotate(on_step=step))
"""


@pytest.mark.parametrize("step", ["kept", "named", "resealed", "removed", "settled"])
async def test_a_rotation_can_be_killed_at_any_step(box: Box, database_url: str, step: str) -> None:
    """All texts stay readable, also for running servers, and the next run completes the rotation."""
    running_sealer = await box.sealer()
    names = [f"{number:03}" for number in range(_MANY)]
    await box.put(running_sealer, *names)
    old = box.source().read_key_texts()[0]
    command = [sys.executable, "-c", _ROTATE_AND_KILL, database_url, str(box.folder), step]
    process = await asyncio.to_thread(subprocess.run, command, check=False, timeout=HANG_S)
    assert process.returncode == -signal.SIGKILL

    all_texts = {name: f"text {name}" for name in names}
    assert await box.open_all(running_sealer) == all_texts
    restarted_sealer = await box.sealer()
    assert await box.open_all(restarted_sealer) == all_texts
    await box.put(restarted_sealer, "between")
    assert await box.open_all(running_sealer) == {**all_texts, "between": "text between"}
    await box.rotation().rotate()
    assert await box.open_all(await box.sealer()) == {**all_texts, "between": "text between"}
    assert len(box.source().read_key_texts()) == 1
    assert all(old.reveal().encode() not in path.read_bytes() for path in box.folder.iterdir() if path.name.startswith("secret"))
    state = await box.db.read(store.get_state)
    assert state is not None
    assert (state.key_id, state.previous_id) == (box.source().get_or_create_first().id, None)
    assert {sealed[:9] for sealed in (await box.rows()).values()} == {box.source().get_or_create_first().head}


async def test_texts_sealed_during_a_rotation_are_never_lost(box: Box) -> None:
    """Sealing reads the current key in the same transaction."""
    sealer = await box.sealer()
    written = list[str]()
    is_over = asyncio.Event()

    async def write(writer: int) -> None:
        number = 0
        while not is_over.is_set():
            await box.put(sealer, f"{writer}-{number:04}")
            written.append(f"{writer}-{number:04}")
            number += 1

    writers = [asyncio.create_task(write(writer)) for writer in range(3)]
    for count in range(1, 4):
        await eventually(lambda count=count: len(written) >= 20 * count)
        await box.rotation().rotate()
    is_over.set()
    await asyncio.gather(*writers)

    assert await box.open_all(await box.sealer()) == {name: f"text {name}" for name in written}
    assert {sealed[:9] for sealed in (await box.rows()).values()} <= {box.source().get_or_create_first().head}


async def test_two_rotations_exclude_each_other(box: Box) -> None:
    """The second one is rejected; a killed process holds no lock."""
    await box.sealer()
    with box.source().lock_folder(), pytest.raises(WrongSettings, match="Another process"):
        await box.rotation().rotate()

    assert (await box.rotation().rotate()).is_changed


async def test_a_configured_key_replaces_the_key_file(box: Box) -> None:
    """All texts stay readable during the change from secret.key to ROOKERY_SECRET_KEY."""
    await box.put(await box.sealer(), "a")
    sealer_with_setting = await box.sealer(FIRST)
    await box.put(sealer_with_setting, "b")

    assert (await box.rotation(FIRST).inspect_columns()).is_rotation_due
    rotation = await box.rotation(FIRST).rotate()

    assert (rotation.key_id, rotation.resealed_count, box.source().path.exists()) == (SecretKey(FIRST).id, 2, False)
    assert await box.open_all(sealer_with_setting) == {"a": "text a", "b": "text b"}
    assert await box.open_all(await box.sealer(FIRST)) == {"a": "text a", "b": "text b"}
    assert not (await box.rotation(FIRST).rotate()).is_changed


async def test_a_configured_key_is_rotated_with_the_previous_key_configured(box: Box) -> None:
    """Until the rotation all processes seal with the old key, so that each can read each text."""
    old_sealer = await box.sealer(FIRST)
    await box.put(old_sealer, "a")
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.sealer(SECOND)
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.rotation(SECOND).rotate()
    new_sealer = await box.sealer(SECOND, FIRST)
    await box.put(new_sealer, "b")
    assert await box.open_all(old_sealer) == {"a": "text a", "b": "text b"}

    rotation = await box.rotation(SECOND, FIRST).rotate()

    assert (rotation.key_id, rotation.resealed_count) == (SecretKey(SECOND).id, 2)
    assert await box.open_all(await box.sealer(SECOND)) == {"a": "text a", "b": "text b"}
    with pytest.raises(DecryptionFailed):
        await box.put(old_sealer, "c")


async def test_an_interrupted_rotation_is_completed_before_the_next(box: Box) -> None:
    """Texts sealed by the interrupted rotation stay readable after another change of the settings."""
    await box.put(await box.sealer(FIRST), "a")
    await box.db.write(lambda tx: store.switch_key(tx, old_key_id=SecretKey(FIRST).id, new_key_id=SecretKey(SECOND).id, now_us=0))
    await box.put(await box.sealer(SECOND, FIRST), "b")
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.sealer(SECOND)
    await box.rotation(SECOND, FIRST).rotate()

    rotation = await box.rotation(THIRD, SECOND).rotate()

    assert rotation.key_id == SecretKey(THIRD).id
    assert await box.open_all(await box.sealer(THIRD)) == {"a": "text a", "b": "text b"}


async def test_texts_of_a_lost_key_can_be_deleted(box: Box) -> None:
    """Backups do not contain the key; only texts that need it are deleted, on request."""
    await box.put(await box.sealer(FIRST), "a", "b")
    await box.rotation(SECOND, FIRST).rotate()
    await box.put(await box.sealer(SECOND), "c")
    with pytest.raises(WrongSettings, match="--lost"):
        await box.rotation(THIRD).rotate()

    rotation = await box.rotation(THIRD).rotate(delete_unreadable=True)

    assert (rotation.deleted_count, await box.rows()) == (3, {})
    sealer = await box.sealer(THIRD)
    await box.put(sealer, "d")
    assert (await box.rotation(THIRD).rotate(delete_unreadable=True)).deleted_count == 0
    assert await box.open_all(sealer) == {"d": "text d"}


async def test_a_damaged_text_stops_the_rotation_before_a_key_is_deleted(box: Box) -> None:
    """The operator must confirm that a text is lost."""
    await box.put(await box.sealer(), "a", "b")
    damaged = bytearray((await box.rows())["a"])
    damaged[-1] ^= 1
    await box.change("a", bytes(damaged))
    with pytest.raises(DecryptionFailed, match="--lost"):
        await box.rotation().rotate()
    assert (len(box.source().read_key_texts()), (await box.rotation().inspect_columns()).unreadable_count) == (2, 1)

    rotation = await box.rotation().rotate(delete_unreadable=True)

    assert (rotation.deleted_count, len(box.source().read_key_texts())) == (1, 1)
    assert await box.open_all(await box.sealer()) == {"b": "text b"}


@pytest.fixture
async def nullable_column(box: Box) -> SealedColumn:
    """Return a column of another domain whose rows stay useful without their secret."""
    table = Table("hooks", MetaData(), Column("id", Text), Column("workspace_id", Integer), Column("secret", LargeBinary, nullable=True))
    kind = "BLOB" if box.db.dialect == "sqlite" else "BYTEA"
    await box.db.write(lambda tx: tx.execute(text(f"CREATE TABLE hooks (id TEXT, workspace_id BIGINT, secret {kind})")))
    sealer = await box.sealer(FIRST)

    def add(tx: Tx) -> None:
        tx.execute(insert(table), {"id": "h", "workspace_id": 7, "secret": sealer.seal(tx, b"whsec", SealContext("hook", 7, "h"))})

    await box.db.write(add)
    return SealedColumn(table, "secret", purpose="hook")


async def test_a_rotation_seals_every_registered_column(box: Box, nullable_column: SealedColumn) -> None:
    """A lost text of a nullable column is set to null instead of deleting the row."""
    columns = [SEALED_COLUMN, nullable_column]
    rotation = await KeyRotation(box.db, box.source(SECOND, FIRST), columns, utc_now).rotate()
    sealed = (await box.db.read(lambda tx: tx.fetch_all(text("SELECT secret FROM hooks"))))[0].blob("secret")
    assert (rotation.resealed_count, SecretKey(SECOND).open(sealed, SealContext("hook", 7, "h"))) == (1, b"whsec")

    rotation_with_loss = await KeyRotation(box.db, box.source(THIRD), columns, utc_now).rotate(delete_unreadable=True)

    rows = await box.db.read(lambda tx: tx.fetch_all(text("SELECT id, secret FROM hooks")))
    assert (rotation_with_loss.deleted_count, [row.values[0] for row in rows], rows[0].values[1]) == (1, ["h"], None)


async def test_a_text_changed_during_the_rotation_is_not_overwritten(box: Box) -> None:
    """The rotation replaces a value only if it is the one that it read."""
    sealer = await box.sealer()
    await box.put(sealer, "a")
    [read_row] = await box.db.read(lambda tx: SEALED_COLUMN.list_others(tx, heads=[], after="", limit=5))
    await box.change("a", b"newer")

    assert not await box.db.write(lambda tx: SEALED_COLUMN.replace(tx, read_row, b"older"))
    assert await box.db.write(lambda tx: SEALED_COLUMN.remove(tx, read_row)) == 0
    assert await box.rows() == {"a": b"newer"}


@pytest.mark.external_service
async def test_a_rotation_waits_for_running_sealing_transactions(postgres_database: str, tmp_path: Path) -> None:
    """They commit before the new key is active, so that the rotation reads their texts."""
    box = Box(open_database(postgres_database, data_dir=tmp_path), tmp_path)
    other_box = Box(open_database(postgres_database, data_dir=tmp_path), tmp_path)
    sealer = await box.sealer(FIRST)
    has_sealed, may_end = threading.Event(), threading.Event()

    def seal_slowly(tx: Tx) -> None:
        sealed = sealer.seal(tx, b"text a", make_context("a"))
        has_sealed.set()
        may_end.wait(10)
        tx.execute(insert(stored_responses), {"id": "a", "workspace_id": 1, "owner": None, "until": 0, "sealed": sealed})

    async def write_in_thread() -> None:
        await other_box.db.write(seal_slowly)
        await other_box.db.close()

    seal_task = asyncio.create_task(asyncio.to_thread(asyncio.run, write_in_thread()))
    await asyncio.to_thread(has_sealed.wait, 10)
    rotation_task = asyncio.create_task(box.rotation(SECOND, FIRST).rotate())
    waiting_locks = text("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
    await eventually(lambda: rotation_task.done() or box.db.read(lambda tx: bool(tx.fetch_all(waiting_locks))))
    may_end.set()
    await seal_task

    assert (await rotation_task).resealed_count == 1
    assert await box.open_all(await box.sealer(SECOND)) == {"a": "text a"}
    await box.db.close()
