"""Sealing at rest, and the change of keys (D-07)."""

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

FIRST, SECOND, THIRD = (Secret(f"{word} secret key of this test, 0123456789") for word in ("first", "second", "third"))
_MANY = 70
"""More than two transactions of a change of keys."""


class Box:
    """A record store with sealed texts in it, in the column of the kept answers."""

    def __init__(self, db: Database, folder: Path) -> None:
        self.db = db
        self.folder = folder

    def source(self, given: Secret | None = None, previous: Secret | None = None) -> KeySource:
        """Return the keys of a process with these settings."""
        return KeySource(self.folder, configured=given, previous=previous)

    async def sealer(self, given: Secret | None = None, previous: Secret | None = None) -> Sealer:
        """Return what a process with these settings starts with."""
        sealer = Sealer(self.db, self.source(given, previous), [SEALED_COLUMN], utc_now)
        await sealer.start()
        return sealer

    def rotation(self, given: Secret | None = None, previous: Secret | None = None) -> KeyRotation:
        """Return the change of keys as that process would do it."""
        return KeyRotation(self.db, self.source(given, previous), [SEALED_COLUMN], utc_now)

    async def put(self, sealer: Sealer, *ids: str) -> None:
        """Store a text for each id, which says so."""

        def work(tx: Tx) -> None:
            for each in ids:
                row = {
                    "id": each,
                    "workspace_id": 1,
                    "owner": None,
                    "until": 0,
                    "sealed": sealer.seal(tx, f"text {each}".encode(), at(each)),
                }
                tx.execute(insert(stored_responses), row)

        await self.db.write(work)

    async def rows(self) -> dict[str, bytes]:
        """Return what is sealed, by its id."""
        rows = await self.db.read(lambda tx: tx.fetch_all(select(stored_responses)))
        return {row.text("id"): row.blob("sealed") for row in rows}

    async def opened(self, sealer: Sealer) -> dict[str, str]:
        """Return every text, by its id."""
        return {name: sealer.open(sealed, at(name)).decode() for name, sealed in (await self.rows()).items()}

    async def change(self, name: str, sealed: bytes) -> None:
        """Overwrite what is sealed."""
        await self.db.write(lambda tx: tx.execute(update(stored_responses).where(stored_responses.c.id == name).values(sealed=sealed)))


def at(name: str) -> SealContext:
    """The place of a text."""
    return SealContext("kept answer", 1, name)


@pytest.fixture
async def box(database: Database, data_dir: Path) -> Box:
    """An empty store."""
    return Box(database, data_dir)


@given(st.binary(max_size=300), st.text(), st.integers(0, 2**62), st.text())
def test_what_is_sealed_opens_at_its_place_alone(content: bytes, what: str, workspace_id: int, name: str) -> None:
    """D-07: a text is bound to what it is, whose, and its row; and it is never sealed alike twice."""
    key, other = SecretKey(FIRST), SecretKey(SECOND)
    place = SealContext(what, workspace_id, name)
    sealed = key.seal(content, place)

    assert key.open(sealed, place) == content
    assert key.seal(content, place) != sealed
    for elsewhere in (
        SealContext(what + "x", workspace_id, name),
        SealContext(what, workspace_id + 1, name),
        SealContext(what, workspace_id, name + "x"),
    ):
        with pytest.raises(DecryptionFailed):
            key.open(sealed, elsewhere)
    with pytest.raises(DecryptionFailed):
        other.open(sealed, place)


@given(st.binary(max_size=50), st.data())
def test_what_was_changed_does_not_open(content: bytes, data: st.DataObject) -> None:
    """D-07: one bit more or less, anywhere, or a piece cut off, is noticed."""
    key = SecretKey(FIRST)
    sealed = bytearray(key.seal(content, at("a")))
    bit = data.draw(st.integers(0, len(sealed) * 8 - 1))
    end = data.draw(st.integers(0, len(sealed) - 1))
    with pytest.raises(DecryptionFailed):
        key.open(bytes(sealed[:end]), at("a"))
    sealed[bit // 8] ^= 1 << bit % 8

    with pytest.raises(DecryptionFailed):
        key.open(bytes(sealed), at("a"))


def test_a_secret_key_does_not_print() -> None:
    """House 6: secrets have a type that does not print; D-07: what is stored of a key is its name."""
    key = SecretKey(FIRST)

    assert FIRST.reveal() not in f"{key!r} {key}"
    assert key.id == SecretKey(Secret(FIRST.reveal())).id != SecretKey(SECOND).id


@pytest.mark.parametrize("weak", ["", "short", "a" * 31, "abcdefg" * 10, "a" * 64])
def test_a_weak_secret_key_is_refused(weak: str) -> None:
    """D-07: 32 characters at least, and not one of them repeated; D-02: in one line that does not show it."""
    with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY") as refusal:
        load_settings({"ROOKERY_SECRET_KEY": weak})

    assert "\n" not in refusal.value.message
    assert not weak or weak not in refusal.value.message


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
def test_a_secret_key_that_is_not_random_is_refused(text: str, reason: str) -> None:
    """Issue 14: the placeholder of the documentation started a production; D-07. One line, which does not show the text."""
    with pytest.raises(WrongSettings, match=reason) as refusal:
        load_settings({"ROOKERY_SECRET_KEY": text, "ROOKERY_ENVIRONMENT": "production"})

    assert text not in refusal.value.message
    assert "openssl rand -base64 32" in refusal.value.message


def test_random_secret_keys_are_taken() -> None:
    """Issue 14: no chance text of `openssl rand`, in Base64 or hexadecimal, is taken for a placeholder; D-07."""
    for _ in range(2_000):
        chance = os.urandom(32)
        for key in (base64.b64encode(chance).decode("ascii"), chance.hex()):
            assert load_settings({"ROOKERY_SECRET_KEY": key}).settings.secret_key == Secret(key)


def test_a_weak_key_of_before_can_still_be_rotated_away() -> None:
    """Issue 14: a first start with the placeholder key is fixed by setting ROOKERY_SECRET_KEY_PREVIOUS; D-07."""
    placeholder = "choose-32-random-characters-or-more"

    assert load_settings({"ROOKERY_SECRET_KEY_PREVIOUS": placeholder}).settings.secret_key_previous == Secret(placeholder)


def test_a_secret_key_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    """D-02: secret parts may be ${NAME} or a file."""
    (tmp_path / "key").write_text(FIRST.reveal() + "\n", encoding="utf-8")

    assert load_settings({"ROOKERY_SECRET_KEY": "${KEY}", "KEY_FILE": str(tmp_path / "key")}).settings.secret_key == FIRST


async def test_the_first_start_makes_a_key_for_its_owner_alone(box: Box) -> None:
    """D-07: secret.key (0600) in the data folder, made at first run; the next start uses it."""
    first = await box.sealer()
    await box.put(first, "a")
    path = box.source().path

    assert (path.stat().st_mode & 0o777, [each.name for each in box.folder.glob("secret.key*")]) == (0o600, ["secret.key"])
    assert await box.opened(await box.sealer()) == {"a": "text a"}
    assert b"text a" not in (await box.rows())["a"]


def test_many_that_start_together_make_one_key(tmp_path: Path) -> None:
    """D-01: processes of one host share the data folder; none may seal by a key that another one overwrote."""
    with ThreadPoolExecutor(8) as threads:
        keys = [each.result().id for each in [threads.submit(KeySource(tmp_path).get_or_create_first) for _ in range(8)]]

    assert len(set(keys)) == 1


@pytest.mark.parametrize(("named", "is_refused"), [("embedded:", False), ("postgresql://h/d", True)])
def test_a_shared_store_and_production_want_a_key_of_the_settings(tmp_path: Path, named: str, is_refused: bool) -> None:
    """D-07: in production or on a shared database it must be set; D-02: a combination that cannot work refuses to start."""
    plain = Settings(data_dir=tmp_path, database_url=Secret(named))
    assert build_platform(replace(plain, secret_key=FIRST, environment="production"))
    with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY must be set in production"):
        build_platform(replace(plain, environment="production"))
    if is_refused:
        with pytest.raises(WrongSettings, match="ROOKERY_SECRET_KEY must be set on a shared"):
            build_platform(plain)
    else:
        assert build_platform(plain)


async def test_a_start_without_the_key_is_refused(box: Box) -> None:
    """D-07, D-02: another key, or none, than the one that sealed refuses to start, and says which is missing and what to do."""
    sealer = await box.sealer()
    await box.put(sealer, "a")
    path = box.source().path
    kept = path.read_bytes()
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
    path.write_bytes(kept)
    assert await box.opened(await box.sealer()) == {"a": "text a"}


async def test_a_text_moved_to_another_row_does_not_open(box: Box) -> None:
    """D-07: who can write the record store cannot pass one text off as another."""
    sealer = await box.sealer()
    await box.put(sealer, "a", "b")
    await box.change("b", (await box.rows())["a"])

    with pytest.raises(DecryptionFailed):
        await box.opened(sealer)


async def test_a_new_key_seals_everything_anew_and_the_old_one_is_gone(box: Box) -> None:
    """D-07, D-04: secrets rotate; beside a process that runs, whose next text is sealed by the new key."""
    running = await box.sealer()
    await box.put(running, *(f"{number:03}" for number in range(_MANY)))
    path = box.source().path
    old, before = SecretKey(box.source().read_key_texts()[0]), path.read_bytes()

    done = await box.rotation().rotate()
    await box.put(running, "later")

    assert (done.is_changed, done.resealed_count, done.deleted_count) == (True, _MANY, 0)
    new = box.source().get_or_create_first()
    assert (done.key_id, path.stat().st_mode & 0o777, list(box.source().load_keys())) == (new.id, 0o600, [new.id])
    assert new.id != old.id
    assert before.splitlines()[-1] not in path.read_bytes()
    rows = await box.rows()
    assert {sealed[: len(new.head)] for sealed in rows.values()} == {new.head}
    assert await box.opened(running) == await box.opened(await box.sealer()) == {name: f"text {name}" for name in rows}


_KILLED = """
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
async def test_a_change_of_keys_may_be_killed_at_any_step(box: Box, database_url: str, step: str) -> None:
    """D-07: kill -9 in the middle leaves everything readable, by servers at work too, and the next run ends what was begun."""
    running = await box.sealer()
    names = [f"{number:03}" for number in range(_MANY)]
    await box.put(running, *names)
    old = box.source().read_key_texts()[0]
    command = [sys.executable, "-c", _KILLED, database_url, str(box.folder), step]
    ended = await asyncio.to_thread(subprocess.run, command, check=False, timeout=30)
    assert ended.returncode == -signal.SIGKILL

    everything = {name: f"text {name}" for name in names}
    assert await box.opened(running) == everything
    restarted = await box.sealer()
    assert await box.opened(restarted) == everything
    await box.put(restarted, "between")
    assert await box.opened(running) == {**everything, "between": "text between"}
    await box.rotation().rotate()
    assert await box.opened(await box.sealer()) == {**everything, "between": "text between"}
    assert len(box.source().read_key_texts()) == 1
    assert all(old.reveal().encode() not in path.read_bytes() for path in box.folder.iterdir() if path.name.startswith("secret"))
    state = await box.db.read(store.get_state)
    assert state is not None
    assert (state.key_id, state.previous_id) == (box.source().get_or_create_first().id, None)
    assert {sealed[:9] for sealed in (await box.rows()).values()} == {box.source().get_or_create_first().head}


async def test_texts_sealed_during_a_change_of_keys_are_never_lost(box: Box) -> None:
    """D-07: sealing reads the current key in the same transaction; with concurrent writers and key changes."""
    sealer = await box.sealer()
    written = list[str]()
    is_over = asyncio.Event()

    async def write(who: int) -> None:
        number = 0
        while not is_over.is_set():
            await box.put(sealer, f"{who}-{number:04}")
            written.append(f"{who}-{number:04}")
            number += 1

    writers = [asyncio.create_task(write(who)) for who in range(3)]
    for count in range(1, 4):
        await eventually(lambda count=count: len(written) >= 20 * count)
        await box.rotation().rotate()
    is_over.set()
    await asyncio.gather(*writers)

    assert await box.opened(await box.sealer()) == {name: f"text {name}" for name in written}
    assert {sealed[:9] for sealed in (await box.rows()).values()} <= {box.source().get_or_create_first().head}


async def test_two_changes_of_keys_do_not_cross(box: Box) -> None:
    """D-07: the second is refused; a process that was killed holds nothing."""
    await box.sealer()
    with box.source().lock_folder(), pytest.raises(WrongSettings, match="Another process"):
        await box.rotation().rotate()

    assert (await box.rotation().rotate()).is_changed


async def test_a_key_of_the_settings_takes_over_from_the_file(box: Box) -> None:
    """D-07: from secret.key to ROOKERY_SECRET_KEY without a moment at which something cannot be read."""
    await box.put(await box.sealer(), "a")
    moved = await box.sealer(FIRST)
    await box.put(moved, "b")

    assert (await box.rotation(FIRST).inspect_columns()).is_rotation_due
    done = await box.rotation(FIRST).rotate()

    assert (done.key_id, done.resealed_count, box.source().path.exists()) == (SecretKey(FIRST).id, 2, False)
    assert await box.opened(moved) == {"a": "text a", "b": "text b"}
    assert await box.opened(await box.sealer(FIRST)) == {"a": "text a", "b": "text b"}
    assert not (await box.rotation(FIRST).rotate()).is_changed


async def test_a_key_of_the_settings_is_changed_with_the_one_before_beside_it(box: Box) -> None:
    """D-07: ROOKERY_SECRET_KEY_PREVIOUS; until rotate everybody seals by the old key, so that each process can read each text."""
    old = await box.sealer(FIRST)
    await box.put(old, "a")
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.sealer(SECOND)
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.rotation(SECOND).rotate()
    new = await box.sealer(SECOND, FIRST)
    await box.put(new, "b")
    assert await box.opened(old) == {"a": "text a", "b": "text b"}

    done = await box.rotation(SECOND, FIRST).rotate()

    assert (done.key_id, done.resealed_count) == (SecretKey(SECOND).id, 2)
    assert await box.opened(await box.sealer(SECOND)) == {"a": "text a", "b": "text b"}
    with pytest.raises(DecryptionFailed):
        await box.put(old, "c")


async def test_an_interrupted_change_is_ended_before_the_next(box: Box) -> None:
    """D-07: settings that changed again meanwhile do not strand what the interrupted change sealed."""
    await box.put(await box.sealer(FIRST), "a")
    await box.db.write(lambda tx: store.switch_key(tx, old_key_id=SecretKey(FIRST).id, new_key_id=SecretKey(SECOND).id, now_us=0))
    await box.put(await box.sealer(SECOND, FIRST), "b")
    with pytest.raises(WrongSettings, match=SecretKey(FIRST).id):
        await box.sealer(SECOND)
    await box.rotation(SECOND, FIRST).rotate()

    done = await box.rotation(THIRD, SECOND).rotate()

    assert done.key_id == SecretKey(THIRD).id
    assert await box.opened(await box.sealer(THIRD)) == {"a": "text a", "b": "text b"}


async def test_without_a_key_that_is_lost_one_can_go_on(box: Box) -> None:
    """D-07: backups leave the key out; what only it can open is deleted on request, and nothing else."""
    await box.put(await box.sealer(FIRST), "a", "b")
    await box.rotation(SECOND, FIRST).rotate()
    await box.put(await box.sealer(SECOND), "c")
    with pytest.raises(WrongSettings, match="--lost"):
        await box.rotation(THIRD).rotate()

    done = await box.rotation(THIRD).rotate(delete_unreadable=True)

    assert (done.deleted_count, await box.rows()) == (3, {})
    sealer = await box.sealer(THIRD)
    await box.put(sealer, "d")
    assert (await box.rotation(THIRD).rotate(delete_unreadable=True)).deleted_count == 0
    assert await box.opened(sealer) == {"d": "text d"}


async def test_a_damaged_text_stops_the_change_before_a_key_is_removed(box: Box) -> None:
    """D-07: never unreadable data: whether a text is really lost is the operator's to say."""
    await box.put(await box.sealer(), "a", "b")
    broken = bytearray((await box.rows())["a"])
    broken[-1] ^= 1
    await box.change("a", bytes(broken))
    with pytest.raises(DecryptionFailed, match="--lost"):
        await box.rotation().rotate()
    assert (len(box.source().read_key_texts()), (await box.rotation().inspect_columns()).unreadable_count) == (2, 1)

    done = await box.rotation().rotate(delete_unreadable=True)

    assert (done.deleted_count, len(box.source().read_key_texts())) == (1, 1)
    assert await box.opened(await box.sealer()) == {"b": "text b"}


@pytest.fixture
async def nullable(box: Box) -> SealedColumn:
    """A column of another domain's, whose rows are worth something without their secret."""
    table = Table("hooks", MetaData(), Column("id", Text), Column("workspace_id", Integer), Column("secret", LargeBinary, nullable=True))
    kind = "BLOB" if box.db.dialect == "sqlite" else "BYTEA"
    await box.db.write(lambda tx: tx.execute(text(f"CREATE TABLE hooks (id TEXT, workspace_id BIGINT, secret {kind})")))
    sealer = await box.sealer(FIRST)

    def add(tx: Tx) -> None:
        tx.execute(insert(table), {"id": "h", "workspace_id": 7, "secret": sealer.seal(tx, b"whsec", SealContext("hook", 7, "h"))})

    await box.db.write(add)
    return SealedColumn(table, "secret", purpose="hook")


async def test_every_registered_column_is_sealed_anew(box: Box, nullable: SealedColumn) -> None:
    """D-07: domains register what they seal; where a column may be null, a lost text takes no row with it."""
    both = [SEALED_COLUMN, nullable]
    done = await KeyRotation(box.db, box.source(SECOND, FIRST), both, utc_now).rotate()
    sealed = (await box.db.read(lambda tx: tx.fetch_all(text("SELECT secret FROM hooks"))))[0].blob("secret")
    assert (done.resealed_count, SecretKey(SECOND).open(sealed, SealContext("hook", 7, "h"))) == (1, b"whsec")

    lost = await KeyRotation(box.db, box.source(THIRD), both, utc_now).rotate(delete_unreadable=True)

    rows = await box.db.read(lambda tx: tx.fetch_all(text("SELECT id, secret FROM hooks")))
    assert (lost.deleted_count, [row.values[0] for row in rows], rows[0].values[1]) == (1, ["h"], None)


async def test_a_text_that_changed_meanwhile_is_left_alone(box: Box) -> None:
    """D-07: a key change never overwrites a value that was written after it was read."""
    sealer = await box.sealer()
    await box.put(sealer, "a")
    [seen] = await box.db.read(lambda tx: SEALED_COLUMN.list_others(tx, heads=[], after="", limit=5))
    await box.change("a", b"newer")

    assert not await box.db.write(lambda tx: SEALED_COLUMN.replace(tx, seen, b"older"))
    assert await box.db.write(lambda tx: SEALED_COLUMN.remove(tx, seen)) == 0
    assert await box.rows() == {"a": b"newer"}


@pytest.mark.external_service
async def test_a_change_of_keys_waits_for_whoever_seals(postgres_database: str, tmp_path: Path) -> None:
    """D-07: what is being sealed by the old key is committed before the new one is named, so that the change sees it."""
    box = Box(open_database(postgres_database, data_dir=tmp_path), tmp_path)
    other = Box(open_database(postgres_database, data_dir=tmp_path), tmp_path)
    sealer = await box.sealer(FIRST)
    has_sealed, may_end = threading.Event(), threading.Event()

    def slowly(tx: Tx) -> None:
        sealed = sealer.seal(tx, b"text a", at("a"))
        has_sealed.set()
        may_end.wait(10)
        tx.execute(insert(stored_responses), {"id": "a", "workspace_id": 1, "owner": None, "until": 0, "sealed": sealed})

    async def in_a_thread() -> None:
        await other.db.write(slowly)
        await other.db.close()

    sealing = asyncio.create_task(asyncio.to_thread(asyncio.run, in_a_thread()))
    await asyncio.to_thread(has_sealed.wait, 10)
    changing = asyncio.create_task(box.rotation(SECOND, FIRST).rotate())
    waiting = text("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
    await eventually(lambda: changing.done() or box.db.read(lambda tx: bool(tx.fetch_all(waiting))))
    may_end.set()
    await sealing

    assert (await changing).resealed_count == 1
    assert await box.opened(await box.sealer(SECOND)) == {"a": "text a"}
    await box.db.close()
