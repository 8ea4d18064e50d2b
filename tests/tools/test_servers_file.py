"""The file of servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.tools.models import (
    BUILTIN_IDS,
    CommandTarget,
    HttpTarget,
    OAuthConfig,
    Server,
    ServerStatus,
    SessionIsolation,
    SessionLifecycle,
    ToolRules,
)
from rookery.tools.servers.entries import ServerEntry
from rookery.tools.servers.servers_file import SERVER_ID_PATTERN, InvalidServersFile, ServersFile, parse_servers_file, read_servers_file


def parse(**servers: object) -> ServersFile:
    """Parse a file with these servers, with one variable in the environment."""
    return parse_servers_file(json.dumps({"mcpServers": servers}).encode(), {"TOKEN": "t0p"})


def test_the_file_formats_of_clients_are_accepted_unchanged() -> None:
    """The file formats of all clients are accepted unchanged."""
    servers_file = parse(
        time={"command": "uvx", "args": ["mcp-server-time"], "env": {"A": "b"}},
        docs={"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}},
        old={"type": "sse", "url": "https://example.com/sse"},
    )

    assert servers_file.warnings == ()
    assert servers_file.servers["time"] == Server(
        id="time", name="time", target=CommandTarget(command="uvx", args=("mcp-server-time",), env={"A": "b"})
    )
    assert servers_file.servers["docs"].target == HttpTarget(url="https://example.com/mcp", headers={"X-Key": "k"})
    assert servers_file.servers["old"].kind == "sse"


def test_rookerys_own_fields_stand_beside_the_clients_fields() -> None:
    """Rookery's own fields may stand beside the clients' fields."""
    entry = {
        "command": "x",
        "name": "X",
        "tagline": "Does x",
        "description": "Does x well",
        "status": "deprecated",
        "use_when": "you need x",
        "related_servers": ["y"],
        "enabled": False,
        "private": True,
        "sandbox": True,
        "workspaces": [1, 2],
        "isolation": "shared",
        "lifecycle": "eager",
        "idle_s": None,
        "timeout_s": 5,
        "max_concurrency": 2,
        "tools": {"allow": ["get_*"], "deny": ["get_secret"], "timeouts": {"get_slow": 600}},
    }

    assert parse(x=entry).servers["x"] == Server(
        id="x",
        name="X",
        target=CommandTarget(command="x"),
        tagline="Does x",
        description="Does x well",
        status=ServerStatus.DEPRECATED,
        use_when="you need x",
        related_servers=("y",),
        enabled=False,
        private=True,
        sandbox=True,
        workspaces=frozenset({1, 2}),
        isolation=SessionIsolation.SHARED,
        lifecycle=SessionLifecycle.EAGER,
        idle_s=None,
        timeout_s=5.0,
        max_concurrency=2,
        rules=ToolRules(allow=("get_*",), deny=("get_secret",), timeouts_s={"get_slow": 600.0}),
    )


def test_fields_of_other_clients_are_accepted_and_typing_errors_reported() -> None:
    """Files of other clients work unchanged."""
    servers_file = parse(x={"command": "x", "autoApprove": ["a"], "disabledTools": ["b"], "disabled": True, "taglin": "T"})

    assert servers_file.servers["x"].enabled is False
    assert servers_file.servers["x"].rules.deny == ("b",)
    assert servers_file.warnings == ("x: unknown field 'taglin' is ignored; did you mean 'tagline'?",)


def test_variables_are_filled_in_from_the_environment() -> None:
    """Variables are replaced in the file only."""
    servers_file = parse(
        x={"url": "https://example.com", "headers": {"Authorization": "Bearer ${TOKEN}"}}, y={"command": "y", "args": ["${MISSING}"]}
    )

    target = servers_file.servers["x"].target
    assert isinstance(target, HttpTarget)
    assert target.headers == {"Authorization": "Bearer t0p"}
    assert "t0p" not in repr(servers_file)
    assert "t0p" not in repr(ServerEntry({"url": "https://example.com/${TOKEN}"}, {"TOKEN": "t0p"}))
    assert servers_file.servers["y"].fault == "The environment variable MISSING is not set."


def test_a_variable_of_the_oauth_settings_may_have_a_default() -> None:
    """As everywhere in the file."""
    auth = (
        parse(x={"url": "https://example.com", "auth": {"client_id": "${CLIENT:-me}", "resource": "${RESOURCE:-https://h/}"}})
        .servers["x"]
        .auth
    )

    assert auth == OAuthConfig(client_id="me", resource="https://h/")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("x", "must be an object"),
        ({}, "neither a command nor a url"),
        ({"command": "x", "url": "https://example.com"}, "both"),
        ({"url": "file:///etc/passwd"}, "http or https"),
        ({"command": 5}, "command must be a text"),
        ({"command": "x", "args": "a b"}, "args must be a list"),
        ({"command": "x", "env": {"A": 1}}, "env must be an object of texts"),
        ({"command": "x", "timeout_s": 601}, "from 0.1 to 600"),
        ({"command": "x", "timeout_s": True}, "from 0.1 to 600"),
        ({"command": "x", "status": "gone"}, "available, beta, deprecated"),
        ({"command": "x", "isolation": "none"}, "per_workspace"),
        ({"command": "x", "workspaces": ["1"]}, "workspace ids"),
        ({"command": "x", "deprecated_at": "0001-01-01T00:00:00+14:00"}, "deprecated_at must be a date"),
        ({"command": "x", "tools": {"alow": []}}, "did you mean tools.allow"),
    ],
)
def test_an_invalid_entry_affects_only_itself_and_has_a_reason(entry: object, message: str) -> None:
    """One invalid entry does not affect the others."""
    servers_file = parse(bad=entry, good={"command": "x"})

    assert message in str(servers_file.servers["bad"].fault)
    assert servers_file.servers["good"].fault is None


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"mcpServers": []}', b"\xff"])
def test_a_file_of_another_format_is_rejected(raw: bytes) -> None:
    """A file of another format is rejected as a whole."""
    with pytest.raises(InvalidServersFile):
        parse_servers_file(raw, {})


def test_a_missing_and_an_empty_file_have_no_servers(tmp_path: Path) -> None:
    """The first run has no servers file."""
    (tmp_path / "empty.json").write_text(" ")

    assert (
        read_servers_file(tmp_path / "none.json", {})
        == read_servers_file(tmp_path / "empty.json", {})
        == parse_servers_file(b"{}", {})
        == ServersFile()
    )


def test_an_invalid_id_becomes_a_slug() -> None:
    """The original is in `name`; ids of built-in servers are reserved."""
    servers_file = parse(**{"My Server!": {"command": "x"}, "brain": {"command": "x"}, "My-Server": {"command": "y"}})

    assert servers_file.servers["My-Server"].name == "My Server!"
    assert {server.name for server in servers_file.servers.values()} == {"My Server!", "brain", "My-Server"}
    assert "brain" not in servers_file.servers


@given(st.lists(st.text(max_size=80), max_size=8, unique=True))
def test_every_key_of_a_file_gets_a_unique_id(keys: list[str]) -> None:
    """Every key of a file maps to a unique server id."""
    servers_file = parse_servers_file(json.dumps({"mcpServers": {key: {"command": "x"} for key in keys}}).encode(), {})

    assert len(servers_file.servers) == len(keys)
    assert all(SERVER_ID_PATTERN.fullmatch(server_id) and server_id not in BUILTIN_IDS for server_id in servers_file.servers)
