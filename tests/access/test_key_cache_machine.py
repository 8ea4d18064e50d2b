"""The proof cache against its model: keys come, go, change and are presented, in two processes at once (D-20, D-26)."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from sqlalchemy import update

from rookery.access.hashing import Bcrypt
from rookery.access.key_fields import KeyChanges, NewAgentKey
from rookery.access.keyring import Keyring
from rookery.access.models import Key, KeyKind, KeyWithSecret
from rookery.access.store.keys import add_key, keys
from rookery.engines.counters import open_counter
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import Conflict, RookeryError
from rookery.kernel.secret import Secret
from tests.access.makers import Access, build_access, empty_store
from tests.conftest import OPERATOR, FakeClock

T = TypeVar("T")

processes = st.integers(0, 1)
kinds: st.SearchStrategy[KeyKind] = st.sampled_from(["api", "agent"])


@dataclass
class Row:
    """The model's copy of a key's row."""

    key: Key
    token: str
    is_suspended: bool = False
    is_revoked: bool = False
    is_narrow: bool = False
    expires_at: datetime | None = None
    gone_at: datetime | None = None


class ProofMachine(RuleBasedStateMachine):
    """A token is let in exactly when a row that is good at that moment holds its hash; else for the first reason of spec 5.3."""

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
        self.access = [build_access(each, self.counter, self.clock, bcrypt=self.bcrypt) for each in self.databases]
        self.workspace = self.do(self.access[0].create_workspace())
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

    @rule(target=tokens, process=processes, kind=kinds)
    def create(self, process: int, kind: KeyKind) -> str:
        """Make a key."""
        access = self.access[process]
        if kind == "api":
            return self.made(self.do(access.create_api_key(self.workspace)))
        return self.made(
            self.do(access.create_agent_key(self.workspace, NewAgentKey(name="rook", permissions=("*",), rate_limit=1_000_000)))
        )

    @rule(target=tokens, token=tokens)
    def invent(self, token: str) -> str:
        """Make up a secret, for a known lookup if the token is an API key."""
        return self.variant(token)

    @rule(token=tokens, process=processes)
    def present(self, token: str, process: int) -> None:
        """Ask to be let in; each time from elsewhere, so that no budget matters."""
        assert self.outcome(self.access[process], token) == self.expected(token)

    @rule(token=tokens, process=processes, suspended=st.booleans())
    def suspend(self, token: str, process: int, suspended: bool) -> None:
        """Suspend or resume the key that the token is of."""
        for row in self.alive(token):
            ring = self.ring(process, row)
            if row.is_revoked:
                with pytest.raises(Conflict):
                    self.do((ring.suspend if suspended else ring.resume)(self.workspace, row.key.id, by=OPERATOR))
                continue
            self.do((ring.suspend if suspended else ring.resume)(self.workspace, row.key.id, by=OPERATOR))
            row.is_suspended = suspended

    @rule(token=tokens, process=processes, narrow=st.booleans())
    def regrant(self, token: str, process: int, narrow: bool) -> None:
        """Take from the key what is needed, or give it back."""
        for row in self.alive(token):
            changes = KeyChanges(grants=("mcp:read",) if narrow else ("*",))
            self.do(self.ring(process, row).update(self.workspace, row.key.id, changes, by=OPERATOR))
            row.is_narrow = narrow

    @rule(token=tokens, process=processes, hours=st.sampled_from([None, 1, 2]))
    def extend(self, token: str, process: int, hours: int | None) -> None:
        """Give the key another end, or none."""
        for row in self.alive(token):
            expires_at = None if hours is None else self.clock() + timedelta(hours=hours)
            if row.is_revoked:
                with pytest.raises(Conflict, match="stays revoked"):
                    self.do(self.ring(process, row).update(self.workspace, row.key.id, KeyChanges(expires_at=expires_at), by=OPERATOR))
                continue
            self.do(self.ring(process, row).update(self.workspace, row.key.id, KeyChanges(expires_at=expires_at), by=OPERATOR))
            row.expires_at = expires_at

    @rule(token=tokens, process=processes)
    def revoke(self, token: str, process: int) -> None:
        """Revoke the key that the token is of, if it is an agent key."""
        for row in self.alive(token):
            if row.key.kind == "agent":
                self.do(self.access[process].agent_keys.revoke(self.workspace, row.key.id, by=OPERATOR))
                row.is_revoked = True

    @rule(token=tokens, process=processes)
    def delete(self, token: str, process: int) -> None:
        """Delete the key that the token is of."""
        for row in self.alive(token):
            self.do(self.ring(process, row).delete(self.workspace, row.key.id, by=OPERATOR))
            del self.rows[row.key.id]

    @rule(target=tokens, token=tokens, process=processes)
    def rotate(self, token: str, process: int) -> str:
        """Rotate the key that the token is of, if that can be: the successor is as suspended and as narrow."""
        for row in self.alive(token):
            if row.gone_at is None and not row.is_revoked and not self.has_expired(row):
                minted = self.do(self.ring(process, row).rotate(self.workspace, row.key.id, grace_hours=1, by=OPERATOR))
                row.gone_at = self.clock() + timedelta(hours=1)
                made = self.made(minted)
                self.rows[minted.key.id] = replace(row, key=minted.key, token=made, gone_at=None)
                return made
        return token

    @rule(target=tokens, token=tokens, process=processes)
    def rehash(self, token: str, process: int) -> str:
        """Give the row another secret, behind everybody's back."""
        other = self.variant(token)
        for row in self.alive(token):
            lookup, key_hash = self.hashed(row.key, other)
            statement = update(keys).where(keys.c.id == row.key.id).values(key_hash=key_hash, lookup=lookup)
            self.do(self.databases[process].write(lambda tx, statement=statement: tx.execute(statement)))
            row.token = other
        return other

    @rule(target=tokens, token=tokens, process=processes)
    def recreate(self, token: str, process: int) -> str:
        """Delete the key and make another one under its id."""
        other = self.variant(token)
        for row in self.alive(token):
            self.do(self.ring(process, row).delete(self.workspace, row.key.id, by=OPERATOR))
            lookup, key_hash = self.hashed(row.key, other)

            def add(tx: Tx, key: Key = row.key, lookup: str = lookup, key_hash: str | None = key_hash) -> None:
                add_key(tx, key, lookup=lookup, key_hash=key_hash)

            self.do(self.databases[process].write(add))
            # Under the settings that it was made with: a successor of a suspended key is born so.
            born = row.key
            self.rows[born.id] = Row(
                born, other, born.suspended_at is not None, is_narrow=born.scopes == ("mcp:read",), expires_at=born.expires_at
            )
        return other

    @rule(process=processes)
    def sweep(self, process: int) -> None:
        """Delete keys past their grace period; callers see no difference."""
        self.do(self.access[process].api_keys.delete_past_grace())
        self.do(self.access[process].agent_keys.delete_past_grace())

    @rule(seconds=st.sampled_from([1, 31, 20 * 60, 3600]))
    def wait(self, seconds: int) -> None:
        """Let caches grow old, and keys expire."""
        self.clock.advance(seconds=seconds)

    def ring(self, process: int, row: Row) -> Keyring:
        """Return the verbs for that key."""
        access = self.access[process]
        return access.api_keys if row.key.kind == "api" else access.agent_keys

    def hashed(self, key: Key, token: str) -> tuple[str, str | None]:
        """Return what is stored of a token of that kind: lookup and hash."""
        if key.kind == "agent":
            return hashlib.sha256(token.encode()).hexdigest(), None
        return token[8:16], self.do(self.bcrypt.hash(Secret(token)))

    def variant(self, token: str) -> str:
        """Return another token, with the same lookup if it is an API key."""
        return f"{token[:-6]}{next(self.addresses):06}"

    def made(self, minted: KeyWithSecret) -> str:
        """Note a new key."""
        token = minted.plaintext.reveal()
        self.rows[minted.key.id] = Row(minted.key, token)
        return token

    def alive(self, token: str) -> list[Row]:
        """Return the rows that hold the token's hash and are not gone."""
        return [row for row in self.rows.values() if row.token == token and (row.gone_at is None or self.clock() < row.gone_at)]

    def has_expired(self, row: Row) -> bool:
        """Tell whether the key is past its end."""
        return row.expires_at is not None and row.expires_at <= self.clock()

    def expected(self, token: str) -> str:
        """Return what must come of the token."""
        found = self.alive(token)
        if not found:
            return "unauthorised"
        row = found[0]
        if row.is_suspended or row.is_revoked:
            return "key_revoked"
        if self.has_expired(row):
            return "key_expired"
        return ("scope_missing" if row.key.kind == "api" else "permission_denied") if row.is_narrow else row.key.id

    def outcome(self, access: Access, token: str) -> str:
        """Return what comes of the token."""
        number = next(self.addresses)
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        try:
            return self.do(access.admit(token, required_scope="brain:read", address=address)).caller.key_id
        except RookeryError as error:
            return error.code


ProofMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestTheCacheNeverOutlivesWhatItProves = ProofMachine.TestCase
