"""The guard: who gets in, in which order it is asked, and what the answer carries (spec 5, 7, 8; D-15, D-20..D-28)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, replace
from datetime import timedelta
from urllib.parse import quote

import pytest

from rookery.access.errors import AddressNotAllowed, KeyExpired, KeyRevoked, RateLimited, ScopeMissing, Unauthorised, WorkspaceMismatch
from rookery.access.guard import get_caller
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Caller, CallFilter
from rookery.kernel.errors import PermissionDenied, RookeryError
from tests.access.makers import Access
from tests.conftest import OPERATOR

UNKNOWN = "sk_live_" + "x" * 32
UNKNOWN_AGENT = "ak_" + "x" * 32


async def test_the_caller_is_what_the_key_says(access: Access) -> None:
    """Spec 5: a request with a key acts in the key's workspace, with its scopes."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace, NewApiKey(name="reader", scopes=("brain:read",), agent_id="rook"))

    caller = (await access.admit(minted, required_scope="brain:read")).caller

    assert caller == Caller(
        key_id=minted.key.id, key_kind="api", key_name="reader", workspace_id=workspace, public_workspace_id=workspace,
        scopes=frozenset({"brain:read"}), agent_id="rook", environment="live", servers=None, tools=None, orgs=None, projects=None,
        tool_limits={}, address="192.0.2.1", request_id="req_test",
    )  # fmt: skip
    assert caller.has_scope("brain:read")
    caller.require_scope("brain:read")
    assert not caller.has_scope("brain:write")
    with pytest.raises(ScopeMissing):
        caller.require_scope("brain:write")


@pytest.mark.parametrize("kind", ["api", "agent"])
@pytest.mark.parametrize(
    "form",
    [
        "bearer",
        "Bearer",
        "X-API-Key",
        "Basic",
    ],
)
async def test_either_kind_is_taken_in_every_form(access: Access, kind: str, form: str) -> None:
    """D-22: every route takes every form and, scopes allowing, either kind."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace) if kind == "api" else await access.create_agent_key(workspace)

    key = minted.plaintext.reveal().encode()
    value = {"X-API-Key": key, "Basic": b"Basic " + base64.b64encode(key + b":")}.get(form, form.encode() + b" " + key)

    admission = await access.send((b"x-api-key" if form == "X-API-Key" else b"authorization", value), required_scope="brain:read")

    assert admission.caller.key_id == minted.key.id
    assert admission.caller.key_kind == kind


@pytest.mark.parametrize(
    "token", ["", "nonsense", "x" * 73, "sk_live_short", "ak_" + "ä" * 32, UNKNOWN, UNKNOWN_AGENT, "sk_test_" + "x" * 32]
)
async def test_a_key_that_is_not_known_is_unauthorised(access: Access, token: str) -> None:
    """Spec 7: 401 unauthorised, with how to authenticate; and no rate limit of anybody's."""
    with pytest.raises(Unauthorised) as refusal:
        await access.admit(token)

    assert (refusal.value.status, refusal.value.code) == (401, "unauthorised")
    assert refusal.value.headers == {"WWW-Authenticate": "Bearer"}
    assert access.bcrypt.run_count == 0


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_nothing_but_the_very_key_is_the_key(access: Access, kind: str) -> None:
    """Notes 3.5: a good key cut, lengthened to 72, 73 and more bytes, in another case or spelling, or with what strings end at."""
    workspace = await access.create_workspace()
    token = (await (access.create_api_key if kind == "api" else access.create_agent_key)(workspace)).plaintext.reveal()
    variants = [
        token[:-1], token[1:], token + "x", token.ljust(72, "x"), token.ljust(73, "x"), token * 2, token * 10,
        token.swapcase(), token.upper(), token.replace("_", "-"), token.replace("_", "%5F"), quote(f"{token}="),
        f"{token}\0", f"{token}\0x", f"\0{token}", f"{token} x", f"{token},{token}", f'"{token}"', f"<{token}>", f"{token}:",
        f"Bearer {token}", f"{token}:{token}", base64.b64encode(token.encode()).decode(), token.encode("utf-16-le").decode("latin-1"),
        token.replace(token[-1], "\N{CYRILLIC SMALL LETTER A}"), token.replace("_", "\N{FULLWIDTH LOW LINE}"),
        f"\N{ZERO WIDTH SPACE}{token}",
    ]  # fmt: skip

    for variant in variants:
        for header in ((b"authorization", b"Bearer " + variant.encode()), (b"x-api-key", b"x" + variant.encode())):
            with pytest.raises(Unauthorised) as refusal:
                await access.send(header)
            assert (refusal.value.code, token in str(refusal.value)) == ("unauthorised", False), variant
    assert access.bcrypt.run_count == 0, "none of them has the form of an API key"
    assert (await access.admit(token)).caller.key_kind == kind


async def test_a_key_of_another_environment_is_another_key(access: Access) -> None:
    """Spec 5.2: the whole plaintext is compared, not its random part alone, by which both are looked up."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()

    with pytest.raises(Unauthorised):
        await access.admit(token.replace("sk_live_", "sk_test_"))
    assert access.bcrypt.run_count == 1


async def test_two_good_keys_in_one_request_open_nothing(access: Access) -> None:
    """D-22: which of them acts would be a guess; nothing is counted, spent or proven. The same key twice is one."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    bearer, other = (b"Bearer " + each.plaintext.reveal().encode() for each in (api, agent))

    for headers in (
        ((b"authorization", bearer), (b"x-api-key", other[7:])),
        ((b"x-api-key", other[7:]), (b"authorization", bearer)),
        ((b"authorization", bearer), (b"authorization", other)),
        ((b"authorization", bearer), (b"authorization", b"Basic " + base64.b64encode(other[7:] + b":"))),
        ((b"x-api-key", bearer[7:]), (b"x-api-key", other[7:])),
    ):
        with pytest.raises(Unauthorised):
            await access.send(*headers)
    assert access.bcrypt.run_count == 0
    uses = [(await ring.list_page(workspace, limit=9))[0][0].usage.call_count for ring in (access.api_keys, access.agent_keys)]
    assert uses == [0, 0]
    assert (await access.send((b"authorization", bearer), (b"x-api-key", bearer[7:]))).caller.key_id == api.key.id


async def test_a_request_without_a_key_is_told_how_to_send_one(access: Access) -> None:
    """Spec 7: 401; the query string is never read (D-22)."""
    minted = await access.create_api_key(await access.create_workspace())
    scope: dict[str, object] = {"headers": [], "client": None, "query_string": f"api_key={minted.plaintext.reveal()}".encode()}

    with pytest.raises(Unauthorised):
        await access.guard.admit(scope, required_scope=None)


async def test_a_hash_presented_as_a_key_opens_nothing(access: Access) -> None:
    """Spec 2.2, 2.3: the stored hashes are useless to a thief."""
    workspace = await access.create_workspace()
    agent = await access.create_agent_key(workspace)

    with pytest.raises(Unauthorised):
        await access.admit(hashlib.sha256(agent.plaintext.reveal().encode()).hexdigest())


async def test_an_agent_key_is_asked_in_the_order_of_spec_5_3(access: Access) -> None:
    """Spec 5.3, steps 2 to 7: of all that is wrong with a key, the first in the order is told."""
    workspace = await access.create_workspace()
    keys, clock = access.agent_keys, access.clock
    new = NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1, expires_at=clock() + timedelta(hours=1), ip_restriction=True)
    minted = await access.create_agent_key(workspace, new)
    key_id = minted.key.id
    clock.advance(hours=2)
    await keys.revoke(workspace, key_id, by=OPERATOR)

    async def refused() -> RookeryError:
        with pytest.raises(RookeryError) as refusal:
            await access.admit(minted, required_scope="brain:write")
        return refusal.value

    assert isinstance(await refused(), KeyRevoked)
    await keys.modify(workspace, key_id, lambda key: replace(key, revoked_at=None), by=OPERATOR, action="changed")
    assert isinstance(await refused(), KeyExpired)
    await keys.extend(workspace, key_id, None, by=OPERATOR)
    denied = await refused()
    assert isinstance(denied, AddressNotAllowed)
    assert denied.body()["your_ip"] == "192.0.2.1"
    await keys.set_addresses(workspace, key_id, ["192.0.2.0/24"], by=OPERATOR)
    lacking = await refused()
    assert isinstance(lacking, PermissionDenied)
    assert lacking.body()["required_permission"] == "brain:write"
    assert (await keys.get(workspace, key_id)).usage.call_count == 0, "whoever was refused has spent and counted nothing"
    await keys.set_permissions(workspace, key_id, ["brain:write"], by=OPERATOR)
    await access.admit(minted, required_scope="brain:write")
    limited = await refused()
    assert isinstance(limited, RateLimited)
    assert limited.body()["retry_after"] == 60
    assert (await keys.get(workspace, key_id)).usage.call_count == 1


async def test_an_api_key_without_the_scope_is_told_which(access: Access) -> None:
    """Spec 5.2, rule 5: 403 with error and required_scope."""
    minted = await access.create_api_key(await access.create_workspace(), NewApiKey(name="reader", scopes=("*:read",)))

    with pytest.raises(ScopeMissing) as refusal:
        await access.admit(minted, required_scope="brain:write")

    assert refusal.value.status == 403
    assert refusal.value.body() == {
        "error": "scope_missing",
        "required_scope": "brain:write",
        "message": "This key lacks the scope 'brain:write'.",
    }


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_a_key_at_its_very_expiry_is_expired(access: Access, kind: str) -> None:
    """Spec 5.2, rule 6; spec 3.2: 401 key_expired from the moment on, not before."""
    workspace, ends = await access.create_workspace(), access.clock() + timedelta(hours=1)
    if kind == "api":
        minted = await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=ends))
    else:
        minted = await access.create_agent_key(workspace, NewAgentKey(name="brief", permissions=("brain:read",), expires_at=ends))
    access.clock.advance(seconds=3599.999999)
    await access.admit(minted)
    access.clock.advance(seconds=0.000001)

    with pytest.raises(KeyExpired) as refusal:
        await access.admit(minted)

    assert (refusal.value.status, refusal.value.code) == (401, "key_expired")
    assert refusal.value.headers["WWW-Authenticate"] == "Bearer"


async def test_a_state_is_told_to_nobody_without_the_secret(access: Access) -> None:
    """D-20: a wrong secret for the lookup of an expired, suspended key is merely unauthorised."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    await access.api_keys.suspend(workspace, minted.key.id, by=OPERATOR)
    access.clock.advance(hours=2)
    token = minted.plaintext.reveal()
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")

    with pytest.raises(Unauthorised) as refusal:
        await access.admit(wrong)

    assert refusal.value.code == "unauthorised"
    assert "x-ratelimit-limit" not in refusal.value.headers
    with pytest.raises(KeyRevoked):
        await access.admit(minted)


@pytest.mark.parametrize(
    ("value", "admitted"),
    [(b"{own}", True), (b" {own} ", True), (b"{other}", False), (b"0{own}", False), (b"", False), (b"nest", False), (b"\xff", False)],
)
async def test_a_workspace_that_is_named_must_be_the_key_s(access: Access, value: bytes, admitted: bool) -> None:
    """D-15: X-Workspace-ID is optional; any but the key's own is 403 permission_denied."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    minted = await access.create_api_key(workspace)
    header = (b"x-workspace-id", value.replace(b"{own}", str(workspace).encode()).replace(b"{other}", str(other).encode()))

    if admitted:
        await access.admit(minted, headers=(header,))
    else:
        with pytest.raises(WorkspaceMismatch) as refusal:
            await access.admit(minted, headers=(header,))
        assert (refusal.value.status, refusal.value.code) == (403, "permission_denied")


async def test_a_test_key_acts_in_the_sandbox_twin(access: Access) -> None:
    """D-25: a tenant of its own, shared by the workspace's test keys; answers show the parent."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new = NewApiKey(name="trial", scopes=("*",), environment="test")
    first, second = [(await access.admit(await access.create_api_key(workspace, new))).caller for _ in range(2)]
    foreign = (await access.admit(await access.create_api_key(other, new))).caller
    live = (await access.admit(await access.create_api_key(workspace))).caller

    assert first.workspace_id == second.workspace_id
    assert len({first.workspace_id, foreign.workspace_id, live.workspace_id, other}) == 4
    assert (first.public_workspace_id, foreign.public_workspace_id, first.environment) == (workspace, other, "test")
    assert [each.id for each in await access.workspaces.list()] == [workspace, other], "twins are in no list"


async def test_a_test_key_names_the_workspace_it_shows(access: Access) -> None:
    """D-15, D-25: the id of the sandbox twin is never shown."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))
    twin = (await access.admit(minted, headers=((b"x-workspace-id", str(workspace).encode()),))).caller.workspace_id

    with pytest.raises(WorkspaceMismatch):
        await access.admit(minted, headers=((b"x-workspace-id", str(twin).encode()),))


async def test_a_deleted_workspace_s_keys_open_nothing(access: Access) -> None:
    """D-20, spec 2.8: from the commit on, of both kinds and both environments."""
    workspace = await access.create_workspace()
    minted = [
        await access.create_api_key(workspace),
        await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test")),
        await access.create_agent_key(workspace),
    ]
    for each in minted:
        await access.admit(each)
    await access.workspaces.delete(workspace, by=OPERATOR)

    for each in minted:
        with pytest.raises(Unauthorised):
            await access.admit(each)


async def test_an_admitted_call_is_counted_and_logged(access: Access) -> None:
    """Spec 5.3, step 7; D-29: count, time and address at once, one row a call with its answer."""
    workspace = await access.create_workspace()
    minted = await access.create_agent_key(workspace)
    admission = await access.admit(minted, address="::ffff:203.0.113.5")
    admission.record(method="POST", route="/v1/brain/recall", status=422, duration_ms=1.5)

    use = (await access.agent_keys.get(workspace, minted.key.id)).usage
    calls, total = await access.usage.list_call_page(workspace, minted.key.id, CallFilter(), limit=10, offset=0)

    assert (use.call_count, use.last_used_at, use.last_used_ip) == (1, access.clock(), "203.0.113.5")
    assert total == 1
    assert (calls[0].method, calls[0].route, calls[0].status, calls[0].duration_ms, calls[0].address, calls[0].request_id, calls[0].at) == (
        "POST", "/v1/brain/recall", 422, 1.5, "203.0.113.5", "req_test", access.clock(),
    )  # fmt: skip


async def test_the_caller_is_found_on_the_request(access: Access) -> None:
    """The route wrapper keeps it in the request's state; a public route has none."""
    caller = (await access.admit(await access.create_api_key(await access.create_workspace()))).caller

    assert get_caller(Request({"state": {"caller": caller}})) is caller
    with pytest.raises(LookupError):
        get_caller(Request({"state": {}}))
    with pytest.raises(LookupError):
        get_caller(Request({}))


async def test_no_key_is_in_any_refusal(access: Access, caplog: pytest.LogCaptureFixture) -> None:
    """D-20: secrets are in no exception, repr or log."""
    workspace = await access.create_workspace()
    minted = await access.create_api_key(workspace)
    token = minted.plaintext.reveal()
    await access.api_keys.suspend(workspace, minted.key.id, by=OPERATOR)
    with pytest.raises(KeyRevoked) as refusal:
        await access.admit(minted)

    assert token not in f"{minted!r} {minted.plaintext} {refusal.value!r} {refusal.value.body()} {refusal.value.headers} {caplog.text}"


@dataclass
class Request:
    """A request of any framework."""

    scope: dict[str, object]
