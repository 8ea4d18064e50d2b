"""The file of servers (D-31)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.tools.models import BUILTIN_IDS, CommandTarget, HttpTarget, Server, ServerStatus, SessionIsolation, SessionLifecycle, ToolRules
from rookery.tools.servers.servers_file import SERVER_ID_PATTERN, InvalidServersFile, ServersFile, parse_servers_file, read_servers_file


def read(**servers: object) -> ServersFile:
    """Read a file of these servers, with one variable in the environment."""
    return parse_servers_file(json.dumps({"mcpServers": servers}).encode(), {"TOKEN": "t0p"})


def test_the_form_of_every_client_is_read_as_it_is() -> None:
    """The file formats of all clients are accepted unchanged (D-31)."""
    found = read(
        time={"command": "uvx", "args": ["mcp-server-time"], "env": {"A": "b"}},
        docs={"type": "http", "url": "https://example.com/mcp", "headers": {"X-Key": "k"}},
        old={"type": "sse", "url": "https://example.com/sse"},
    )

    assert found.warnings == ()
    assert found.servers["time"] == Server(
        id="time", name="time", target=CommandTarget(command="uvx", args=("mcp-server-time",), env={"A": "b"})
    )
    assert found.servers["docs"].target == HttpTarget(url="https://example.com/mcp", headers={"X-Key": "k"})
    assert found.servers["old"].kind == "sse"


def test_our_own_fields_stand_beside() -> None:
    """Rookery's own fields may stand beside the clients' fields (D-31)."""
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

    assert read(x=entry).servers["x"] == Server(
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


def test_other_clients_fields_are_passed_over_and_slips_of_the_pen_are_told() -> None:
    """D-31: their files work as they are."""
    found = read(x={"command": "x", "autoApprove": ["a"], "disabledTools": ["b"], "disabled": True, "taglin": "T"})

    assert found.servers["x"].enabled is False
    assert found.servers["x"].rules.deny == ("b",)
    assert found.warnings == ("x: unknown field 'taglin' is ignored; did you mean 'tagline'?",)


def test_variables_are_filled_in_from_the_environment() -> None:
    """D-31: in the file only."""
    found = read(
        x={"url": "https://example.com", "headers": {"Authorization": "Bearer ${TOKEN}"}}, y={"command": "y", "args": ["${MISSING}"]}
    )

    target = found.servers["x"].target
    assert isinstance(target, HttpTarget)
    assert target.headers == {"Authorization": "Bearer t0p"}
    assert "t0p" not in repr(found)
    assert found.servers["y"].fault == "The environment variable MISSING is not set."


@pytest.mark.parametrize(
    ("entry", "words"),
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
        ({"command": "x", "tools": {"alow": []}}, "did you mean tools.allow"),
    ],
)
def test_a_broken_entry_costs_itself_alone_and_says_why(entry: object, words: str) -> None:
    """D-31, D-32: one broken server delays no other."""
    found = read(bad=entry, good={"command": "x"})

    assert words in str(found.servers["bad"].fault)
    assert found.servers["good"].fault is None


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"mcpServers": []}', b"\xff"])
def test_a_file_of_another_form_is_broken_as_a_whole(raw: bytes) -> None:
    """A file of another format is rejected as a whole (D-31)."""
    with pytest.raises(InvalidServersFile):
        parse_servers_file(raw, {})


def test_a_missing_and_an_empty_file_have_no_servers(tmp_path: Path) -> None:
    """D-31: a first run has none."""
    (tmp_path / "empty.json").write_text(" ")

    assert (
        read_servers_file(tmp_path / "none.json", {})
        == read_servers_file(tmp_path / "empty.json", {})
        == parse_servers_file(b"{}", {})
        == ServersFile()
    )


def test_an_id_outside_the_form_is_served_under_a_slug() -> None:
    """D-30: its own name in `name`; the built-in servers' ids are theirs."""
    found = read(**{"My Server!": {"command": "x"}, "brain": {"command": "x"}, "My-Server": {"command": "y"}})

    assert found.servers["My-Server"].name == "My Server!"
    assert {server.name for server in found.servers.values()} == {"My Server!", "brain", "My-Server"}
    assert "brain" not in found.servers


@given(st.lists(st.text(max_size=80), max_size=8, unique=True))
def test_every_key_of_a_file_gets_an_id_of_its_own(keys: list[str]) -> None:
    """Every key of a file maps to a unique server id (D-30)."""
    found = parse_servers_file(json.dumps({"mcpServers": {key: {"command": "x"} for key in keys}}).encode(), {})

    assert len(found.servers) == len(keys)
    assert all(SERVER_ID_PATTERN.fullmatch(server_id) and server_id not in BUILTIN_IDS for server_id in found.servers)
