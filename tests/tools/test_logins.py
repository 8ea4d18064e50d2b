"""Logins at upstreams: from a refusal to tokens, kept sealed, renewed once, and told in words (D-31, D-32, D-33)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from rookery.access.audit_log import AuditLog
from rookery.access.store.workspaces import add_workspace
from rookery.engines import upstreams
from rookery.engines.upstreams.http import HttpConnector
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Database
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import NotFound
from rookery.kernel.sealing import KeySource, Sealer
from rookery.kernel.secret import Secret
from rookery.tools.errors import ConnectFailed, LoginFailed, LoginNotSupported
from rookery.tools.models import ALL_WORKSPACES, HttpTarget, OAuthConfig, Server, SessionIsolation
from rookery.tools.ports import RequestOptions
from rookery.tools.servers.logins import CONSENT_TIMEOUT, Logins, PendingLogin
from rookery.tools.store import logins as store
from tests.conftest import OPERATOR, SECRET_KEY, FakeClock, eventually
from tests.tools.makers import make_caller
from tests.tools.oauth_server import OAuthServer, authorize, run_oauth_server

REDIRECT = "http://127.0.0.1:9/callback"
COUNTED = ("registered", "granted", "renewed", "calls", "sessions")
Make = Callable[[], Awaitable[Logins]]


@pytest.fixture
def oauth_server() -> Iterator[OAuthServer]:
    """A server behind an authorisation server, for one test."""
    with run_oauth_server() as running:
        yield running


@pytest.fixture
async def make(database: Database, tmp_path: Path, clock: FakeClock) -> AsyncIterator[Make]:
    """Make the logins of one more process on the same store, which has the workspaces 1 and 2."""
    made: list[Logins] = []
    for name in ("one", "two"):
        await database.write(lambda tx, name=name: add_workspace(tx, name, parent_id=None, at=0))

    async def process() -> Logins:
        sealer = Sealer(database, KeySource(tmp_path, configured=Secret(SECRET_KEY), previous=None), [store.SEALED_COLUMN], clock)
        await sealer.start()
        authorities = upstreams.authorities(EgressGuard(), clock=lambda: clock().timestamp())
        logins = Logins(database, sealer, AuditLog(database, clock), authorities, clock=clock)
        await logins.refresh()
        made.append(logins)
        return logins

    yield process
    for logins in made:
        await logins.aclose()


@pytest.fixture
async def logins(make: Make) -> Logins:
    """The logins of a process."""
    return await make()


async def log_in(logins: Logins, server: Server, workspace_id: int = ALL_WORKSPACES) -> None:
    """Log in, as a person with a browser does."""
    begun = await logins.begin(server, workspace_id, OPERATOR, redirect_uri=REDIRECT)
    await answer(logins, server, begun)


async def answer(logins: Logins, server: Server, begun: PendingLogin, **changed: str | None) -> None:
    """Consent, and bring the answer back."""
    fields: dict[str, str | None] = {**dict(parse_qsl(urlsplit(authorize(begun.start.url)).query)), **changed}
    assert fields["state"] == begun.start.state
    await logins.finish(server, begun, code=str(fields["code"]), issuer=fields.get("iss"))


async def use(logins: Logins, server: Server, workspace_id: int | None = None) -> None:
    """Call a tool of the server through a session that is logged in."""
    async with HttpConnector(logins).connect(server, on_changed=lambda: None, workspace_id=workspace_id) as session:
        await session.request("tools/call", {"name": "write", "arguments": {}}, RequestOptions(caller=make_caller()))


# From a refusal to tokens.


async def test_a_login_is_found_registered_consented_to_and_used(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: RFC 9728, 8414, 7591, 7636, 8707, 9207, one after the other, without anything but the server's address."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    with pytest.raises(ConnectFailed, match=r"There is no login.*rookery servers login guarded") as failed:
        await use(logins, server)
    assert failed.value.needs_login

    await log_in(logins, server)
    await use(logins, server)

    counted = oauth_server.control()
    assert {name: counted[name] for name in COUNTED} == {"registered": 1, "granted": 1, "renewed": 0, "calls": 1, "sessions": 1}


@pytest.mark.parametrize("secret", ["s: %/", None])
async def test_a_client_registered_by_hand_is_used_as_it_is(logins: Logins, oauth_server: OAuthServer, secret: str | None) -> None:
    """D-31: client_id and client_secret of the entry, which RFC 6749 has percent-encoded in Basic."""
    oauth_server.control(registers=False, client={"id": "by:hand", **({} if secret is None else {"secret": secret})})
    server = oauth_server.make_entry(auth=OAuthConfig(client_id="by:hand", client_secret=secret))

    await log_in(logins, server)
    await use(logins, server)

    assert oauth_server.control()["registered"] == 0


async def test_where_nobody_registers_clients_it_is_said_how_to_get_one(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: what to give the authorisation server, and where its answer goes."""
    oauth_server.control(registers=False)

    with pytest.raises(LoginFailed, match=rf"redirect URL {REDIRECT}.*client_id"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_a_described_client_needs_no_registration(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: client id metadata documents, where the authorisation server takes them."""
    oauth_server.control(documents=True)
    server, document = oauth_server.make_entry(auth=OAuthConfig()), "https://rookery.example.org/oauth/client.json"
    begun = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT, document=document)
    await answer(logins, server, begun)

    assert dict(parse_qsl(urlsplit(begun.start.url).query))["client_id"] == document
    assert oauth_server.control()["registered"] == 0


async def test_a_server_that_describes_nothing_is_logged_in_at_where_mcp_once_had_it(logins: Logins, oauth_server: OAuthServer) -> None:
    """MCP 2025-03-26: three fixed paths at the server's own origin."""
    oauth_server.control(described=False, names_issuer=False)
    server = oauth_server.make_entry(auth=OAuthConfig())

    await log_in(logins, server)
    await use(logins, server)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"resource": "https://elsewhere.example/mcp"}, "a token for that would not be valid here"),
        ({"issuer": "https://elsewhere.example"}, "issuer is"),
        ({"methods": ["plain"]}, "PKCE"),
    ],
)
async def test_what_an_attacker_between_would_say_is_refused(
    logins: Logins, oauth_server: OAuthServer, options: dict[str, object], words: str
) -> None:
    """RFC 9728 3.3, 8414 3.3, 7636: a token for another audience, from another issuer, or with an intercepted code."""
    oauth_server.control(**options)

    with pytest.raises(LoginFailed, match=words):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_an_answer_of_another_authorisation_server_is_refused(logins: Logins, oauth_server: OAuthServer) -> None:
    """RFC 9207: the mix-up attack; an answer that hides where it is from, too."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    for issuer in ("https://elsewhere.example", None):
        begun = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
        with pytest.raises(LoginFailed):
            await answer(logins, server, begun, iss=issuer)

    assert oauth_server.control()["granted"] == 0


async def test_an_authorisation_server_that_is_down_or_says_no_is_told_in_words(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: none of its faults is reported as an error of Rookery."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    begun = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    with pytest.raises(LoginFailed, match="invalid_grant"):
        await answer(logins, server, begun, code="made up")
    oauth_server.control(token_status=503)
    with pytest.raises(LoginFailed, match="503"):
        await log_in(logins, server)
    nowhere = replace(server, target=HttpTarget(url="http://127.0.0.1:9/mcp"))
    with pytest.raises(LoginFailed, match="No connection"):
        await log_in(logins, nowhere)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metadata": "http://[::1"}, "an invalid URL"),
        ({"metadata": "http://127.0.0.1:9/caf\u00e9"}, "No connection"),
        ({"metadata": "file:///etc/passwd"}, "No connection"),
        ({"token": "a\r\nX-Evil: 1"}, "cannot be sent"),
        ({"token": "caf\u00e9"}, "cannot be sent"),
    ],
)
async def test_nonsense_is_told_in_words_that_do_not_quote_a_token(
    logins: Logins, oauth_server: OAuthServer, options: dict[str, object], words: str
) -> None:
    """D-10, D-31: what an upstream makes up fails the login, and neither us nor, later, a call."""
    oauth_server.control(**options)

    with pytest.raises(LoginFailed, match=words) as failed:
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))
    assert "Evil" not in str(failed.value)


async def test_a_token_may_be_said_to_live_for_longer_than_the_world(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-10: a lifetime of any size is accepted."""
    oauth_server.control(expires_in=10**400)
    await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))

    assert await logins.get_token(oauth_server.make_entry(auth=OAuthConfig()), 1)


async def test_a_workspaces_server_leads_us_to_no_address_that_is_refused(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-82: a server's word on where its authorisation server is counts as an address of the user's."""
    with pytest.raises(LoginFailed, match="does not connect to this address"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig(), owner=1), 1)


async def test_there_is_no_login_at_a_server_that_asks_for_none(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: said before anybody is sent anywhere."""
    with pytest.raises(LoginNotSupported):
        await log_in(logins, oauth_server.make_entry())


# Whose it is.


async def test_a_workspaces_own_login_comes_before_that_of_all(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: and one workspace's is never another's."""
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


async def test_a_session_that_all_workspaces_share_uses_no_ones_own_login(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-32: else one workspace's account would act for all; to look at what a server offers, any login will do."""
    apart, shared = (
        oauth_server.make_entry(auth=OAuthConfig()),
        oauth_server.make_entry(auth=OAuthConfig(), isolation=SessionIsolation.SHARED),
    )
    await log_in(logins, apart, 1)

    assert await logins.get_token(apart, None)
    with pytest.raises(ConnectFailed, match="There is no login"):
        await logins.get_token(shared, None)
    with pytest.raises(LoginFailed, match="operator"):
        await log_in(logins, shared, 1)


async def test_a_login_is_not_used_at_another_address(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: an entry that is changed, or a new server of the same id, does not get the old one's tokens."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    begun = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    await log_in(logins, server)
    assert await logins.get_token(server, 1)
    moved = replace(server, target=HttpTarget(url=f"{oauth_server.url}/elsewhere"))

    with pytest.raises(LoginFailed, match="changed since"):
        await answer(logins, moved, begun)
    with pytest.raises(ConnectFailed, match="has changed since the login"):
        await logins.get_token(moved, 1)


# How it is kept.


async def test_nothing_of_a_login_can_be_read_in_the_store(database: Database, logins: Logins, oauth_server: OAuthServer) -> None:
    """D-07, D-31: tokens, the client's secret, the mark and the verifier of one that was begun."""
    server = oauth_server.make_entry(auth=OAuthConfig(client_id="by hand", client_secret="a secret of the client"))
    oauth_server.control(client={"id": "by hand", "secret": "a secret of the client"})
    await log_in(logins, server)
    begun = await logins.begin(server, ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(begun)
    token = await logins.get_token(server, 1)

    rows = await database.read(lambda tx: tx.fetch_all(store.tool_logins.select()))

    kept = repr([row.values for row in rows])
    assert len(rows) == 2
    for secret in (token, "a secret of the client", begun.start.state, begun.start.verifier):
        assert secret not in kept
        assert secret not in repr(begun).replace(begun.start.url, "")


async def test_what_was_begun_is_finished_once_and_in_time(logins: Logins, make: Make, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """D-31: by whichever process the answer comes to; an unknown mark, a used one and an old one are the same."""
    server, other = oauth_server.make_entry(auth=OAuthConfig()), await make()
    begun = await logins.begin(server, 3, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(begun)

    assert await other.find_pending("made up", consume=True) is None
    assert await other.find_pending(begun.start.state, consume=False) == begun
    assert await other.find_pending(begun.start.state, consume=True) == begun
    assert await logins.find_pending(begun.start.state, consume=True) is None
    await logins.save_pending(begun)
    clock.advance(seconds=CONSENT_TIMEOUT.total_seconds() + 1)
    assert await logins.find_pending(begun.start.state, consume=False) is None
    assert await logins.find_pending(begun.start.state, consume=True) is None


async def test_the_login_of_a_workspace_that_is_gone_is_not_kept(database: Database, logins: Logins, oauth_server: OAuthServer) -> None:
    """Spec 2.8: it was started before the workspace was deleted, and would never be cleaned up."""
    with pytest.raises(NotFound):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()), 99)

    assert await database.read(store.list_change_times) == {}


async def test_logging_out_leaves_what_others_have_begun(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-31: the operator's logout is of the login of all, and counts only if there is one."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    begun = await logins.begin(server, 1, OPERATOR, redirect_uri=REDIRECT)
    await logins.save_pending(begun)

    assert not await logins.log_out(server, ALL_WORKSPACES, OPERATOR)
    assert await logins.find_pending(begun.start.state, consume=True) == begun


async def test_other_processes_hear_of_logins(logins: Logins, make: Make, oauth_server: OAuthServer) -> None:
    """D-31: within a second; a token that was forgotten elsewhere is used no more."""
    server, other, heard = oauth_server.make_entry(auth=OAuthConfig()), await make(), list[str]()
    other.change_listeners.append(heard.append)
    await log_in(logins, server)
    await other.refresh()
    assert await other.get_token(server, 1)
    await logins.log_out(server, ALL_WORKSPACES, OPERATOR)
    await other.refresh()
    await other.refresh()

    assert heard == ["guarded", "guarded"]
    with pytest.raises(ConnectFailed, match="There is no login"):
        await other.get_token(server, 1)


# How it is renewed.


async def test_a_token_that_is_over_is_renewed_once_for_all_who_wait(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """D-31: single flight; a refresh token works once."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    first = await logins.get_token(server, 1)
    clock.advance(hours=1)

    found = await asyncio.gather(*(logins.get_token(server, number % 3) for number in range(16)))

    assert len({*found}) == 1
    assert found[0] != first
    assert oauth_server.control()["renewed"] == 1


async def test_two_processes_renew_once(make: Make, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """D-31: single flight across processes: the second would end the login, with servers that take a used token for a theft."""
    server, processes = oauth_server.make_entry(auth=OAuthConfig()), [await make(), await make(), await make()]
    await log_in(processes[0], server)
    for each in processes:
        await each.get_token(server, 1)
    oauth_server.control(holds=True)
    clock.advance(hours=1)

    asking = asyncio.gather(*(each.get_token(server, 1) for each in processes))
    await eventually(lambda: oauth_server.control()["held"])
    oauth_server.control(holds=False)
    found = await asking

    assert len({*found}) == 1
    assert oauth_server.control()["renewed"] == 1


async def test_a_process_that_was_killed_while_it_renewed_holds_nobody_up_for_long(
    database: Database, logins: Logins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """D-31: its lease is over after half a minute."""
    server, place = oauth_server.make_entry(auth=OAuthConfig()), store.get_login_place("guarded", ALL_WORKSPACES)
    await log_in(logins, server)
    clock.advance(hours=1)
    now = to_micros(clock())
    assert await database.write(lambda tx: store.claim_renewal(tx, place, now=now, expires_at=now + 30_000_000)) is not None

    waiting = asyncio.create_task(logins.get_token(server, 1))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(waiting), 0.3)
    clock.advance(seconds=31)

    assert await asyncio.wait_for(waiting, 20)
    assert oauth_server.control()["renewed"] == 1


async def test_a_caller_that_leaves_does_not_end_the_login(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """D-31: the issued tokens are stored, also if the caller has gone."""
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


async def test_a_token_that_is_refused_early_is_renewed_and_the_call_asked_again(logins: Logins, oauth_server: OAuthServer) -> None:
    """D-32: 401 in the middle of a session's life; the session goes on."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    async with HttpConnector(logins).connect(server, on_changed=lambda: None) as session:
        oauth_server.control(revoke=True)
        asking = RequestOptions(caller=make_caller())
        await asyncio.gather(*(session.request("tools/call", {"name": "write", "arguments": {}}, asking) for _ in range(8)))

    counted = oauth_server.control()
    assert {name: counted[name] for name in COUNTED} == {"registered": 1, "granted": 1, "renewed": 1, "calls": 8, "sessions": 1}


async def test_a_renewal_that_gives_the_token_that_is_refused_is_not_asked_for_over_and_over(
    logins: Logins, oauth_server: OAuthServer
) -> None:
    """D-31, D-33: some authorisation servers give the same token for as long as it lives; each call renews once at most."""
    oauth_server.control(token="constant")
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(closed=True)

    with pytest.raises(ConnectFailed, match="rejects the token") as failed:
        await asyncio.wait_for(use(logins, server), 10)

    assert failed.value.needs_login
    assert oauth_server.control()["renewed"] <= 2


async def test_a_login_that_is_over_is_said_to_be_and_not_asked_for_again(
    logins: Logins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """D-33: needs_login; the words tell why and what to do."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(revoke_refresh=True)
    clock.advance(hours=1)

    with pytest.raises(ConnectFailed, match=r"invalid_grant.*rookery servers login guarded") as over:
        await logins.get_token(server, 1)
    oauth_server.control(token_status=500)
    with pytest.raises(ConnectFailed, match="has expired"):
        await logins.get_token(server, 1)
    assert over.value.needs_login

    oauth_server.control(token_status=0)
    await log_in(logins, server)
    assert await logins.get_token(server, 1)


async def test_an_authorisation_server_that_is_down_ends_no_login(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """D-31: it is asked again, by the next who needs it."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    oauth_server.control(token_status=503)
    clock.advance(hours=1)
    with pytest.raises(ConnectFailed, match="could not be renewed") as failed:
        await logins.get_token(server, 1)
    oauth_server.control(token_status=0)

    assert not failed.value.needs_login
    assert await logins.get_token(server, 1)


async def test_whoever_logs_in_while_a_token_is_renewed_wins(
    logins: Logins, make: Make, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """D-31: the new login is not replaced by what was renewed of the old one."""
    server, other = oauth_server.make_entry(auth=OAuthConfig()), await make()
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
