"""The key cache against its model: keys are created, changed, deleted and used, in two processes at once."""

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
from rookery.engines.counters import open as open_counter
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
    deleted_at: datetime | None = None


class KeyCacheMachine(RuleBasedStateMachine):
    """A token is admitted exactly when a valid row holds its hash. Otherwise it gets the first error in the order of the guard."""

    tokens = Bundle("tokens")

    @initialize()
    def start(self) -> None:
        """Open two processes on one store."""
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "records.db").write_bytes(empty_store())
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.databases = [open_database("embedded:", data_dir=self.folder) for _ in range(2)]
        self.counter = open_counter("embedded:", data_dir=self.folder)
        self.bcrypt = Bcrypt(cost=4)
        self.access = [build_access(db, self.counter, self.clock, bcrypt=self.bcrypt) for db in self.databases]
        self.workspace = self.do(self.access[0].create_workspace())
        self.rows: dict[str, Row] = {}
        self.addresses = count(1)

    def teardown(self) -> None:
        """Close both."""
        if hasattr(self, "loop"):
            for resource in (*self.access, *self.databases, self.counter):
                self.do(resource.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Run *work* to its end."""
        return self.loop.run_until_complete(work)

    @rule(target=tokens, process=processes, kind=kinds)
    def create(self, process: int, kind: KeyKind) -> str:
        """Create a key."""
        access = self.access[process]
        if kind == "api":
            return self.record_key(self.do(access.create_api_key(self.workspace)))
        return self.record_key(
            self.do(access.create_agent_key(self.workspace, NewAgentKey(name="rook", permissions=("*",), rate_limit=1_000_000)))
        )

    @rule(target=tokens, token=tokens)
    def invent(self, token: str) -> str:
        """Make up a secret; for a known lookup if the token is an API key."""
        return self.variant(token)

    @rule(token=tokens, process=processes)
    def present(self, token: str, process: int) -> None:
        """Send a request, each time from another address, so that no failure budget applies."""
        assert self.outcome(self.access[process], token) == self.expected(token)

    @rule(token=tokens, process=processes, suspended=st.booleans())
    def suspend(self, token: str, process: int, suspended: bool) -> None:
        """Suspend or resume the key of the token."""
        for row in self.live_rows(token):
            keyring = self.keyring(process, row)
            if row.is_revoked:
                with pytest.raises(Conflict):
                    self.do((keyring.suspend if suspended else keyring.resume)(self.workspace, row.key.id, by=OPERATOR))
                continue
            self.do((keyring.suspend if suspended else keyring.resume)(self.workspace, row.key.id, by=OPERATOR))
            row.is_suspended = suspended

    @rule(token=tokens, process=processes, is_narrow=st.booleans())
    def regrant(self, token: str, process: int, is_narrow: bool) -> None:
        """Take the required scope from the key, or give it back."""
        for row in self.live_rows(token):
            changes = KeyChanges(scopes=("mcp:read",) if is_narrow else ("*",))
            self.do(self.keyring(process, row).update(self.workspace, row.key.id, changes, by=OPERATOR))
            row.is_narrow = is_narrow

    @rule(token=tokens, process=processes, hours=st.sampled_from([None, 1, 2]))
    def extend(self, token: str, process: int, hours: int | None) -> None:
        """Set or remove the expiry of the key."""
        for row in self.live_rows(token):
            expires_at = None if hours is None else self.clock() + timedelta(hours=hours)
            if row.is_revoked:
                with pytest.raises(Conflict, match="stays revoked"):
                    self.do(self.keyring(process, row).update(self.workspace, row.key.id, KeyChanges(expires_at=expires_at), by=OPERATOR))
                continue
            self.do(self.keyring(process, row).update(self.workspace, row.key.id, KeyChanges(expires_at=expires_at), by=OPERATOR))
            row.expires_at = expires_at

    @rule(token=tokens, process=processes)
    def revoke(self, token: str, process: int) -> None:
        """Revoke the key of the token, if it is an agent key."""
        for row in self.live_rows(token):
            if row.key.kind == "agent":
                self.do(self.access[process].agent_keys.revoke(self.workspace, row.key.id, by=OPERATOR))
                row.is_revoked = True

    @rule(token=tokens, process=processes)
    def delete(self, token: str, process: int) -> None:
        """Delete the key of the token."""
        for row in self.live_rows(token):
            self.do(self.keyring(process, row).delete(self.workspace, row.key.id, by=OPERATOR))
            del self.rows[row.key.id]

    @rule(target=tokens, token=tokens, process=processes)
    def rotate(self, token: str, process: int) -> str:
        """Rotate the key of the token, if possible. The successor is as suspended and as restricted."""
        for row in self.live_rows(token):
            if row.deleted_at is None and not row.is_revoked and not self.has_expired(row):
                new_key = self.do(self.keyring(process, row).rotate(self.workspace, row.key.id, grace_hours=1, by=OPERATOR))
                row.deleted_at = self.clock() + timedelta(hours=1)
                successor_token = self.record_key(new_key)
                self.rows[new_key.key.id] = replace(row, key=new_key.key, token=successor_token, deleted_at=None)
                return successor_token
        return token

    @rule(target=tokens, token=tokens, process=processes)
    def rehash(self, token: str, process: int) -> str:
        """Replace the secret in the row, past the service."""
        other_token = self.variant(token)
        for row in self.live_rows(token):
            lookup, key_hash = self.hash_token(row.key, other_token)
            statement = update(keys).where(keys.c.id == row.key.id).values(key_hash=key_hash, lookup=lookup)
            self.do(self.databases[process].write(lambda tx, statement=statement: tx.execute(statement)))
            row.token = other_token
        return other_token

    @rule(target=tokens, token=tokens, process=processes)
    def recreate(self, token: str, process: int) -> str:
        """Delete the key and create another one with its id."""
        other_token = self.variant(token)
        for row in self.live_rows(token):
            self.do(self.keyring(process, row).delete(self.workspace, row.key.id, by=OPERATOR))
            lookup, key_hash = self.hash_token(row.key, other_token)

            def add(tx: Tx, key: Key = row.key, lookup: str = lookup, key_hash: str | None = key_hash) -> None:
                add_key(tx, key, lookup=lookup, key_hash=key_hash)

            self.do(self.databases[process].write(add))
            # With the settings at its creation: the successor of a suspended key is created suspended.
            key = row.key
            self.rows[key.id] = Row(
                key, other_token, key.suspended_at is not None, is_narrow=key.scopes == ("mcp:read",), expires_at=key.expires_at
            )
        return other_token

    @rule(process=processes)
    def sweep(self, process: int) -> None:
        """Delete keys past their grace period. Callers see no difference."""
        self.do(self.access[process].api_keys.delete_past_grace())
        self.do(self.access[process].agent_keys.delete_past_grace())

    @rule(seconds=st.sampled_from([1, 31, 20 * 60, 3600]))
    def wait(self, seconds: int) -> None:
        """Let cache entries grow old, and keys expire."""
        self.clock.advance(seconds=seconds)

    def keyring(self, process: int, row: Row) -> Keyring:
        """Return the service for that key."""
        access = self.access[process]
        return access.api_keys if row.key.kind == "api" else access.agent_keys

    def hash_token(self, key: Key, token: str) -> tuple[str, str | None]:
        """Return the lookup and the hash that are stored for a token of that kind."""
        if key.kind == "agent":
            return hashlib.sha256(token.encode()).hexdigest(), None
        return token[8:16], self.do(self.bcrypt.hash(Secret(token)))

    def variant(self, token: str) -> str:
        """Return another token, with the same lookup if it is an API key."""
        return f"{token[:-6]}{next(self.addresses):06}"

    def record_key(self, new_key: KeyWithSecret) -> str:
        """Record a new key."""
        token = new_key.plaintext.reveal()
        self.rows[new_key.key.id] = Row(new_key.key, token)
        return token

    def live_rows(self, token: str) -> list[Row]:
        """Return the rows that hold the token's hash and are not deleted."""
        return [row for row in self.rows.values() if row.token == token and (row.deleted_at is None or self.clock() < row.deleted_at)]

    def has_expired(self, row: Row) -> bool:
        """Return whether the key has expired."""
        return row.expires_at is not None and row.expires_at <= self.clock()

    def expected(self, token: str) -> str:
        """Return the expected outcome of the token."""
        rows = self.live_rows(token)
        if not rows:
            return "unauthorised"
        row = rows[0]
        if row.is_suspended or row.is_revoked:
            return "key_revoked"
        if self.has_expired(row):
            return "key_expired"
        return ("scope_missing" if row.key.kind == "api" else "permission_denied") if row.is_narrow else row.key.id

    def outcome(self, access: Access, token: str) -> str:
        """Return the actual outcome of the token."""
        number = next(self.addresses)
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        try:
            return self.do(access.admit(token, required_scope="brain:read", address=address)).caller.key_id
        except RookeryError as error:
            return error.code


KeyCacheMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestKeyCacheMatchesItsModel = KeyCacheMachine.TestCase
