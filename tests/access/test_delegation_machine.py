"""No privilege can grow: keys of random powers make, change, rotate and extend each other, over the real verbs (D-24)."""

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
from rookery.engines.counters import open_counter
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import RookeryError, ValidationFailed
from tests.access.capabilities import AGENTS, MOMENTS, Capabilities, capabilities_of, exceeds_rate, list_excesses
from tests.access.makers import build_access, empty_store
from tests.conftest import OPERATOR, FakeClock

T = TypeVar("T")

GRANTS = ["*", "*:read", "brain:*", "brain:read", "brain:write", "keys:write", "mcp:write", "platform:audit"]
_grants = st.lists(st.sampled_from(GRANTS), min_size=1, max_size=3, unique=True).map(tuple)
_servers = st.none() | st.frozensets(st.sampled_from(["web", "time"]), max_size=2)
_orgs = st.none() | st.frozensets(st.sampled_from(["acme", "globex"]), max_size=2)
_tools = st.none() | st.lists(st.sampled_from(["*", "web/*", "web/search", "time/*"]), max_size=2).map(tuple)
_limits = st.dictionaries(st.sampled_from(["*", "web/*"]), st.sampled_from([1, 5]), max_size=1)
_reaches = st.just(KeyRestrictions()) | st.builds(KeyRestrictions, servers=_servers, tools=_tools, orgs=_orgs, tool_limits=_limits)
_expiries = st.none() | st.sampled_from(MOMENTS[1:])
_lists = st.lists(st.sampled_from(["192.0.2.0/24", "192.0.2.1", "2001:db8::/32"]), max_size=2).map(tuple)
_rates = st.sampled_from([1, 100, 600, 700, 900])
_agents = st.sampled_from([None, *AGENTS, "zed", "yak"])

new_api_keys = st.builds(
    NewApiKey, name=st.just("key"), scopes=_grants, tier=st.sampled_from(Tier), environment=st.sampled_from(["live", "live", "test"]),
    expires_at=_expiries, agent_id=_agents, restrictions=_reaches,
)  # fmt: skip
new_agent_keys = st.builds(
    NewAgentKey, name=st.just("key"), permissions=_grants, rate_limit=_rates, expires_at=_expiries, agent_id=_agents,
    ip_restriction=st.booleans(), ip_list=_lists, restrictions=_reaches,
)  # fmt: skip
changes = st.one_of(
    st.builds(KeyChanges, grants=_grants),
    st.builds(KeyChanges, expires_at=_expiries),
    st.builds(KeyChanges, servers=_servers),
    st.builds(KeyChanges, tools=_tools),
    st.builds(KeyChanges, orgs=_orgs, tool_limits=_limits),
    st.builds(KeyChanges, name=st.just("renamed")),
)
of_api_keys = st.builds(KeyChanges, tier=st.sampled_from(Tier)) | st.builds(KeyChanges, agent_id=_agents)
of_agent_keys = st.builds(KeyChanges, rate_limit=_rates) | st.builds(KeyChanges, ip_restriction=st.booleans(), ip_list=_lists)

FOUNDERS = (
    NewApiKey(name="key", scopes=("*",), tier=Tier.ENTERPRISE),
    NewApiKey(name="key", scopes=("*:read", "keys:write"), tier=Tier.FREE, agent_id="rook"),
    NewApiKey(name="key", scopes=("*",), tier=Tier.BUSINESS, environment="test"),
    NewAgentKey(name="key", permissions=("brain:*", "keys:write"), rate_limit=700, agent_id="owl"),
    NewAgentKey(name="key", permissions=("*",), rate_limit=100, ip_restriction=True, ip_list=("192.0.2.0/24",)),
)
"""Those that every example begins with."""


class AuthorityMachine(RuleBasedStateMachine):
    """
    A key that another key made or changed can do nothing that the other could not.

    Each key has a bound: what the one that it goes back to could do, which was made by an operator. A key is bound by the
    one that made or rotated it, or changed it last.
    """

    keys = Bundle("keys")

    @initialize(target=keys)
    def start(self) -> MultipleResults[str]:
        """Open an empty store with two workspaces; agents in it have memories of their own."""
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
        return multiple(*(self.founded(new, 0) for new in FOUNDERS))

    def teardown(self) -> None:
        """End it."""
        if hasattr(self, "loop"):
            for each in (self.access, self.db, self.counter):
                self.do(each.close())
            self.loop.close()
            shutil.rmtree(self.folder)

    def do(self, work: Coroutine[object, object, T]) -> T:
        """Await *work*."""
        return self.loop.run_until_complete(work)

    def key(self, key_id: str) -> Key | None:
        """Return the key as it is stored."""

        def work(tx: Tx) -> Key | None:
            row = key_store.find_row_by_id(tx, key_id)
            return None if row is None else key_store.key_from_row(row)

        return self.do(self.db.lookup(work))

    def attempt(self, by: str, work: Coroutine[object, object, T]) -> T | None:
        """Return the key that *by* obtained, or None if it was refused; a key that is no longer valid obtains nothing."""
        holder = self.key(by)
        is_gone = holder is None or (holder.delete_after is not None and holder.delete_after <= self.clock())
        refusal: RookeryError | None = None
        attained: T | None = None
        try:
            attained = self.do(work)
        except RookeryError as error:
            refusal = error
        assert refusal is None or refusal.status < 500
        if attained is None:
            return None
        assert not is_gone
        assert holder is not None
        assert holder.status(self.clock()).value == "Active"
        return attained

    def bind(self, by: str, after: Key, holder: Key | None) -> None:
        """Note that *by*, which was *holder*, made *after* or changed something to it."""
        assert holder is not None
        assert list_excesses(capabilities_of(after), capabilities_of(holder)) == [], "it can do more than who made it so"
        assert not exceeds_rate(after, holder)
        self.origins[after.id] = self.origins[by]

    @invariant()
    def no_key_exceeds_its_origin(self) -> None:
        """Hold each key against the operator's one that it goes back to, as that was made."""
        for key_id, (origin, bound) in getattr(self, "origins", {}).items():
            key = self.key(key_id)
            if key is not None:
                assert list_excesses(capabilities_of(key), bound) == []
                assert not exceeds_rate(key, origin)

    @rule(target=keys, new=new_api_keys | new_agent_keys, where=st.integers(0, 1))
    def found(self, new: NewApiKey | NewAgentKey, where: int) -> MultipleResults[str]:
        """Make a key as an operator, who may."""
        try:
            return multiple(self.founded(new, where))
        except (NameTaken, ValidationFailed):  # the agent has a key, or the expiry has passed
            return multiple()

    def founded(self, new: NewApiKey | NewAgentKey, where: int) -> str:
        """Make a key, which goes back to nothing but itself."""
        workspace = self.workspaces[where]
        if isinstance(new, NewApiKey):
            made = self.do(self.api_keys.create(workspace, new, by=OPERATOR)).key
        else:
            made = self.do(self.agent_keys.create(workspace, new, by=OPERATOR)).key
        self.origins[made.id] = (made, capabilities_of(made))
        return made.id

    @rule(target=keys, by=keys, new=new_api_keys | new_agent_keys)
    def create(self, by: str, new: NewApiKey | NewAgentKey) -> str:
        """Make a key with a key."""
        return self.made(by, self.key(by), self.attempt(by, self.create_by(by, new)))

    @rule(target=keys, by=keys, new=new_agent_keys, fields=st.sets(st.sampled_from(["permissions", "reach", "rate_limit"]), max_size=1))
    def create_alike(self, by: str, new: NewAgentKey, fields: set[str]) -> str:
        """Make a key like the own one, but for a field: random ones are mostly refused."""
        own = self.key(by)
        if own is None:
            return by
        alike = replace(
            new,
            expires_at=own.expires_at if own.expires_at is None or own.expires_at > self.clock() else None,
            permissions=new.permissions if "permissions" in fields else own.scopes,
            restrictions=new.restrictions if "reach" in fields else own.restrictions,
            rate_limit=new.rate_limit if "rate_limit" in fields else own.rate_limit or 600,
            ip_restriction=own.ip_restriction,
            ip_list=own.ip_list,
        )
        if own.kind == "agent":
            return self.made(by, own, self.attempt(by, self.create_by(by, alike)))
        tier = own.tier or Tier.FREE
        api = NewApiKey(
            name="key", scopes=alike.permissions, tier=tier, environment=own.environment, agent_id=own.agent_id,
            restrictions=alike.restrictions, expires_at=alike.expires_at,
        )  # fmt: skip
        return self.made(by, own, self.attempt(by, self.create_by(by, api if "rate_limit" not in fields else alike)))

    async def create_by(self, by: str, new: NewApiKey | NewAgentKey) -> KeyWithSecret:
        """Make a key in the own workspace."""
        actor, workspace = self.actor(by), self.home(by)
        if isinstance(new, NewApiKey):
            return await self.api_keys.create(workspace, new, by=actor)
        return await self.agent_keys.create(workspace, new, by=actor)

    @rule(by=keys, of=keys, change=changes | of_api_keys | of_agent_keys)
    def alter(self, by: str, of: str, change: KeyChanges) -> None:
        """Change a key, perhaps another workspace's, perhaps the own one."""
        self.alter_it(by, of, change)

    @rule(by=keys, change=changes | of_api_keys | of_agent_keys)
    def alter_itself(self, by: str, change: KeyChanges) -> None:
        """Change the own key."""
        self.alter_it(by, by, change)

    @rule(by=keys, of=keys, expires_at=_expiries)
    def extend(self, by: str, of: str, expires_at: datetime | None) -> None:
        """Extend a key."""
        self.alter_it(by, of, KeyChanges(expires_at=expires_at))

    def alter_it(self, by: str, of: str, change: KeyChanges) -> None:
        """Change a key; a key that could do more was out of reach before, too."""
        holder, before = self.key(by), self.key(of)
        ring = self.agent_keys if before is not None and before.kind == "agent" else self.api_keys
        after = self.attempt(by, ring.update(self.home(of), of, change, by=self.actor(by)))
        if after is not None and before is not None and holder is not None and of != by:
            assert list_excesses(capabilities_of(before), capabilities_of(holder)) == []
        if after is not None and after != before:
            self.bind(by, after, holder)

    @rule(target=keys, by=keys, of=keys, hours=st.sampled_from([0, 1, 24]))
    def rotate(self, by: str, of: str, hours: int) -> str:
        """Rotate a key; its successor's plaintext is in the hands of who did it."""
        holder, old = self.key(by), self.key(of)
        ring = self.agent_keys if old is not None and old.kind == "agent" else self.api_keys
        return self.made(by, holder, self.attempt(by, ring.rotate(self.home(of), of, by=self.actor(by), grace_hours=hours)))

    @rule(by=keys, of=keys, suspended=st.booleans())
    def suspend(self, by: str, of: str, suspended: bool) -> None:
        """Suspend or resume a key."""
        key = self.key(of)
        ring = self.agent_keys if key is not None and key.kind == "agent" else self.api_keys
        self.attempt(by, (ring.suspend if suspended else ring.resume)(self.home(of), of, by=self.actor(by)))

    @rule(by=keys, of=keys)
    def delete(self, by: str, of: str) -> None:
        """Delete a key, which needs not all that it has; but it must be in sight."""
        holder, key = self.key(by), self.key(of)
        ring = self.agent_keys if key is not None and key.kind == "agent" else self.api_keys
        self.attempt(by, ring.delete(self.home(of), of, by=self.actor(by)))
        if holder is not None and key is not None:
            is_hidden = key.workspace_id != holder.workspace_id or holder.environment == "test" != key.environment
            assert not is_hidden or self.key(of) == key

    @rule(minutes=st.sampled_from([1, 31, 61]))
    def wait(self, minutes: int) -> None:
        """Let keys expire and grace periods end."""
        self.clock.at += timedelta(minutes=minutes)

    def made(self, by: str, holder: Key | None, minted: KeyWithSecret | None) -> str:
        """Note what *by*, which was *holder*, made, if it did."""
        if minted is None:
            return by
        self.bind(by, minted.key, holder)
        return minted.key.id

    def home(self, key_id: str) -> int:
        """Return the key's own workspace."""
        return self.origins[key_id][0].workspace_id if key_id in self.origins else self.workspaces[0]

    def actor(self, key_id: str) -> Actor:
        """Return who acts with that key, good or not."""
        kind = "agent" if key_id in self.origins and self.origins[key_id][0].kind == "agent" else "api"
        return Actor(kind=kind, id=key_id, name="key", address="192.0.2.1", request_id="req_test")


AuthorityMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestNoPrivilegeGrows = AuthorityMachine.TestCase
