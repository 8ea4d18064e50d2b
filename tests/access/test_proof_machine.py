"""The proof cache against its model: keys come, go, change and are presented, in two processes at once (D-20, D-26)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from sqlalchemy import update

from rookery.access.errors import KeyRevoked, Unauthorised
from rookery.access.hashing import Bcrypt
from rookery.access.models import Key, Minted
from rookery.access.store.keys import add_key, keys
from rookery.engines.counters import open_counter
from rookery.kernel.db import open_database
from rookery.kernel.secret import Secret
from rookery.migrations import migrate
from tests.access.makers import Access, build
from tests.conftest import FakeClock

T = TypeVar("T")

processes = st.integers(0, 1)


@cache
def empty_store() -> bytes:
    """Return a migrated record store."""
    with tempfile.TemporaryDirectory() as folder:
        migrate("embedded:", data_dir=Path(folder))
        return (Path(folder) / "records.db").read_bytes()


@dataclass
class Row:
    """What the model knows of a key's row."""

    key: Key
    token: str
    is_suspended: bool = False
    gone_at: datetime | None = None


class ProofMachine(RuleBasedStateMachine):
    """A token is let in exactly when a row that is neither gone nor suspended holds its hash at that moment."""

    tokens = Bundle("tokens")

    @initialize()
    def start(self) -> None:
        """Two processes on one store."""
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "records.db").write_bytes(empty_store())
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.databases = [open_database("embedded:", data_dir=self.folder) for _ in range(2)]
        self.counter = open_counter("embedded:", data_dir=self.folder)
        self.bcrypt = Bcrypt(cost=4)
        self.access = [build(each, self.counter, self.clock, bcrypt=self.bcrypt) for each in self.databases]
        self.workspace = self.do(self.access[0].workspace())
        self.rows: dict[str, Row] = {}
        self.addresses = count(1)

    def teardown(self) -> None:
        """End both."""
        if hasattr(self, "loop"):
            for each in (*self.access, *self.databases, self.counter):
                self.do(each.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Await *work*."""
        return self.loop.run_until_complete(work)

    @rule(target=tokens, process=processes)
    def create(self, process: int) -> str:
        """Make a key."""
        return self.made(self.do(self.access[process].api_key(self.workspace)))

    @rule(target=tokens, token=tokens)
    def invent(self, token: str) -> str:
        """Make up a secret for a known lookup."""
        return self.variant(token)

    @rule(token=tokens, process=processes)
    def present(self, token: str, process: int) -> None:
        """Ask to be let in; each time from elsewhere, so that no budget matters."""
        assert self.outcome(self.access[process], token) == self.expected(token)

    @rule(token=tokens, process=processes, suspended=st.booleans())
    def suspend(self, token: str, process: int, suspended: bool) -> None:
        """Suspend or resume the key that the token is of."""
        for row in self.alive(token):
            api_keys = self.access[process].api_keys
            self.do((api_keys.suspend if suspended else api_keys.resume)(self.workspace, row.key.id))
            row.is_suspended = suspended

    @rule(token=tokens, process=processes)
    def delete(self, token: str, process: int) -> None:
        """Delete the key that the token is of."""
        for row in self.alive(token):
            self.do(self.access[process].api_keys.delete(self.workspace, row.key.id))
            del self.rows[row.key.id]

    @rule(target=tokens, token=tokens, process=processes)
    def rotate(self, token: str, process: int) -> str:
        """Rotate the key that the token is of, unless it was."""
        for row in self.alive(token):
            if row.gone_at is None:
                minted = self.do(self.access[process].api_keys.rotate(self.workspace, row.key.id, grace_hours=1))
                row.gone_at = self.clock() + timedelta(hours=1)
                made = self.made(minted)
                self.rows[minted.key.id].is_suspended = row.is_suspended
                return made
        return token

    @rule(target=tokens, token=tokens, process=processes)
    def rehash(self, token: str, process: int) -> str:
        """Give the row another secret, behind everybody's back."""
        other = self.variant(token)
        for row in self.alive(token):
            key_hash = self.do(self.bcrypt.hash(Secret(other)))
            statement = update(keys).where(keys.c.id == row.key.id).values(key_hash=key_hash)
            self.do(self.databases[process].write(lambda tx, statement=statement: tx.run(statement)))
            row.token = other
        return other

    @rule(target=tokens, token=tokens, process=processes)
    def recreate(self, token: str, process: int) -> str:
        """Delete the key and make another one under its id."""
        other = self.variant(token)
        for row in self.alive(token):
            self.do(self.access[process].api_keys.delete(self.workspace, row.key.id))
            key_hash = self.do(self.bcrypt.hash(Secret(other)))
            key = row.key
            self.do(
                self.databases[process].write(
                    lambda tx, key=key, key_hash=key_hash: add_key(tx, key, lookup=other[8:16], key_hash=key_hash)
                )
            )
            self.rows[key.id] = Row(key, other)
        return other

    @rule(process=processes)
    def sweep(self, process: int) -> None:
        """Delete what is past its grace; nobody can tell."""
        self.do(self.access[process].api_keys.sweep())

    @rule(seconds=st.sampled_from([1, 31, 20 * 60, 3600]))
    def wait(self, seconds: int) -> None:
        """Let caches grow old."""
        self.clock.advance(seconds=seconds)

    def variant(self, token: str) -> str:
        """Return another token with the same lookup."""
        return f"{token[:-6]}{next(self.addresses):06}"

    def made(self, minted: Minted) -> str:
        """Note a new key."""
        token = minted.plaintext.reveal()
        self.rows[minted.key.id] = Row(minted.key, token)
        return token

    def alive(self, token: str) -> list[Row]:
        """Return the rows that hold the token's hash and are not gone."""
        return [row for row in self.rows.values() if row.token == token and (row.gone_at is None or self.clock() < row.gone_at)]

    def expected(self, token: str) -> str:
        """Return what must come of the token."""
        found = self.alive(token)
        return "unauthorised" if not found else "key_revoked" if found[0].is_suspended else found[0].key.id

    def outcome(self, access: Access, token: str) -> str:
        """Return what comes of the token."""
        number = next(self.addresses)
        try:
            return self.do(access.admit(token, address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}")).caller.key_id
        except KeyRevoked:
            return "key_revoked"
        except Unauthorised as error:
            return error.code


ProofMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestTheCacheNeverOutlivesWhatItProves = ProofMachine.TestCase
