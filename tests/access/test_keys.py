"""Making, changing, rotating, pruning keys of both kinds; each only within its workspace (spec 2.2, 2.3, 3.2, 3.3; D-20..D-28)."""

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
from rookery.kernel.secret import Secret
from tests.access.makers import Access
from tests.conftest import OPERATOR


async def test_a_new_api_key_is_of_the_spec_s_form(access: Access) -> None:
    """Spec 2.3, 5.2: sk_{environment}_ and 32 characters; live and pro by default (D-27)."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace, NewApiKey(name=" reader ", scopes=("brain.read",)))

    assert re.fullmatch(r"sk_live_[A-Za-z0-9]{32}", minted.plaintext.reveal())
    assert (minted.key.name, minted.key.scopes, minted.key.tier, minted.key.environment) == ("reader", ("brain:read",), Tier.PRO, "live")
    assert minted.key.hint == f"{minted.plaintext.reveal()[:16]}..."
    assert (await access.api_keys.get(workspace, minted.key.id)).key == minted.key


async def test_only_hashes_are_stored(access: Access) -> None:
    """Spec 2.2, 2.3: bcrypt of the whole plaintext, SHA-256 of an agent key; neither plaintext is anywhere in the store."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    tokens = [each.plaintext.reveal() for each in (api, agent)]

    def rows(tx: Tx) -> list[Row]:
        return [
            *key_store.list_rows_by_lookup(tx, "api", tokens[0][8:16]),
            *key_store.list_rows_by_lookup(tx, "agent", hashlib.sha256(tokens[1].encode()).hexdigest()),
        ]

    stored = await access.db.lookup(rows)

    assert [row.text("id") for row in stored] == [api.key.id, agent.key.id]
    assert bcrypt.checkpw(tokens[0].encode(), stored[0].text("key_hash").encode())
    assert not any(token in str(row.values) for token in tokens for row in stored)


async def test_a_new_agent_key_is_of_the_spec_s_form(access: Access) -> None:
    """Spec 2.2, 5.3: ak_ and 32 characters; 600 a minute by default (D-21), never expires, no restriction."""
    minted = await access.create_agent_key(
        await access.create_workspace(), NewAgentKey(name="Nest Builder!", permissions=("plans.read", "plans:read"))
    )

    assert re.fullmatch(r"ak_[A-Za-z0-9]{32}", minted.plaintext.reveal())
    assert (minted.key.agent_id, minted.key.scopes, minted.key.rate_limit, minted.key.expires_at) == (
        "nest-builder",
        ("plans.read",),
        600,
        None,
    )
    assert (minted.key.ip_restriction, minted.key.ip_list, minted.key.status(access.clock())) == (False, (), KeyStatus.ACTIVE)


async def test_an_agent_id_is_unique_in_its_workspace(access: Access) -> None:
    """D-23: a slug of the name, numbered when taken, the same again elsewhere; even when made at once."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new = NewAgentKey(name="Rook", permissions=("brain:read",))

    made = await asyncio.gather(*(access.create_agent_key(workspace, new) for _ in range(5)))

    assert sorted(each.key.agent_id or "" for each in made) == ["rook", "rook-2", "rook-3", "rook-4", "rook-5"]
    assert (await access.create_agent_key(other, new)).key.agent_id == "rook"
    with pytest.raises(NameTaken) as refusal:
        await access.create_agent_key(workspace, replace(new, agent_id="rook-3"))
    assert (refusal.value.status, refusal.value.code) == (409, "name_taken")
    renamed = await access.agent_keys.update(workspace, made[0].key.id, KeyChanges(name="Other"), by=OPERATOR)
    assert (renamed.name, renamed.agent_id) == ("Other", made[0].key.agent_id)


def test_slugs_are_short_and_never_empty() -> None:
    """D-23: 1 to 64 of a-z, 0-9, -; numbering keeps them so."""
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
        ("permissions", NewAgentKey(name="key", permissions=("nonsense",))),
        ("rate_limit", NewAgentKey(name="key", permissions=("*",), rate_limit=0)),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=("nonsense",))),
        ("ips", NewAgentKey(name="key", permissions=("*",), ip_list=tuple(f"10.0.{number >> 8}.{number & 255}" for number in range(1001)))),
    ],
)
async def test_a_key_with_a_wrong_field_is_not_made(access: Access, field: str, new: NewApiKey | NewAgentKey) -> None:
    """D-12, D-23: 422 naming the field, and nothing stored."""
    workspace = await access.create_workspace()

    with pytest.raises(ValidationFailed) as refusal:
        await (access.create_api_key(workspace, new) if isinstance(new, NewApiKey) else access.create_agent_key(workspace, new))

    assert str(refusal.value.detail["errors"]).startswith(f"{{'{field}': [")
    assert (await access.api_keys.list_page(workspace, limit=9))[1] + (await access.agent_keys.list_page(workspace, limit=9))[1] == 0


async def test_a_key_is_not_born_expired(access: Access) -> None:
    """Spec 2.3: an expiry lies ahead, to the microsecond."""
    workspace, now = await access.create_workspace(), access.clock()
    with pytest.raises(ValidationFailed):
        await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now))

    await access.create_api_key(workspace, NewApiKey(name="key", scopes=("*",), expires_at=now + timedelta(microseconds=1)))


async def test_a_key_needs_its_workspace(access: Access) -> None:
    """Spec 2.8: none is made in a workspace that is not there, nor in a twin directly."""
    workspace = await access.create_workspace()
    twin = (await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))).key.tenant_id

    for nowhere in (999_999, twin):
        with pytest.raises(NotFound):
            await access.create_api_key(nowhere)
        with pytest.raises(NotFound):
            await access.create_agent_key(nowhere)


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_no_workspace_touches_another_s_keys(access: Access, kind: str) -> None:
    """Spec 2.8: every verb, tried as another workspace, finds nothing and changes nothing."""
    owner, other = await access.create_workspace(), await access.create_workspace("other")
    ring = access.api_keys if kind == "api" else access.agent_keys
    minted = await (access.create_api_key if kind == "api" else access.create_agent_key)(owner)
    key_id, agents = minted.key.id, access.agent_keys
    attempts = [
        ring.get(other, key_id),
        ring.suspend(other, key_id, by=OPERATOR),
        ring.resume(other, key_id, by=OPERATOR),
        ring.update(other, key_id, KeyChanges(name="taken"), by=OPERATOR),
        ring.rotate(other, key_id, by=OPERATOR),
        ring.delete(other, key_id, by=OPERATOR),
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

    assert await ring.list_page(other, limit=9) == ([], 0)
    assert (await ring.get(owner, key_id)).key == minted.key
    wrong_kind = access.agent_keys if kind == "api" else access.api_keys
    with pytest.raises(NotFound):
        await wrong_kind.get(owner, key_id)


async def test_no_store_function_reaches_into_another_workspace(access: Access) -> None:
    """Spec 2.8: the same, below the verbs."""
    owner, other = await access.create_workspace(), await access.create_workspace("other")
    minted = await access.create_api_key(owner)
    key_id, at = minted.key.id, to_micros(access.clock())
    admission = await access.admit(minted)
    admission.record(method="GET", route="/x", status=200, duration_ms=1)
    await access.usage.flush()

    def work(tx: Tx) -> list[object]:
        key_store.update_key(tx, replace(minted.key, workspace_id=other, name="taken"))
        key_store.delete_keys(tx, other)
        usage_store.delete_calls(tx, other)
        return [
            key_store.find_key(tx, "api", other, key_id, at=at),
            key_store.list_key_page(tx, "api", other, at=at, environment=None, limit=9, offset=0),
            key_store.delete_key(tx, replace(minted.key, workspace_id=other), at=at),
            key_store.count_keys(tx, other),
            key_store.list_agent_ids(tx, other),
            usage_store.list_call_page(tx, other, key_id, CallFilter(), limit=9, offset=0),
            usage_store.list_sums(tx, other, "api", UsageFilter(), frozenset({"key"}), limit=9),
            usage_store.count_calls(tx, other),
            workspace_store.find_sandbox(tx, other),
        ]

    assert await access.db.write(work) == [None, ([], 0), False, 0, set(), ([], 0), [], 0, None]
    assert (await access.api_keys.get(owner, key_id)).key == minted.key
    assert (await access.usage.list_call_page(owner, key_id, CallFilter(), limit=9, offset=0))[1] == 1


async def test_lists_come_in_pages_newest_first(access: Access) -> None:
    """D-12: with the number of all."""
    workspace = await access.create_workspace()
    made = [(await access.create_agent_key(workspace)).key.id for _ in range(5)]

    page, total = await access.agent_keys.list_page(workspace, limit=2, offset=1)

    assert ([each.key.id for each in page], total) == ([made[3], made[2]], 5)


def test_a_secret_never_prints() -> None:
    """D-20: not in logs, reprs or tracebacks, and not through pickle."""
    secret = Secret("sk_live_secret")

    assert "sk_live" not in f"{secret} {secret!r} {[secret]} {(secret,)!s}"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.reveal() == "sk_live_secret"


async def test_a_minted_key_never_prints(access: Access) -> None:
    """D-20: the noun that carries a plaintext through the code shows stars."""
    minted: KeyWithSecret = await access.create_api_key(await access.create_workspace())

    assert minted.plaintext.reveal() not in f"{minted} {minted!r}"
