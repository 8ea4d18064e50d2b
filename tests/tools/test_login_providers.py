"""Variants of real authorisation servers: the resource that they accept, their metadata, tokens and errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx2
import pytest

from rookery.engines.upstreams.oauth_discovery import AnnouncedResource, discover_authority, discover_resource
from rookery.tools.errors import ConnectFailed, LoginFailed
from rookery.tools.models import ALL_WORKSPACES, OAuthConfig
from rookery.tools.servers.entries import InvalidServerEntry, ServerEntry
from rookery.tools.servers.logins import Logins
from tests.conftest import OPERATOR, FakeClock
from tests.deadlines import HANG_S
from tests.processes import run_rookery
from tests.tools.oauth_server import REDIRECT, OAuthServer, authorize, call_tool, log_in

pytestmark = pytest.mark.embedded_store  # test_logins.py covers the differences between dialects

ENTRA_REFUSAL = {
    "error": "invalid_request",
    "error_description": "AADSTS9010010: The resource parameter provided in the request doesn't match with the requested scopes.\r\n"
    "Trace ID: 0d5b8f6c-0000-0000-0000-000000000000",
}
ADVICE = r'change `auth` of the entry: "resource": null leaves it out'


def read_auth(auth: object) -> OAuthConfig:
    """Return the OAuth settings of an entry of the file."""
    config = ServerEntry({"url": "https://h.example/mcp", "auth": auth}, {"HOST": "h.example"}).to_server("x", "x").auth
    assert config is not None
    return config


# The resource.


@pytest.mark.parametrize(("setting", "accepted"), [(None, "none"), ("api://board", "api://board"), ("urn:board:7", "urn:board:7")])
async def test_the_resource_of_the_entry_is_sent_in_every_request_and_null_sends_none(
    logins: Logins, oauth_server: OAuthServer, clock: FakeClock, setting: str | None, accepted: str
) -> None:
    """The authorisation server refuses any other resource, also in the renewal."""
    oauth_server.control(takes=accepted)
    server = oauth_server.make_entry(auth=read_auth({"type": "oauth", "resource": setting}))

    await log_in(logins, server)
    clock.advance(hours=1)
    await call_tool(logins, server)

    counts = oauth_server.control()
    assert (counts["granted"], counts["renewed"], counts["calls"]) == (1, 1, 1)


async def test_a_changed_resource_applies_to_the_renewal_of_a_stored_login(
    logins: Logins, oauth_server: OAuthServer, clock: FakeClock
) -> None:
    """A login made with the announced resource is renewed with it, and without it once the entry leaves it out."""
    announced, left_out = (oauth_server.make_entry(auth=config) for config in (OAuthConfig(), OAuthConfig(resource=None)))
    oauth_server.control(takes=f"{oauth_server.url}/mcp")
    await log_in(logins, announced)
    clock.advance(hours=1)
    assert await logins.get_token(announced, 1)
    oauth_server.control(takes="none")
    clock.advance(hours=1)
    with pytest.raises(ConnectFailed, match=ADVICE) as failed:
        await logins.get_token(announced, 1)

    assert not failed.value.needs_login, "the login can be renewed once the entry is corrected"
    assert await logins.get_token(left_out, 1)
    assert oauth_server.control()["renewed"] == 2


@pytest.mark.parametrize("refusal", [ENTRA_REFUSAL, {"error": "invalid_target"}], ids=["text", "code"])
@pytest.mark.parametrize("status", [400, 200])
async def test_a_refused_resource_is_reported_with_advice_by_the_token_endpoint(
    logins: Logins, oauth_server: OAuthServer, refusal: Mapping[str, str], status: int
) -> None:
    """The code, the text in one line, and the setting to change; also if the error has status 200, as at GitHub."""
    oauth_server.control(takes="none", checks_at=["authorization_code"], refusal=refusal, error_status=status)

    with pytest.raises(LoginFailed, match=ADVICE) as failed:
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))
    message = str(failed.value)
    assert all(" ".join(part.split()) in message for part in refusal.values())
    assert f"'{oauth_server.url}/mcp'" in message


@pytest.mark.parametrize(
    ("refusal", "is_advised"),
    [
        (ENTRA_REFUSAL, True),
        ({"error": "invalid_target"}, True),
        ({"error": "invalid_resource", "error_description": "AADSTS500011: The resource principal named api://b was not found."}, True),
        ({"error": "access_denied", "error_description": "Service not found: {resource}"}, True),
        ({"error": "access_denied", "error_description": "The resource owner denied the request."}, False),
        ({"error": "invalid_scope", "error_description": "Unknown scope."}, False),
        ({"error": "temporarily_unavailable", "error_description": "A resource is exhausted."}, False),
    ],
)
async def test_a_refusal_in_the_redirect_has_advice_only_if_it_concerns_the_resource(
    logins: Logins, oauth_server: OAuthServer, refusal: Mapping[str, str], is_advised: bool
) -> None:
    """The error of /authorize, with its code and its text."""
    resource = f"{oauth_server.url}/mcp"
    fields = {name: text.replace("{resource}", resource) for name, text in refusal.items()}
    pending = await logins.begin(oauth_server.make_entry(auth=OAuthConfig()), ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)

    reason = pending.describe_refusal(fields)

    assert reason.startswith(": ".join(" ".join(text.split()) for text in fields.values()).rstrip("."))
    assert ('"resource": null' in reason) is is_advised


async def test_a_refusal_cannot_control_the_terminal(logins: Logins, oauth_server: OAuthServer) -> None:
    """Its text comes from somebody else: control characters are escaped, and it is cut."""
    pending = await logins.begin(oauth_server.make_entry(auth=OAuthConfig()), ALL_WORKSPACES, OPERATOR, redirect_uri=REDIRECT)

    reason = pending.describe_refusal({"error": "server_error", "error_description": "\x1b]0;title\x07" + "x" * 5000})

    assert reason.isprintable()
    assert len(reason) < 400
    assert pending.describe_refusal({}) == "it gave no reason"


async def test_a_registration_that_is_refused_has_no_advice_on_the_resource(logins: Logins, oauth_server: OAuthServer) -> None:
    """A registration names no resource."""
    oauth_server.control(refuses_registration={"error": "invalid_client_metadata", "error_description": "Unknown resource."})

    with pytest.raises(LoginFailed, match=r"invalid_client_metadata: Unknown resource\.$"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_a_missing_resource_is_reported_with_other_advice(logins: Logins, oauth_server: OAuthServer) -> None:
    """An entry that leaves the resource out is told to name it."""
    oauth_server.control(takes="api://board", checks_at=["authorization_code"])

    with pytest.raises(LoginFailed, match='set "resource" in `auth`'):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig(resource=None)))


def test_the_command_shows_the_refusal_of_the_redirect_with_advice(tmp_path: Path, oauth_server: OAuthServer) -> None:
    """`rookery servers login` ends with the error of /authorize and the setting to change."""
    oauth_server.control(takes="none", refusal=ENTRA_REFUSAL)
    entry = {"url": f"{oauth_server.url}/mcp", "auth": "oauth"}
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": {"guarded": entry}}))
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path), "servers", "login", "guarded"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as login:
        assert login.stderr is not None
        url = next(line.strip() for line in login.stderr if line.startswith("http"))
        httpx2.get(authorize(url), trust_env=False, timeout=HANG_S)
        output = login.stderr.read()

    assert login.returncode == 1
    assert "AADSTS9010010" in output
    assert '"resource": null' in output


async def test_the_announced_resource_is_sent_as_it_is_written(logins: Logins, oauth_server: OAuthServer) -> None:
    """Authorisation servers compare the text: no character of it changes, whether or not it is in the normal form."""
    port = oauth_server.url.rpartition(":")[2]
    announced = f"HTTP://127.0.0.1:{port}/%6dcp/"
    oauth_server.control(resource=announced, takes=announced)
    server = oauth_server.make_entry(auth=OAuthConfig())

    await log_in(logins, server)
    await call_tool(logins, server)


@pytest.mark.parametrize("announced", ["https://elsewhere.example/mcp", "api://board", ""])
async def test_an_entry_with_a_resource_of_its_own_ignores_the_announced_one(
    logins: Logins, oauth_server: OAuthServer, announced: str
) -> None:
    """A server behind a proxy may announce its inner address, and one behind Entra ID the id of its application."""
    oauth_server.control(described_as={"resource": announced}, takes="api://board")

    await log_in(logins, oauth_server.make_entry(auth=OAuthConfig(resource="api://board")))


def answer_with(document: object) -> Callable[[str], httpx2.Response]:
    """Return a function that answers each URL with this document."""
    return lambda url: httpx2.Response(200, json=document, request=httpx2.Request("GET", url))


@pytest.mark.parametrize(
    ("url", "announced", "is_covered"),
    [
        ("https://h.example:443/mcp", "https://h.example/mcp", True),
        ("https://h.example/mcp", "https://h.example:443/mcp", True),
        ("http://h.example:80/mcp", "http://h.example/mcp", True),
        ("http://h.example/mcp", "http://h.example:80", True),
        ("https://H.Example/mcp", "HTTPS://h.eXample/mcp", True),
        ("https://h.example/mcp", "https://h.example/mcp/", True),
        ("https://h.example/mcp/", "https://h.example/mcp", True),
        ("https://h.example/mcp", "https://h.example", True),
        ("https://h.example/mcp?tenant=1", "https://h.example/mcp", True),
        ("https://user:word@h.example/mcp", "https://h.example/mcp", True),
        ("https://[0:0:0:0:0:0:0:1]/mcp", "https://[::1]:443/mcp", True),
        ("https://b\u00fccher.example/mcp", "https://xn--bcher-kva.example/mcp", True),
        ("https://h.example/a%2fb/%7euser", "https://h.example/a%2Fb/~user", True),
        ("https://h.example:80/mcp", "https://h.example/mcp", False),
        ("http://h.example:443/mcp", "http://h.example/mcp", False),
        ("https://h.example:8443/mcp", "https://h.example/mcp", False),
        ("http://h.example/mcp", "https://h.example/mcp", False),
        ("https://h.example/mcp2", "https://h.example/mcp", False),
        ("https://h.example/MCP", "https://h.example/mcp", False),
        ("https://h.example/a/b", "https://h.example/a%2Fb", False),
        ("https://h.example.evil.example/mcp", "https://h.example/mcp", False),
    ],
)
async def test_an_announced_resource_is_compared_in_its_normal_form(url: str, announced: str, is_covered: bool) -> None:
    """RFC 3986, section 6.2: the default port equals none; scheme and host have no case; a path must be the same or below."""
    answer = answer_with({"resource": announced, "authorization_servers": ["https://login.example"]})

    async def fetch(address: str) -> httpx2.Response:
        return answer(address)

    challenge = httpx2.Response(401)
    if is_covered:
        resource = await discover_resource(fetch, challenge, url, uses_identifier=True)
        assert resource.identifier == announced
    else:
        with pytest.raises(LoginFailed, match="would not be valid here"):
            await discover_resource(fetch, challenge, url, uses_identifier=True)


@pytest.mark.parametrize("url", ["https://h.example:443/mcp", "https://user:word@H.example/mcp"])
async def test_a_server_without_resource_metadata_may_have_its_default_port_in_the_entry(url: str) -> None:
    """Its issuer is the origin of the entry's URL, in the normal form."""
    issuer = {"issuer": "https://h.example", "authorization_endpoint": "https://h.example/a", "token_endpoint": "https://h.example/t"}
    answer = answer_with(issuer)

    async def fetch(address: str) -> httpx2.Response:
        return answer(address)

    assert str((await discover_authority(fetch, AnnouncedResource(), url)).token_endpoint) == "https://h.example/t"


# Metadata and tokens.


async def test_the_metadata_of_an_issuer_with_a_path_is_found(logins: Logins, oauth_server: OAuthServer) -> None:
    """RFC 8414 inserts the well-known part before the path, OpenID Connect appends it. Some servers answer other paths with an error."""
    for number, well_known in enumerate(
        (
            "/.well-known/oauth-authorization-server/tenant/v2",
            "/.well-known/openid-configuration/tenant/v2",
            "/tenant/v2/.well-known/openid-configuration",
            "/tenant/v2/.well-known/oauth-authorization-server",
        )
    ):
        oauth_server.control(issuer_path="/tenant/v2", well_known=well_known, missing_status=(404, 500)[number % 2])
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))

    assert oauth_server.control()["granted"] == 4


async def test_an_authorisation_server_that_only_fails_is_reported_with_its_status(logins: Logins, oauth_server: OAuthServer) -> None:
    """The status of its metadata is the reason."""
    oauth_server.control(well_known="/nowhere", missing_status=503)

    with pytest.raises(LoginFailed, match="status 503 for its login metadata"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_members_of_metadata_without_a_value_are_left_out(logins: Logins, oauth_server: OAuthServer) -> None:
    """Servers write "" and null for what they do not have; the rest of the document counts."""
    oauth_server.control(
        described_as={"jwks_uri": "", "resource_documentation": "", "service_documentation": "", "response_types_supported": None},
        takes=f"{oauth_server.url}/mcp",
    )

    await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


@pytest.mark.parametrize(
    ("member", "field"),
    [({"authorization_servers": ["not an address"]}, "authorization_servers"), ({"resource": "api://board"}, "resource")],
)
async def test_invalid_resource_metadata_is_named_with_the_field(
    logins: Logins, oauth_server: OAuthServer, member: Mapping[str, object], field: str
) -> None:
    """Without login metadata at the server itself, a login at the fixed paths of 2025-03 would fail without the reason."""
    oauth_server.control(described_as=member, well_known="/nowhere")

    with pytest.raises(LoginFailed, match=f"invalid resource metadata: {field}"):
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_the_issuer_in_the_redirect_may_have_another_form(logins: Logins, oauth_server: OAuthServer) -> None:
    """An issuer with and without its last slash is the same server, and so is one in capitals."""
    port = oauth_server.url.rpartition(":")[2]
    for issuer in (oauth_server.url, f"{oauth_server.url}/", f"HTTP://127.0.0.1:{port}"):
        oauth_server.control(iss=issuer)
        await log_in(logins, oauth_server.make_entry(auth=OAuthConfig()))


async def test_tokens_are_accepted_in_the_forms_that_servers_return(logins: Logins, oauth_server: OAuthServer) -> None:
    """A lifetime as text or with a fraction, scopes as a list, and members without a value."""
    server = oauth_server.make_entry(auth=OAuthConfig())
    forms: list[dict[str, object]] = [
        {"token_type": None},
        {"token_type": "BEARER"},
        {"expires_in": "3600"},
        {"expires_in": 3599.5},
        {"expires_in": ""},
        {"expires_in": "never"},
        {"scope": ["read", "write"]},
        {"scope": ""},
        {"id_token": "x", "refresh_token": ""},
    ]
    for members in forms:
        oauth_server.control(token_members=members)
        await log_in(logins, server)
        await call_tool(logins, server)

    assert oauth_server.control()["calls"] == len(forms)


async def test_a_lifetime_as_text_ends_the_token(logins: Logins, oauth_server: OAuthServer, clock: FakeClock) -> None:
    """It is renewed when the time is over, and not before."""
    oauth_server.control(token_members={"expires_in": "3600"})
    server = oauth_server.make_entry(auth=OAuthConfig())
    await log_in(logins, server)
    clock.advance(minutes=50)
    await logins.get_token(server, 1)
    assert oauth_server.control()["renewed"] == 0
    clock.advance(minutes=10)
    await logins.get_token(server, 1)

    assert oauth_server.control()["renewed"] == 1


# The entry.


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"resource": "https://h.example/mcp#part"}, "auth.resource must be an absolute URI without a fragment"),
        ({"resource": "h.example/mcp"}, "auth.resource must be an absolute URI"),
        ({"resource": ""}, "auth.resource must be an absolute URI"),
        ({"resource": "https://h.example/a b"}, "auth.resource must be an absolute URI"),
        ({"resource": False}, "auth.resource must be a text"),
        ({"resorce": None}, "unknown field auth.resorce; did you mean auth.resource?"),
        ({"scopes": "read"}, "unknown field auth.scopes; did you mean auth.scope?"),
        ({"clientId": "x"}, "unknown field auth.clientId; did you mean auth.client_id?"),
        ({"audience": "x"}, "unknown field auth.audience; allowed are type, client_id, client_secret, scope, resource."),
        ({"scope": ["read", 7]}, "auth.scope must be a list of texts"),
    ],
)
def test_a_faulty_login_setting_is_named(auth: object, message: str) -> None:
    """The fault names the field, what is allowed, and the nearest known field."""
    with pytest.raises(InvalidServerEntry) as failed:
        read_auth(auth)
    assert str(failed.value).startswith(message)


def test_scopes_and_resource_have_the_forms_of_other_clients() -> None:
    """Scopes as a list, and a resource with a variable."""
    assert read_auth({"scope": ["read", "write"]}) == OAuthConfig(scope="read write")
    assert read_auth({"resource": "https://${HOST}/mcp"}) == OAuthConfig(resource="https://h.example/mcp")
    assert read_auth({"resource": None}) == OAuthConfig(resource=None)
    assert read_auth("oauth") == OAuthConfig()


def test_commands_show_the_fault_of_an_entry_instead_of_no_login(tmp_path: Path) -> None:
    """`servers login`, `servers check` and `servers list` name what is wrong; a command has no login."""
    entries: dict[str, object] = {
        "faulty": {"url": "http://127.0.0.1:9/mcp", "auth": {"type": "oauth", "resorce": None}},
        "local": {"command": sys.executable, "auth": "oauth"},
    }
    (tmp_path / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    login, check, listed, local = (
        run_rookery("servers", *words, data_dir=tmp_path)
        for words in (("login", "faulty"), ("check", "faulty", "--json"), ("list", "--json"), ("login", "local"))
    )
    fault = "unknown field auth.resorce; did you mean auth.resource?"

    assert (login.returncode, f"The entry of 'faulty' cannot be used: {fault}" in login.stderr) == (1, True), login.stderr
    assert json.loads(check.stdout)[0]["error"] == fault
    assert {row["id"]: row["says"] for row in json.loads(listed.stdout)}["faulty"] == fault
    assert (local.returncode, "its entry has no `url`" in local.stderr) == (1, True), local.stderr
