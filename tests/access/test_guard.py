"""The guard: who is admitted, the order of its checks and what its responses carry."""

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
from rookery.kernel.pages import PageSlice
from tests.access.makers import Access
from tests.conftest import OPERATOR

UNKNOWN = "sk_live_" + "x" * 32
UNKNOWN_AGENT = "ak_" + "x" * 32


async def test_the_caller_has_the_fields_of_the_key(access: Access) -> None:
    """A request with a key acts in the key's workspace, with its scopes."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace, NewApiKey(name="reader", scopes=("brain:read",), agent_id="rook"))

    caller = (await access.admit(new_key, required_scope="brain:read")).caller

    assert caller == Caller(
        key_id=new_key.key.id, key_kind="api", key_name="reader", workspace_id=workspace, public_workspace_id=workspace,
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
async def test_either_kind_of_key_is_accepted_in_every_header(access: Access, kind: str, form: str) -> None:
    """Every route accepts every header and, if the scopes allow it, either kind."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace) if kind == "api" else await access.create_agent_key(workspace)

    key = new_key.plaintext.reveal().encode()
    value = {"X-API-Key": key, "Basic": b"Basic " + base64.b64encode(key + b":")}.get(form, form.encode() + b" " + key)

    admission = await access.send((b"x-api-key" if form == "X-API-Key" else b"authorization", value), required_scope="brain:read")

    assert admission.caller.key_id == new_key.key.id
    assert admission.caller.key_kind == kind


@pytest.mark.parametrize(
    "token", ["", "nonsense", "x" * 73, "sk_live_short", "ak_" + "ä" * 32, UNKNOWN, UNKNOWN_AGENT, "sk_test_" + "x" * 32]
)
async def test_an_unknown_key_is_unauthorised(access: Access, token: str) -> None:
    """401 unauthorised, with how to authenticate, and without rate limit headers."""
    with pytest.raises(Unauthorised) as refusal:
        await access.admit(token)

    assert (refusal.value.status, refusal.value.code) == (401, "unauthorised")
    assert refusal.value.headers == {"WWW-Authenticate": "Bearer"}
    assert access.bcrypt.run_count == 0


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_a_variant_of_a_valid_key_is_rejected(access: Access, kind: str) -> None:
    """Notes 3.5: a valid key shortened, lengthened to 72, 73 and more bytes, in another case or encoding, or with a terminator."""
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


async def test_the_environment_is_part_of_the_key(access: Access) -> None:
    """The whole plaintext is compared, not only the random part that both lookups use."""
    token = (await access.create_api_key(await access.create_workspace())).plaintext.reveal()

    with pytest.raises(Unauthorised):
        await access.admit(token.replace("sk_live_", "sk_test_"))
    assert access.bcrypt.run_count == 1


async def test_two_valid_keys_in_one_request_are_rejected(access: Access) -> None:
    """The acting key would be a guess. Nothing is counted, spent or verified. The same key twice counts as one."""
    workspace = await access.create_workspace()
    api, agent = await access.create_api_key(workspace), await access.create_agent_key(workspace)
    bearer, agent_bearer = (b"Bearer " + new_key.plaintext.reveal().encode() for new_key in (api, agent))

    for headers in (
        ((b"authorization", bearer), (b"x-api-key", agent_bearer[7:])),
        ((b"x-api-key", agent_bearer[7:]), (b"authorization", bearer)),
        ((b"authorization", bearer), (b"authorization", agent_bearer)),
        ((b"authorization", bearer), (b"authorization", b"Basic " + base64.b64encode(agent_bearer[7:] + b":"))),
        ((b"x-api-key", bearer[7:]), (b"x-api-key", agent_bearer[7:])),
    ):
        with pytest.raises(Unauthorised):
            await access.send(*headers)
    assert access.bcrypt.run_count == 0
    call_counts = [
        (await keyring.list_page(workspace, page=PageSlice(9)))[0][0].usage.call_count for keyring in (access.api_keys, access.agent_keys)
    ]
    assert call_counts == [0, 0]
    assert (await access.send((b"authorization", bearer), (b"x-api-key", bearer[7:]))).caller.key_id == api.key.id


async def test_a_key_in_the_query_string_is_ignored(access: Access) -> None:
    """401; the query string is never read."""
    new_key = await access.create_api_key(await access.create_workspace())
    scope: dict[str, object] = {"headers": [], "client": None, "query_string": f"api_key={new_key.plaintext.reveal()}".encode()}

    with pytest.raises(Unauthorised):
        await access.guard.admit(scope, required_scope=None)


async def test_a_hash_sent_as_a_key_is_rejected(access: Access) -> None:
    """The stored hashes give no access."""
    workspace = await access.create_workspace()
    agent = await access.create_agent_key(workspace)

    with pytest.raises(Unauthorised):
        await access.admit(hashlib.sha256(agent.plaintext.reveal().encode()).hexdigest())


async def test_an_agent_key_is_checked_in_the_order_of_spec_5_3(access: Access) -> None:
    """If several checks fail, the first one in the order is reported."""
    workspace = await access.create_workspace()
    keys, clock = access.agent_keys, access.clock
    new = NewAgentKey(name="rook", permissions=("brain:read",), rate_limit=1, expires_at=clock() + timedelta(hours=1), ip_restriction=True)
    new_key = await access.create_agent_key(workspace, new)
    key_id = new_key.key.id
    clock.advance(hours=2)
    await keys.revoke(workspace, key_id, by=OPERATOR)

    async def admission_error() -> RookeryError:
        with pytest.raises(RookeryError) as refusal:
            await access.admit(new_key, required_scope="brain:write")
        return refusal.value

    assert isinstance(await admission_error(), KeyRevoked)
    await keys.modify(workspace, key_id, lambda key: replace(key, revoked_at=None), by=OPERATOR, action="changed")
    assert isinstance(await admission_error(), KeyExpired)
    await keys.extend(workspace, key_id, None, by=OPERATOR)
    wrong_address = await admission_error()
    assert isinstance(wrong_address, AddressNotAllowed)
    assert wrong_address.body()["your_ip"] == "192.0.2.1"
    await keys.set_addresses(workspace, key_id, ["192.0.2.0/24"], by=OPERATOR)
    missing_permission = await admission_error()
    assert isinstance(missing_permission, PermissionDenied)
    assert missing_permission.body()["required_permission"] == "brain:write"
    assert (await keys.get(workspace, key_id)).usage.call_count == 0, "rejected requests spend and count nothing"
    await keys.set_permissions(workspace, key_id, ["brain:write"], by=OPERATOR)
    await access.admit(new_key, required_scope="brain:write")
    rate_limited = await admission_error()
    assert isinstance(rate_limited, RateLimited)
    assert rate_limited.body()["retry_after"] == 60
    assert (await keys.get(workspace, key_id)).usage.call_count == 1


async def test_an_api_key_without_the_scope_gets_its_name(access: Access) -> None:
    """403 with error and required_scope."""
    new_key = await access.create_api_key(await access.create_workspace(), NewApiKey(name="reader", scopes=("*:read",)))

    with pytest.raises(ScopeMissing) as refusal:
        await access.admit(new_key, required_scope="brain:write")

    assert refusal.value.status == 403
    assert refusal.value.body() == {
        "error": "scope_missing",
        "required_scope": "brain:write",
        "message": "This key lacks the scope 'brain:write'.",
    }


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_a_key_expires_exactly_at_its_expiry(access: Access, kind: str) -> None:
    """401 key_expired from that moment on, and not before."""
    workspace, expires_at = await access.create_workspace(), access.clock() + timedelta(hours=1)
    if kind == "api":
        new_key = await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=expires_at))
    else:
        new_key = await access.create_agent_key(workspace, NewAgentKey(name="brief", permissions=("brain:read",), expires_at=expires_at))
    access.clock.advance(seconds=3599.999999)
    await access.admit(new_key)
    access.clock.advance(seconds=0.000001)

    with pytest.raises(KeyExpired) as refusal:
        await access.admit(new_key)

    assert (refusal.value.status, refusal.value.code) == (401, "key_expired")
    assert refusal.value.headers["WWW-Authenticate"] == "Bearer"


async def test_the_state_of_a_key_is_hidden_without_its_secret(access: Access) -> None:
    """A wrong secret for the lookup of an expired, suspended key gets only unauthorised."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace, NewApiKey(name="brief", scopes=("*",), expires_at=access.clock() + timedelta(hours=1)))
    await access.api_keys.suspend(workspace, new_key.key.id, by=OPERATOR)
    access.clock.advance(hours=2)
    token = new_key.plaintext.reveal()
    wrong_token = token[:-1] + ("a" if token[-1] != "a" else "b")

    with pytest.raises(Unauthorised) as refusal:
        await access.admit(wrong_token)

    assert refusal.value.code == "unauthorised"
    assert "x-ratelimit-limit" not in refusal.value.headers
    with pytest.raises(KeyRevoked):
        await access.admit(new_key)


@pytest.mark.parametrize(
    ("value", "is_admitted"),
    [(b"{own}", True), (b" {own} ", True), (b"{other}", False), (b"0{own}", False), (b"", False), (b"nest", False), (b"\xff", False)],
)
async def test_the_workspace_header_must_name_the_workspace_of_the_key(access: Access, value: bytes, is_admitted: bool) -> None:
    """X-Workspace-ID is optional; any but the key's own is 403 permission_denied."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new_key = await access.create_api_key(workspace)
    header = (b"x-workspace-id", value.replace(b"{own}", str(workspace).encode()).replace(b"{other}", str(other).encode()))

    if is_admitted:
        await access.admit(new_key, headers=(header,))
    else:
        with pytest.raises(WorkspaceMismatch) as refusal:
            await access.admit(new_key, headers=(header,))
        assert (refusal.value.status, refusal.value.code) == (403, "permission_denied")


async def test_a_test_key_acts_in_the_sandbox_of_its_workspace(access: Access) -> None:
    """The test keys of a workspace share a separate tenant; responses show the parent."""
    workspace, other = await access.create_workspace(), await access.create_workspace("other")
    new = NewApiKey(name="trial", scopes=("*",), environment="test")
    first, second = [(await access.admit(await access.create_api_key(workspace, new))).caller for _ in range(2)]
    other_workspace_caller = (await access.admit(await access.create_api_key(other, new))).caller
    live_caller = (await access.admit(await access.create_api_key(workspace))).caller

    assert first.workspace_id == second.workspace_id
    assert len({first.workspace_id, other_workspace_caller.workspace_id, live_caller.workspace_id, other}) == 4
    assert (first.public_workspace_id, other_workspace_caller.public_workspace_id, first.environment) == (workspace, other, "test")
    assert [listed.id for listed in await access.workspaces.list()] == [workspace, other], "sandboxes are not listed"


async def test_a_test_key_names_the_workspace_of_its_responses(access: Access) -> None:
    """The id of the sandbox is never shown."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test"))
    sandbox_id = (await access.admit(new_key, headers=((b"x-workspace-id", str(workspace).encode()),))).caller.workspace_id

    with pytest.raises(WorkspaceMismatch):
        await access.admit(new_key, headers=((b"x-workspace-id", str(sandbox_id).encode()),))


async def test_keys_of_a_deleted_workspace_are_rejected(access: Access) -> None:
    """From the commit on, keys of both kinds and both environments."""
    workspace = await access.create_workspace()
    new_keys = [
        await access.create_api_key(workspace),
        await access.create_api_key(workspace, NewApiKey(name="trial", scopes=("*",), environment="test")),
        await access.create_agent_key(workspace),
    ]
    for new_key in new_keys:
        await access.admit(new_key)
    await access.workspaces.delete(workspace, by=OPERATOR)

    for new_key in new_keys:
        with pytest.raises(Unauthorised):
            await access.admit(new_key)


async def test_an_admitted_call_is_counted_and_logged(access: Access) -> None:
    """Count, time and address at once, and one row per call with its status."""
    workspace = await access.create_workspace()
    new_key = await access.create_agent_key(workspace)
    admission = await access.admit(new_key, address="::ffff:203.0.113.5")
    admission.record(method="POST", route="/v1/brain/recall", status=422, duration_ms=1.5)

    usage = (await access.agent_keys.get(workspace, new_key.key.id)).usage
    calls, total, *_ = await access.usage.list_call_page(workspace, new_key.key.id, CallFilter(), page=PageSlice(10))

    assert (usage.call_count, usage.last_used_at, usage.last_used_ip) == (1, access.clock(), "203.0.113.5")
    assert total == 1
    assert (calls[0].method, calls[0].route, calls[0].status, calls[0].duration_ms, calls[0].address, calls[0].request_id, calls[0].at) == (
        "POST", "/v1/brain/recall", 422, 1.5, "203.0.113.5", "req_test", access.clock(),
    )  # fmt: skip


async def test_the_caller_is_found_on_the_request(access: Access) -> None:
    """The route wrapper stores the caller in the request's state. A public route has none."""
    caller = (await access.admit(await access.create_api_key(await access.create_workspace()))).caller

    assert get_caller(Request({"state": {"caller": caller}})) is caller
    with pytest.raises(LookupError):
        get_caller(Request({"state": {}}))
    with pytest.raises(LookupError):
        get_caller(Request({}))


async def test_no_error_contains_a_key(access: Access, caplog: pytest.LogCaptureFixture) -> None:
    """Secrets are in no exception, repr or log."""
    workspace = await access.create_workspace()
    new_key = await access.create_api_key(workspace)
    token = new_key.plaintext.reveal()
    await access.api_keys.suspend(workspace, new_key.key.id, by=OPERATOR)
    with pytest.raises(KeyRevoked) as refusal:
        await access.admit(new_key)

    assert token not in f"{new_key!r} {new_key.plaintext} {refusal.value!r} {refusal.value.body()} {refusal.value.headers} {caplog.text}"


@dataclass
class Request:
    """A request of any framework."""

    scope: dict[str, object]
