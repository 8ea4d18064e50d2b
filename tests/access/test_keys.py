"""Creating, changing, rotating and pruning keys of both kinds, each only within its workspace."""

from __future__ import annotations

import asyncio
import hashlib
import pickle
import re
from dataclasses import replace
from datetime import timedelta

import bcrypt
import pytest

from rookery.access.errors import NameTaken
from rookery.access.key_fields import KeyChanges, NewAgentKey, NewApiKey, make_unique_slug, slugify
from rookery.access.models import CallFilter, KeyRestrictions, KeyStatus, KeyWithSecret, Tier, UsageFilter
from rookery.access.store import keys as key_store
from rookery.access.store import usage as usage_store
from rookery.access.store import workspaces as workspace_store
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Row, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.pages import PageSlice
from rookery.kernel.secret import Secret
from tests.access.makers import Access
from tests.conftest import OPERATOR


async def test_a_new_api_key_has_the_form_of_the_spec(access: Access) -> None:
    """sk_{environment}_ and 32 characters; live and pro by default."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace, NewApiKey(name=" reader ", scopes=("brain.read",)))

    assert re.fullmatch(r"sk_live_[A-Za-z0-9]{32}", new_key.plaintext.reveal())
    assert (new_key.key.name, new_key.key.scopes, new_key.key.rate_limit_tier, new_key.key.environment) == (
        "reader",
        ("brain:read",),
        Tier.PRO,
        "live",
    )
    assert new_key.key.hint == f"{new_key.plaintext.reveal()[:16]}..."
    assert (await access.api_keys.get(workspace, new_key.key.id)).key == new_key.key


async def test_only_hashes_are_stored(access: Access) -> None:
    """Bcrypt of the whole plaintext, SHA-256 of an agent key. The store contains neither plaintext."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    tokens = [new_key.plaintext.reveal() for new_key in (api, agent)]

    def rows(tx: Tx) -> list[Row]:
        return [
            *key_store.list_rows_by_lookup(tx, "api", tokens[0][8:16]),
            *key_store.list_rows_by_lookup(tx, "agent", hashlib.sha256(tokens[1].encode()).hexdigest()),
        ]

    stored = await access.db.lookup(rows)

    assert [row.text("id") for row in stored] == [api.key.id, agent.key.id]
    assert bcrypt.checkpw(tokens[0].encode(), stored[0].text("key_hash").encode())
    assert not any(token in str(row.values) for token in tokens for row in stored)


async def test_a_new_agent_key_has_the_form_of_the_spec(access: Access) -> None:
    """ak_ and 32 characters; 600 a minute by default, never expires, no restriction."""
    new_key = await access.create_agent_key(
        await access.create_workspace(), NewAgentKey(name="Nest Builder!", permissions=("plans.read", "plans:read"))
    )

    assert re.fullmatch(r"ak_[A-Za-z0-9]{32}", new_key.plaintext.reveal())
    assert (new_key.key.agent_id, new_key.key.scopes, new_key.key.rate_limit, new_key.key.expires_at) == (
        "nest-builder",
        ("plans.read",),
        600,
        None,
    )
    assert (new_key.key.ip_restriction, new_key.key.ip_list, new_key.key.status(access.clock())) == (False, (), KeyStatus.ACTIVE)


async def test_an_agent_id_is_unique_in_its_workspace(access: Access) -> None:
    """A slug of the name, numbered if it is in use, and reusable in another workspace; also with concurrent creations."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new = NewAgentKey(name="Rook", permissions=("brain:read",))

    new_keys = await asyncio.gather(*(access.create_agent_key(workspace, new) for _ in range(5)))

    assert sorted(new_key.key.agent_id or "" for new_key in new_keys) == ["rook", "rook-2", "rook-3", "rook-4", "rook-5"]
    assert (await access.create_agent_key(other, new)).key.agent_id == "rook"
    with pytest.raises(NameTaken) as refusal:
        await access.create_agent_key(workspace, replace(new, agent_id="rook-3"))
    assert (refusal.value.status, refusal.value.code) == (409, "name_taken")
    renamed = await access.agent_keys.update(workspace, new_keys[0].key.id, KeyChanges(name="Other"), by=OPERATOR)
    assert (renamed.name, renamed.agent_id) == ("Other", new_keys[0].key.agent_id)


def test_slugs_are_short_and_never_empty() -> None:
    """1 to 64 of a-z, 0-9 and -, also with a number."""
    assert [slugify(name) for name in ("Rook", "  a  b ", "鴉", "---", "x" * 99)] == ["rook", "a-b", "agent", "agent", "x" * 64]
    assert make_unique_slug("x" * 99, {"x" * 64}) == "x" * 62 + "-2"


@pytest.mark.parametrize(
    ("field", "new"),
    [
        ("name", NewApiKey(name=" ", scopes=("*",))),
        ("name", NewApiKey(name="x" * 101, scopes=("*",))),
        ("name", NewApiKey(name="a\nb", scopes=("*",))),
        ("scopes", NewApiKey(name="key", scopes=())),
        ("scopes", NewApiKey(name="key", scopes=("brain:reed",))),
        ("scopes", NewApiKey(name="key", scopes=("brain:read",) * 1001)),
        ("agent_id", NewApiKey(name="key", scopes=("*",), agent_id="Not A Slug")),
        ("servers", NewApiKey(name="key", scopes=("*",), restrictions=KeyRestrictions(servers=frozenset({""})))),
        ("orgs", NewApiKey(name="key", scopes=("*",), restrictions=KeyRestrictions(orgs=frozenset(str(number) for number in range(1001))))),
        ("tool_limits", NewApiKey(name="key", scopes=("*",), restrictions=KeyRestrictions(tool_limits={"a/*": 0}))),
        ("tool_limits", NewApiKey(name="key", scopes=("*",), restrictions=KeyRestrictions(tool_limits={"[ab]" * 9: 5}))),
        ("tools", NewApiKey(name="key", scopes=("*",), restrictions=KeyRestrictions(tools=("[ab]" * 9,)))),
        ("permissions", NewAgentKey(name="key", permissions=("nonsense",))),
        ("rate_limit", NewAgentKey(name="key", permissions=("*",), rate_limit=0)),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=("nonsense",))),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(1001)))),
    ],
)
async def test_a_key_with_an_invalid_field_is_not_created(access: Access, field: str, new: NewApiKey | NewAgentKey) -> None:
    """422 with the name of the field, and nothing is stored."""
    workspace = await access.create_workspace()

    with pytest.raises(ValidationFailed) as refusal:
        await (access.create_api_key(workspace, new) if isinstance(new, NewApiKey) else access.create_agent_key(workspace, new))

    assert str(refusal.value.detail["errors"]).startswith(f"{{'{field}': [")
    assert (await access.api_keys.list_page(workspace, page=PageSlice(9)))[1] + (
        await access.agent_keys.list_page(workspace, page=PageSlice(9))
    )[1] == 0


async def test_a_new_key_cannot_be_expired(access: Access) -> None:
    """An expiry must be in the future, to the microsecond."""
    workspace, now = await access.create_workspace(), access.clock()
    with pytest.raises(ValidationFailed):
        await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now))

    await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now + timedelta(microseconds=1)))


async def test_a_key_needs_an_existing_workspace(access: Access) -> None:
    """No key is created in a missing workspace, nor directly in a sandbox."""
    workspace = await access.create_workspace()
    sandbox_id = (await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.tenant_id

    for workspace_id in (999_999, sandbox_id):
        with pytest.raises(NotFound):
            await access.create_api_key(workspace_id)
        with pytest.raises(NotFound):
            await access.create_agent_key(workspace_id)


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_no_workspace_changes_keys_of_another(access: Access, kind: str) -> None:
    """No operation from another workspace finds or changes a key."""
    owner, other = await access.create_workspace(), await access.create_workspace("other")
    keyring = access.api_keys if kind == "api" else access.agent_keys
    new_key = await (access.create_api_key if kind == "api" else access.create_agent_key)(owner)
    key_id, agents = new_key.key.id, access.agent_keys
    attempts = [
        keyring.get(other, key_id),
        keyring.suspend(other, key_id, by=OPERATOR),
        keyring.resume(other, key_id, by=OPERATOR),
        keyring.update(other, key_id, KeyChanges(name="taken"), by=OPERATOR),
        keyring.rotate(other, key_id, by=OPERATOR),
        keyring.delete(other, key_id, by=OPERATOR),
    ]
    if kind == "agent":
        attempts += [
            agents.revoke(other, key_id, by=OPERATOR),
            agents.extend(other, key_id, None, by=OPERATOR),
            agents.set_permissions(other, key_id, ["*"], by=OPERATOR),
            agents.set_addresses(other, key_id, [], by=OPERATOR),
            agents.add_addresses(other, key_id, [], by=OPERATOR),
            agents.remove_addresses(other, key_id, [], by=OPERATOR),
            agents.set_enforcement(other, key_id, is_enforced=True, by=OPERATOR),
        ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            await attempt

    assert (await keyring.list_page(other, page=PageSlice(9)))[:2] == ([], 0)
    assert (await keyring.get(owner, key_id)).key == new_key.key
    wrong_kind = access.agent_keys if kind == "api" else access.api_keys
    with pytest.raises(NotFound):
        await wrong_kind.get(owner, key_id)


async def test_no_store_function_returns_rows_of_another_workspace(access: Access) -> None:
    """The same, for the functions of the store."""
    owner, other = await access.create_workspace(), await access.create_workspace("other")
    new_key = await access.create_api_key(owner)
    key_id, at = new_key.key.id, to_micros(access.clock())
    admission = await access.admit(new_key)
    admission.record(method="GET", route="/x", status=200, duration_ms=1)
    await access.usage.flush()

    def work(tx: Tx) -> list[object]:
        key_store.update_key(tx, replace(new_key.key, workspace_id=other, name="taken"))
        key_store.delete_keys(tx, other)
        usage_store.delete_calls(tx, other)
        return [
            key_store.find_key(tx, "api", other, key_id, at=at),
            key_store.list_key_page(tx, "api", other, at=at, environment=None, page=PageSlice(9))[:2],
            key_store.delete_key(tx, replace(new_key.key, workspace_id=other), at=at),
            key_store.KEYS.count(tx, other),
            key_store.list_agent_ids(tx, other),
            usage_store.list_call_page(tx, other, key_id, CallFilter(), page=PageSlice(9))[:2],
            usage_store.list_sums(tx, other, "api", UsageFilter(), frozenset({"key"}), limit=9),
            usage_store.CALLS.count(tx, other),
            workspace_store.find_sandbox(tx, other),
        ]

    assert await access.db.write(work) == [None, ([], 0), False, 0, set(), ([], 0), [], 0, None]
    assert (await access.api_keys.get(owner, key_id)).key == new_key.key
    assert (await access.usage.list_call_page(owner, key_id, CallFilter(), page=PageSlice(9)))[1] == 1


async def test_keys_are_listed_in_pages_newest_first(access: Access) -> None:
    """With the total count."""
    workspace = await access.create_workspace()
    key_ids = [(await access.create_agent_key(workspace)).key.id for _ in range(5)]

    page, total, *_ = await access.agent_keys.list_page(workspace, page=PageSlice(2, 1))

    assert ([listed.key.id for listed in page], total) == ([key_ids[3], key_ids[2]], 5)


def test_a_secret_never_prints() -> None:
    """Not in logs, reprs or tracebacks, and not through pickle."""
    secret = Secret("sk_live_secret")

    assert "sk_live" not in f"{secret} {secret!r} {[secret]} {(secret,)!s}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "sk_live_secret"


async def test_a_key_with_its_secret_never_prints(access: Access) -> None:
    """The object that carries a plaintext prints stars."""
    new_key: KeyWithSecret = await access.create_api_key(await access.create_workspace())

    assert new_key.plaintext.reveal() not in f"{new_key} {new_key!r}"
