"""No key can raise its privileges: random keys create, change, rotate and extend each other through the real services."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, MultipleResults, RuleBasedStateMachine, initialize, invariant, multiple, rule

from rookery.access.agent_keys import AgentKeys
from rookery.access.errors import NameTaken
from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey
from rookery.access.models import Actor, Key, KeyRestrictions, KeyWithSecret, Tier
from rookery.access.store import keys as key_store
from rookery.engines.counters import open as open_counter
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import RookeryError, ValidationFailed
from tests.access.capabilities import AGENTS, MOMENTS, Capabilities, capabilities_of, exceeds_rate, list_excesses
from tests.access.makers import build_access, empty_store
from tests.conftest import OPERATOR, FakeClock

T = TypeVar("T")

GRANTS = ["*", "*:read", "brain:*", "brain:read", "brain:write", "keys:write", "mcp:write", "sessions.write", "platform:audit"]
_grants = st.lists(st.sampled_from(GRANTS), min_size=1, max_size=3, unique=True).map(tuple)
_servers = st.none() | st.frozensets(st.sampled_from(["web", "time"]), max_size=2)
_orgs = st.none() | st.frozensets(st.sampled_from(["acme", "globex"]), max_size=2)
_tools = st.none() | st.lists(st.sampled_from(["*", "web/*", "web/search", "time/*"]), max_size=2).map(tuple)
_limits = st.dictionaries(st.sampled_from(["*", "web/*"]), st.sampled_from([1, 5]), max_size=1)
_restrictions = st.just(KeyRestrictions()) | st.builds(KeyRestrictions, servers=_servers, tools=_tools, orgs=_orgs, tool_limits=_limits)
_expiries = st.none() | st.sampled_from(MOMENTS[1:])
_lists = st.lists(st.sampled_from(["192.0.2.0/24", "192.0.2.1", "2001:db8::/32"]), max_size=2).map(tuple)
_rates = st.sampled_from([1, 100, 600, 700, 900])
_agents = st.sampled_from([None, *AGENTS, "zed", "yak"])

new_api_keys = st.builds(
    NewApiKey, name=st.just("key"), scopes=_grants, rate_limit_tier=st.sampled_from(Tier),
    environment=st.sampled_from(["live", "live", "test"]),
    expires_at=_expiries, agent_id=_agents, restrictions=_restrictions,
)  # fmt: skip
new_agent_keys = st.builds(
    NewAgentKey, name=st.just("key"), permissions=_grants, rate_limit=_rates, expires_at=_expiries, agent_id=_agents,
    ip_restriction=st.booleans(), ip_list=_lists, restrictions=_restrictions,
)  # fmt: skip
changes = st.one_of(
    st.builds(KeyChanges, scopes=_grants),
    st.builds(KeyChanges, expires_at=_expiries),
    st.builds(KeyChanges, servers=_servers),
    st.builds(KeyChanges, tools=_tools),
    st.builds(KeyChanges, orgs=_orgs, tool_limits=_limits),
    st.builds(KeyChanges, name=st.just("renamed")),
)
api_key_changes = st.builds(KeyChanges, rate_limit_tier=st.sampled_from(Tier)) | st.builds(KeyChanges, agent_id=_agents)
agent_key_changes = st.builds(KeyChanges, rate_limit=_rates) | st.builds(KeyChanges, ip_restriction=st.booleans(), ip_list=_lists)

INITIAL_KEYS = (
    NewApiKey(name="key", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE),
    NewApiKey(name="key", scopes=("*:read", "keys:write"), rate_limit_tier=Tier.FREE, agent_id="rook"),
    NewApiKey(name="key", scopes=("*",), rate_limit_tier=Tier.BUSINESS, environment="test"),
    NewAgentKey(name="key", permissions=("brain:*", "keys:write"), rate_limit=700, agent_id="owl"),
    NewAgentKey(name="key", permissions=("*",), rate_limit=100, ip_restriction=True, ip_list=("192.0.2.0/24",)),
)
"""The keys that every example begins with."""


class DelegationMachine(RuleBasedStateMachine):
    """
    A key that another key made or changed can do nothing that the other could not.

    Each key has a limit: the capabilities of its origin, which is a key that an operator created. The origin of a key is that of
    the key that created or rotated it, or changed it last.
    """

    keys = Bundle("keys")

    @initialize(target=keys)
    def start(self) -> MultipleResults[str]:
        """Open an empty store with two workspaces, and agents with memories of their own."""
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "records.db").write_bytes(empty_store())
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.db = open_database("embedded:", data_dir=self.folder)
        self.counter = open_counter("embedded:", data_dir=self.folder)
        self.access = build_access(self.db, self.counter, self.clock)
        self.api_keys = self.access.api_keys
        self.agent_keys = AgentKeys(
            self.db, self.access.usage, self.access.audit, self.clock, is_agent_in_use=lambda _tx, _workspace, agent: agent in AGENTS
        )
        self.workspaces = [self.do(self.access.create_workspace(name)) for name in ("nest", "other")]
        self.origins: dict[str, tuple[Key, Capabilities]] = {}
        return multiple(*(self.create_origin(new, 0) for new in INITIAL_KEYS))

    def teardown(self) -> None:
        """Close the services and delete the store."""
        if hasattr(self, "loop"):
            for resource in (self.access, self.db, self.counter):
                self.do(resource.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Run *work* to its end."""
        return self.loop.run_until_complete(work)

    def load_key(self, key_id: str) -> Key | None:
        """Return the stored key."""

        def work(tx: Tx) -> Key | None:
            row = key_store.find_row_by_id(tx, key_id)
            return None if row is None else key_store.KEYS.from_row(row)

        return self.do(self.db.lookup(work))

    def attempt(self, by: str, work: Coroutine[object, object, T]) -> T | None:
        """Return the result of *work*, or None if it was rejected. A key that is no longer valid gets no result."""
        acting_key = self.load_key(by)
        is_deleted = acting_key is None or (acting_key.delete_after is not None and acting_key.delete_after <= self.clock())
        refusal: RookeryError | None = None
        result: T | None = None
        try:
            result = self.do(work)
        except RookeryError as error:
            refusal = error
        assert refusal is None or refusal.status < 500
        if result is None:
            return None
        assert not is_deleted
        assert acting_key is not None
        assert acting_key.status(self.clock()).value == "Active"
        return result

    def record_origin(self, by: str, key: Key, creator: Key | None) -> None:
        """Check *key*, which *by* created or changed, against its *creator*, and record its origin."""
        assert creator is not None
        assert list_excesses(capabilities_of(key), capabilities_of(creator)) == [], "the key can do more than its creator"
        assert not exceeds_rate(key, creator)
        self.origins[key.id] = self.origins[by]

    @invariant()
    def no_key_exceeds_its_origin(self) -> None:
        """Compare each key with its origin as it was created."""
        for key_id, (origin, origin_capabilities) in getattr(self, "origins", {}).items():
            key = self.load_key(key_id)
            if key is not None:
                assert list_excesses(capabilities_of(key), origin_capabilities) == []
                assert not exceeds_rate(key, origin)

    @rule(target=keys, new=new_api_keys | new_agent_keys, workspace_index=st.integers(0, 1))
    def create_as_operator(self, new: NewApiKey | NewAgentKey, workspace_index: int) -> MultipleResults[str]:
        """Create a key as an operator, who may create any."""
        try:
            return multiple(self.create_origin(new, workspace_index))
        except (NameTaken, ValidationFailed):  # the agent has a key, or the expiry has passed
            return multiple()

    def create_origin(self, new: NewApiKey | NewAgentKey, workspace_index: int) -> str:
        """Create a key that is its own origin."""
        workspace = self.workspaces[workspace_index]
        if isinstance(new, NewApiKey):
            key = self.do(self.api_keys.create(workspace, new, by=OPERATOR)).key
        else:
            key = self.do(self.agent_keys.create(workspace, new, by=OPERATOR)).key
        self.origins[key.id] = (key, capabilities_of(key))
        return key.id

    @rule(target=keys, by=keys, new=new_api_keys | new_agent_keys)
    def create(self, by: str, new: NewApiKey | NewAgentKey) -> str:
        """Create a key as another key."""
        return self.record_created(by, self.load_key(by), self.attempt(by, self.create_by(by, new)))

    @rule(target=keys, by=keys, new=new_agent_keys, fields=st.sets(st.sampled_from(["permissions", "reach", "rate_limit"]), max_size=1))
    def create_alike(self, by: str, new: NewAgentKey, fields: set[str]) -> str:
        """Create a key equal to the acting one except for one field. Random keys are mostly rejected."""
        acting_key = self.load_key(by)
        if acting_key is None:
            return by
        similar = replace(
            new,
            expires_at=acting_key.expires_at if acting_key.expires_at is None or acting_key.expires_at > self.clock() else None,
            permissions=new.permissions if "permissions" in fields else acting_key.scopes,
            restrictions=new.restrictions if "reach" in fields else acting_key.restrictions,
            rate_limit=new.rate_limit if "rate_limit" in fields else acting_key.rate_limit or 600,
            ip_restriction=acting_key.ip_restriction,
            ip_list=acting_key.ip_list,
        )
        if acting_key.kind == "agent":
            return self.record_created(by, acting_key, self.attempt(by, self.create_by(by, similar)))
        tier = acting_key.rate_limit_tier or Tier.FREE
        api = NewApiKey(
            name="key", scopes=similar.permissions, rate_limit_tier=tier, environment=acting_key.environment, agent_id=acting_key.agent_id,
            restrictions=similar.restrictions, expires_at=similar.expires_at,
        )  # fmt: skip
        return self.record_created(by, acting_key, self.attempt(by, self.create_by(by, api if "rate_limit" not in fields else similar)))

    async def create_by(self, by: str, new: NewApiKey | NewAgentKey) -> KeyWithSecret:
        """Create a key in the workspace of the acting key."""
        actor, workspace = self.actor(by), self.workspace_of(by)
        if isinstance(new, NewApiKey):
            return await self.api_keys.create(workspace, new, by=actor)
        return await self.agent_keys.create(workspace, new, by=actor)

    @rule(by=keys, key_id=keys, change=changes | api_key_changes | agent_key_changes)
    def alter(self, by: str, key_id: str, change: KeyChanges) -> None:
        """Change a key, perhaps of another workspace, perhaps the acting one."""
        self.change_key(by, key_id, change)

    @rule(by=keys, change=changes | api_key_changes | agent_key_changes)
    def alter_itself(self, by: str, change: KeyChanges) -> None:
        """Change the acting key."""
        self.change_key(by, by, change)

    @rule(by=keys, key_id=keys, expires_at=_expiries)
    def extend(self, by: str, key_id: str, expires_at: datetime | None) -> None:
        """Extend a key."""
        self.change_key(by, key_id, KeyChanges(expires_at=expires_at))

    def change_key(self, by: str, key_id: str, change: KeyChanges) -> None:
        """Change a key. A key that could do more before the change is rejected too."""
        acting_key, old = self.load_key(by), self.load_key(key_id)
        keyring = self.agent_keys if old is not None and old.kind == "agent" else self.api_keys
        updated = self.attempt(by, keyring.update(self.workspace_of(key_id), key_id, change, by=self.actor(by)))
        if updated is not None and old is not None and acting_key is not None and key_id != by:
            assert list_excesses(capabilities_of(old), capabilities_of(acting_key)) == []
        if updated is not None and updated != old:
            self.record_origin(by, updated, acting_key)

    @rule(target=keys, by=keys, key_id=keys, hours=st.sampled_from([0, 1, 24]))
    def rotate(self, by: str, key_id: str, hours: int) -> str:
        """Rotate a key. The acting key then knows the plaintext of the successor."""
        acting_key, old = self.load_key(by), self.load_key(key_id)
        keyring = self.agent_keys if old is not None and old.kind == "agent" else self.api_keys
        return self.record_created(
            by, acting_key, self.attempt(by, keyring.rotate(self.workspace_of(key_id), key_id, by=self.actor(by), grace_hours=hours))
        )

    @rule(by=keys, key_id=keys, suspended=st.booleans())
    def suspend(self, by: str, key_id: str, suspended: bool) -> None:
        """Suspend or resume a key."""
        key = self.load_key(key_id)
        keyring = self.agent_keys if key is not None and key.kind == "agent" else self.api_keys
        self.attempt(by, (keyring.suspend if suspended else keyring.resume)(self.workspace_of(key_id), key_id, by=self.actor(by)))

    @rule(by=keys, key_id=keys)
    def delete(self, by: str, key_id: str) -> None:
        """Delete a key. That needs no more than visibility."""
        acting_key, key = self.load_key(by), self.load_key(key_id)
        keyring = self.agent_keys if key is not None and key.kind == "agent" else self.api_keys
        self.attempt(by, keyring.delete(self.workspace_of(key_id), key_id, by=self.actor(by)))
        if acting_key is not None and key is not None:
            is_hidden = key.workspace_id != acting_key.workspace_id or acting_key.environment == "test" != key.environment
            assert not is_hidden or self.load_key(key_id) == key

    @rule(minutes=st.sampled_from([1, 31, 61]))
    def wait(self, minutes: int) -> None:
        """Let keys expire and grace periods end."""
        self.clock.at += timedelta(minutes=minutes)

    def record_created(self, by: str, creator: Key | None, new_key: KeyWithSecret | None) -> str:
        """Record the key that *by* created, if it was created; return its id."""
        if new_key is None:
            return by
        self.record_origin(by, new_key.key, creator)
        return new_key.key.id

    def workspace_of(self, key_id: str) -> int:
        """Return the workspace of the key."""
        return self.origins[key_id][0].workspace_id if key_id in self.origins else self.workspaces[0]

    def actor(self, key_id: str) -> Actor:
        """Return the actor that uses the key, valid or not."""
        kind = "agent" if key_id in self.origins and self.origins[key_id][0].kind == "agent" else "api"
        return Actor(kind=kind, id=key_id, name="key", address="192.0.2.1", request_id="req_test")


DelegationMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestNoPrivilegeGrows = DelegationMachine.TestCase
