"""Logins at upstreams: discovery, encrypted tokens, renewal and errors."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from urllib.parse import parse_qsl, urlsplit

import pytest

from rookery.engines.upstreams.http import HttpConnector
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database
from rookery.kernel.errors import NotFound
from rookery.tools.errors import ConnectFailed, LoginFailed, LoginNotSupported
from rookery.tools.models import ALL_WORKSPACES, HttpTarget, OAuthConfig, SessionIsolation
from rookery.tools.ports import RequestOptions
from rookery.tools.servers.logins import CONSENT_TIMEOUT, Logins
from rookery.tools.store import logins as store
from tests.conftest import OPERATOR, FakeClock, eventually
from tests.deadlines import HANG_S
from tests.tools.conftest import MakeLogins
from tests.tools.makers import make_caller
from tests.tools.oauth_server import REDIRECT, OAuthServer, call_tool, grant_consent, log_in

COUNTERS = ("registered", "granted", "renewed", "calls", "sessions")


# Logging in.


async def test_a_login_needs_only_the_address_of_the_server(logins: Logins, oauth_server: OAuthServer) -> None:
    """RFC 9728, 8414, 7591, 7636, 8707, 9207, in sequence."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    with pytest.raises(ConnectFailed, match=r"There is no login.*rookery servers login guarded") as failed:
        await call_tool(logins, server)
    assert failed.value.needs_login

    await log_in(logins, server)
    await call_tool(logins, server)

    counts = oauth_server.control()
    assert {name: counts[name] for name in COUNTERS} == {"registered": 1, "granted": 1, "renewed": 0, "calls": 1, "sessions": 1}


@pytest.mark.parametrize("secret", ["s: %/", None])
async def test_a_configured_client_is_used_without_registration(logins: Logins, oauth_server: OAuthServer, secret: str | None) -> None:
    """client_id and client_secret of the entry, which RFC 6749 has percent-encoded in Basic."""
    oauth_server.control(registers=False, client={"id": "by:hand", **({} if secret is None else {"secret": secret})})
    server = oauth_server.make_entry(auth=OAuthConfig(client_id="by:hand", client_secret=secret))

    await log_in(logins, server)
    await call_tool(logins, server)

    assert oauth_server.control()["registered"] == 0


async def test_an_error_without_registration_says_how_to_register_a_client(logins: Logins, oauth_server: OAuthServer) -> None:
    """The error names the redirect URL to register and the field for the client id."""
    oauth_server.control(registers=False)

    with pytest.raises(LoginFailed, match=rf"redirect URL {REDIRECT}.*client_id"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_a_client_metadata_document_replaces_registration(logins: Logins, oauth_server: OAuthServer) -> None:
    """Client id metadata documents, if the authorisation server accepts them."""
    oauth_server.control(documents=True)
    server, document = oauth_server.make_entry(auth=OAuthConfig()), "https://rookery.example.org/oauth/client.json"
    pending = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT, document=document)
    await grant_consent(logins, server, pending)

    assert dict(parse_qsl(urlsplit(pending.start.url).query))["client_id"] == document
    assert oauth_server.control()["registered"] == 0


async def test_a_server_without_metadata_uses_the_paths_of_the_older_specification(logins: Logins, oauth_server: OAuthServer) -> None:
    """MCP 2025-03-26: three fixed paths at the server's own origin."""
    oauth_server.control(described=False, names_issuer=False)
    server = oauth_server.make_entry(auth=OAuthConfig())

    await log_in(logins, server)
    await call_tool(logins, server)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resource": "https://elsewhere.example/mcp"}, "a token for that would not be valid here"),
        ({"issuer": "https://elsewhere.example"}, "issuer is"),
        ({"methods": ["plain"]}, "PKCE"),
    ],
)
async def test_metadata_that_an_attacker_could_inject_is_rejected(
    logins: Logins, oauth_server: OAuthServer, options: dict[str, object], message: str
) -> None:
    """RFC 9728 3.3, 8414 3.3, 7636: a token for another audience, from another issuer, or with an intercepted code."""
    oauth_server.control(**options)

    with pytest.raises(LoginFailed, match=message):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_a_response_of_another_authorisation_server_is_rejected(logins: Logins, oauth_server: OAuthServer) -> None:
    """A wrong or missing issuer ends the login, against the mix-up attack (RFC 9207)."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    for issuer in ("https://elsewhere.example", None):
        pending = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
        with pytest.raises(LoginFailed):
            await grant_consent(logins, server, pending, iss=issuer)

    assert oauth_server.control()["granted"] == 0


async def test_a_failing_authorisation_server_is_reported_with_its_reason(logins: Logins, oauth_server: OAuthServer) -> None:
    """None of its faults is reported as an error of Rookery."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    pending = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    with pytest.raises(LoginFailed, match="invalid_grant"):
        await grant_consent(logins, server, pending, code="made up")
    oauth_server.control(token_status=503)
    with pytest.raises(LoginFailed, match="503"):
        await log_in(logins, server)
    unreachable = replace(server, target=HttpTarget(url="http://127.0.0.1:9/mcp"))
    with pytest.raises(LoginFailed, match="No connection"):
        await log_in(logins, unreachable)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metadata": "http://[::1"}, "an invalid URL"),
        ({"metadata": "http://127.0.0.1:9/caf\u00e9"}, "No connection"),
        ({"metadata": "file:///etc/passwd"}, "No connection"),
        ({"token": "a\r\nX-Evil: 1"}, "cannot be sent"),
        ({"token": "caf\u00e9"}, "cannot be sent"),
    ],
)
async def test_invalid_metadata_and_tokens_are_reported_without_the_token(
    logins: Logins, oauth_server: OAuthServer, options: dict[str, object], message: str
) -> None:
    """Invalid values of an upstream fail the login, and nothing else."""
    oauth_server.control(**options)

    with pytest.raises(LoginFailed, match=message) as failed:
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))
    assert "Evil" not in str(failed.value)


async def test_a_token_may_have_a_lifetime_of_any_size(logins: Logins, oauth_server: OAuthServer) -> None:
    """A lifetime of any size is accepted."""
    oauth_server.control(expires_in=10**400)
    await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))

    assert await logins.get_token(oauth_server.make_entry(auth=OAuthConfig()), 1)


async def test_a_workspaces_server_cannot_redirect_a_login_to_a_forbidden_address(logins: Logins, oauth_server: OAuthServer) -> None:
    """The address of an authorisation server is checked as one that a user sent."""
    with pytest.raises(LoginFailed, match="does not connect to this address"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig(), owner=1), 1)


async def test_a_server_without_auth_has_no_login(logins: Logins, oauth_server: OAuthServer) -> None:
    """The error comes before any redirect."""
    with pytest.raises(LoginNotSupported):
        await log_in(logins, oauth_server.make_entry())


# Ownership.


async def test_a_workspaces_own_login_takes_precedence_over_the_shared_one(logins: Logins, oauth_server: OAuthServer) -> None:
    """The login of one workspace is never used for another."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server, 1)
    with pytest.raises(ConnectFailed, match="There is no login"):
        await logins.get_token(server, 2)
    assert not await logins.has_login(server, 2)

    await log_in(logins, server)

    assert await logins.get_token(server, 1) != await logins.get_token(server, 2)
    assert await logins.has_login(server, 2)
    assert await logins.log_out(server, 1, OPERATOR)
    assert await logins.get_token(server, 1) == await logins.get_token(server, 2)
    assert not await logins.log_out(server, 1, OPERATOR)


async def test_a_shared_session_uses_no_workspaces_login(logins: Logins, oauth_server: OAuthServer) -> None:
    """Otherwise one workspace's account would act for all; listing features may use any login."""
    separate, shared = (
        oauth_server.make_entry(auth=OAuthConfig()),
        oauth_server.make_entry(auth=OAuthConfig(), isolation=SessionIsolation.SHARED),
    )
    await log_in(logins, separate, 1)

    assert await logins.get_token(separate, None)
    with pytest.raises(ConnectFailed, match="There is no login"):
        await logins.get_token(shared, None)
    with pytest.raises(LoginFailed, match="operator"):
        await log_in(logins, shared, 1)


async def test_a_login_is_not_used_at_another_address(logins: Logins, oauth_server: OAuthServer) -> None:
    """A changed entry, or a new server with the same id, does not get the old tokens."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    pending = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    await log_in(logins, server)
    assert await logins.get_token(server, 1)
    moved = replace(server, target=HttpTarget(url=f"{oauth_server.url}/elsewhere"))

    with pytest.raises(LoginFailed, match="changed since"):
        await grant_consent(logins, moved, pending)
    with pytest.raises(ConnectFailed, match="has changed since the login"):
        await logins.get_token(moved, 1)


# Storage.


async def test_nothing_of_a_login_can_be_read_in_the_store(database: Database, logins: Logins, oauth_server: OAuthServer) -> None:
    """Tokens, the client secret, and state and verifier of a pending login are encrypted."""
    server = oauth_server.make_entry(auth=OAuthConfig(client_id="by hand", client_secret="a secret of the client"))
    oauth_server.control(client={"id": "by hand", "secret": "a secret of the client"})
    await log_in(logins, server)
    pending = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(pending)
    token = await logins.get_token(server, 1)

    rows = await database.read(lambda tx: tx.fetch_all(store.tool_logins.select()))

    stored = repr([row.values for row in rows])
    assert len(rows) == 2
    for secret in (token, "a secret of the client", pending.start.state, pending.start.verifier):
        assert secret not in stored
        assert secret not in repr(pending).replace(pending.start.url, "")


async def test_a_pending_login_is_finished_once_and_in_time(
    logins: Logins, make_logins: MakeLogins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """Any process can finish it; an unknown, a used and an expired state are all not found."""
    server, other = oauth_server.make_entry(auth=OAuthConfig()), await make_logins()
    pending = await logins.begin(server, 3, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(pending)

    assert await other.find_pending("made up", consume=True) is None
    assert await other.find_pending(pending.start.state, consume=False) == pending
    assert await other.find_pending(pending.start.state, consume=True) == pending
    assert await logins.find_pending(pending.start.state, consume=True) is None
    await logins.save_pending(pending)
    clock.advance(seconds=CONSENT_TIMEOUT.total_seconds() + 1)
    assert await logins.find_pending(pending.start.state, consume=False) is None
    assert await logins.find_pending(pending.start.state, consume=True) is None


async def test_the_login_of_a_deleted_workspace_is_not_stored(database: Database, logins: Logins, oauth_server: OAuthServer) -> None:
    """It was started before the workspace was deleted, and would never be cleaned up."""
    with pytest.raises(NotFound):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()), 99)

    assert await database.read(store.list_change_times) == {}


async def test_a_logout_leaves_pending_logins_of_others(logins: Logins, oauth_server: OAuthServer) -> None:
    """The operator's logout covers the shared login only, and returns false without one."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    pending = await logins.begin(server, 1, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(pending)

    assert not await logins.log_out(server, ALL_WORKSPACES, OPERATOR)
    assert await logins.find_pending(pending.start.state, consume=True) == pending


async def test_other_processes_are_notified_of_logins(logins: Logins, make_logins: MakeLogins, oauth_server: OAuthServer) -> None:
    """A token that another process deleted is no longer used."""
    server, other, notified = oauth_server.make_entry(auth=OAuthConfig()), await make_logins(), list[str]()
    other.change_listeners.append(notified.append)
    await log_in(logins, server)
    await other.refresh()
    assert await other.get_token(server, 1)
    await logins.log_out(server, ALL_WORKSPACES, OPERATOR)
    await other.refresh()
    await other.refresh()

    assert notified == ["guarded", "guarded"]
    with pytest.raises(ConnectFailed, match="There is no login"):
        await other.get_token(server, 1)


# Renewal.


async def test_an_expired_token_is_renewed_once_for_all_waiting_callers(
    logins: Logins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """Single flight; a refresh token works once."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    first = await logins.get_token(server, 1)
    clock.advance(hours=1)

    tokens = await asyncio.gather(*(logins.get_token(server, number % 3) for number in range(16)))

    assert len({*tokens}) == 1
    assert tokens[0] != first
    assert oauth_server.control()["renewed"] == 1


async def test_two_processes_renew_once(make_logins: MakeLogins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """Single flight across processes: a second renewal would end the login at servers that treat a used refresh token as stolen."""
    server, processes = oauth_server.make_entry(auth=OAuthConfig()), [await make_logins(), await make_logins(), await make_logins()]
    await log_in(processes[0], server)
    for process in processes:
        await process.get_token(server, 1)
    oauth_server.control(holds=True)
    clock.advance(hours=1)

    waiting = asyncio.gather(*(process.get_token(server, 1) for process in processes))
    await eventually(lambda: oauth_server.control()["held"])
    oauth_server.control(holds=False)
    tokens = await waiting

    assert len({*tokens}) == 1
    assert oauth_server.control()["renewed"] == 1


async def test_a_process_killed_during_a_renewal_blocks_others_only_briefly(
    database: Database, logins: Logins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """Its lease expires after 30 seconds."""
    server, place = oauth_server.make_entry(auth=OAuthConfig()), store.get_login_place("guarded", ALL_WORKSPACES)
    await log_in(logins, server)
    clock.advance(hours=1)
    now = to_micros(clock())
    assert await database.write(lambda tx: store.claim_renewal(tx, place, now=now, expires_at=now + 30_000_000)) is not None

    waiting = asyncio.create_task(logins.get_token(server, 1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.3)
    clock.advance(seconds=31)

    assert await asyncio.wait_for(waiting, HANG_S)
    assert oauth_server.control()["renewed"] == 1


async def test_a_caller_that_leaves_does_not_end_the_login(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """The issued tokens are stored, also if the caller has gone."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(holds=True)
    clock.advance(hours=1)
    waiting = asyncio.create_task(logins.get_token(server, 1))
    await eventually(lambda: oauth_server.control()["held"])
    waiting.cancel()
    oauth_server.control(holds=False)

    assert await logins.get_token(server, 1)
    assert oauth_server.control()["renewed"] == 1


async def test_a_token_rejected_early_is_renewed_and_the_call_retried(logins: Logins, oauth_server: OAuthServer) -> None:
    """The session continues after a 401."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    async with HttpConnector(logins).connect(server, on_changed=lambda: None) as session:
        oauth_server.control(revoke=True)
        options = RequestOptions(caller=make_caller())
        await asyncio.gather(*(session.request("tools/call", {"name": "write", "arguments": {}}, options) for _ in range(8)))

    counts = oauth_server.control()
    assert {name: counts[name] for name in COUNTERS} == {"registered": 1, "granted": 1, "renewed": 1, "calls": 8, "sessions": 1}


async def test_a_renewal_that_returns_the_rejected_token_is_not_repeated(logins: Logins, oauth_server: OAuthServer) -> None:
    """Some authorisation servers return the same token until it expires; each call renews at most once."""
    oauth_server.control(token="constant")
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(closed=True)

    with pytest.raises(ConnectFailed, match="rejects the token") as failed:
        await asyncio.wait_for(call_tool(logins, server), HANG_S)

    assert failed.value.needs_login
    assert oauth_server.control()["renewed"] <= 2


async def test_an_expired_login_is_reported_and_not_renewed_again(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """The error has needs_login, the reason and the command."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(revoke_refresh=True)
    clock.advance(hours=1)

    with pytest.raises(ConnectFailed, match=r"invalid_grant.*rookery servers login guarded") as error:
        await logins.get_token(server, 1)
    oauth_server.control(token_status=500)
    with pytest.raises(ConnectFailed, match="has expired"):
        await logins.get_token(server, 1)
    assert error.value.needs_login

    oauth_server.control(token_status=0)
    await log_in(logins, server)
    assert await logins.get_token(server, 1)


async def test_an_unavailable_authorisation_server_ends_no_login(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """The next call tries the renewal again."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(token_status=503)
    clock.advance(hours=1)
    with pytest.raises(ConnectFailed, match="could not be renewed") as failed:
        await logins.get_token(server, 1)
    oauth_server.control(token_status=0)

    assert not failed.value.needs_login
    assert await logins.get_token(server, 1)


async def test_a_login_during_a_renewal_wins(logins: Logins, make_logins: MakeLogins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """The new login is not replaced by the renewed token of the old one."""
    server, other = oauth_server.make_entry(auth=OAuthConfig()), await make_logins()
    await log_in(logins, server)
    oauth_server.control(holds=True)
    clock.advance(hours=1)
    renewing = asyncio.create_task(logins.get_token(server, 1))
    await eventually(lambda: oauth_server.control()["held"])
    await log_in(other, server)
    oauth_server.control(holds=False)
    fresh = await other.get_token(server, 1)

    assert await renewing == fresh
    assert await logins.get_token(server, 1) == fresh
