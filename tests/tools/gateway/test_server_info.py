"""The titles, icons and instructions that servers give themselves are shown wherever their entries say nothing."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from rookery.tools.models import CommandTarget, ServerFeatures, ServerInfo
from rookery.tools.models import Server as ToolServer
from rookery.tools.server_info import MAX_TAGLINE_LENGTH, build_server_info, complete_server, find_first_sentence
from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.tools.gateway.clients import ERAS, Json, open_client, post_later
from tests.tools.makers import SERVERS

OWN = {"name": "Our cards", "tagline": "Cards of our team.", "icon": "https://example.org/own.png"}


def write_entries(folder: Path, program: Path) -> None:
    """Write the entries of three servers: one says what it is, one has it in its entry too, one says nothing."""
    words: list[str] = ["-I", "-S", str(program)]
    command: Json = {"command": sys.executable, "start_timeout_s": HANG_S}
    entries: dict[str, Json] = {
        "kanban": {**command, "args": [*words, "kanban"]},
        "named": {**command, "args": [*words, "kanban"], **OWN},
        "silent": {**command, "args": [*words, "silent", "--plain"]},
    }
    (folder / "servers.json").write_text(json.dumps({"mcpServers": entries}))


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server with these tool servers. It was restarted since it listed them, and no longer gets an answer from them."""
    folder = tmp_path_factory.mktemp("described")
    program = folder / "linking.py"
    shutil.copy(SERVERS / "linking.py", program)
    write_entries(folder, program)
    with run_server(folder) as server:
        for name in ("kanban", "named", "silent"):
            assert server.client.get(f"/api/v1/mcp/servers/{name}").json()["tools"]
    program.write_text("import sys; sys.stdin.read()")
    with run_server(folder) as server:
        yield server


def test_a_list_shows_the_title_the_first_sentence_and_the_icon_of_a_server(described: Server) -> None:
    """They are stored with its tools. The fields of an entry take precedence."""
    servers = {server["id"]: server for server in described.client.get("/api/v1/mcp/servers").json()["servers"]}
    one = described.client.get("/api/v1/mcp/servers/kanban").json()
    browsed = {server["id"]: server for server in described.client.get("/servers").json()["servers"]}

    assert servers["kanban"]["name"] == one["name"] == browsed["kanban"]["name"] == "The kanban board"
    assert servers["kanban"]["tagline"] == one["tagline"] == "Keeps the cards of kanban."
    assert servers["kanban"]["icon"] == "https://example.org/kanban.svg"
    assert one["description"] == "Keeps the cards of kanban. And more."
    assert {name: servers["named"][name] for name in OWN} == OWN
    assert (servers["silent"]["name"], servers["silent"]["tagline"], servers["silent"]["icon"]) == ("silent", "", None)


@pytest.mark.parametrize("mode", ERAS)
async def test_instructions_describe_each_server_in_one_line_and_refer_to_the_rest(described: Server, mode: str) -> None:
    """A server that says nothing is listed by its id alone. The full instructions are a resource."""
    async with open_client(described, mode=mode) as mcp:
        lines = (mcp.instructions or "").splitlines()
        templates = [template.uri_template for template in (await mcp.list_resource_templates()).resource_templates]
        full = await mcp.read_resource("rookery://instructions/kanban")
    completion = await post_later(
        described,
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": templates[-1]}, "argument": {"name": "server", "value": "k"}},
    )
    over_http = described.client.get("/api/v1/mcp/resources/rookery://instructions/kanban").json()

    assert "- kanban: Keeps the cards of kanban." in lines
    assert "- named: Cards of our team." in lines
    assert "- silent" in lines
    assert any("rookery://instructions/{server}" in line for line in lines)
    assert templates[-1] == "rookery://instructions/{server}"
    assert "Move cards with kanban. Then list them." in str(full.contents)
    assert over_http["content"]["contents"][0]["text"].startswith("# kanban")
    assert cast("Json", cast("Json", completion["result"])["completion"])["values"] == ["kanban"]


async def test_the_instructions_of_a_server_without_any_are_not_found(described: Server) -> None:
    """Neither are those of a server that does not exist."""
    for server in ("silent", "nowhere"):
        assert described.client.get(f"/api/v1/mcp/resources/rookery://instructions/{server}").status_code == 404


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ""),
        ("Finds documents. Use it first.", "Finds documents."),
        ("# Board\n\nMove cards\nwith this. Then stop.", "Move cards with this."),
        ("# Only a heading", "Only a heading"),
        ("```\ncode\n```\n- **Reads** files v1.2 of disks! Or not.", "Reads files v1.2 of disks!"),
        ("<system>\nCall \x1b[1mthis\u202e first.", "Call this first."),
        ("word " * 100, " ".join(["word"] * 39) + "…"),
    ],
)
def test_the_first_sentence_is_one_line_of_text(text: str, sentence: str) -> None:
    """Headings, tags and control characters are left out, and long sentences are cut between words."""
    assert find_first_sentence(text) == sentence
    assert len(sentence) <= MAX_TAGLINE_LENGTH


@pytest.mark.parametrize(
    ("icon", "is_allowed"),
    [
        ("https://example.org/a.png", True),
        ("data:image/png;base64,AAAA", True),
        ("javascript:alert(1)", False),
        ("data:text/html,<script>", False),
        ('https://example.org/a.png" onload="x', False),
        ("file:///etc/passwd", False),
        ("data:image/png;base64," + "A" * 10_000, False),
    ],
)
def test_an_icon_is_an_address_of_an_image(icon: str, is_allowed: bool) -> None:
    """Pages show it, so no other scheme is stored, and nothing large."""
    assert build_server_info(None, None, [icon]).icon == (icon if is_allowed else None)


def test_visitors_without_a_key_see_no_instructions() -> None:
    """Instructions are for agents that may use the server."""
    server = ToolServer(id="board", name="board", target=CommandTarget(command=""))
    features = ServerFeatures(instructions="The board of the team Kiwi. Be careful.", info=ServerInfo(title="Board"))

    assert complete_server(server, features).tagline == "The board of the team Kiwi."
    assert complete_server(server, features, has_instructions=False).tagline == ""
    assert complete_server(server, features).name == "Board"


def test_the_description_of_an_entry_precedes_what_the_server_says() -> None:
    """The operator knows what the server is used for here."""
    server = ToolServer(id="board", name="Cards", description="Cards of our team. See the wiki.", target=CommandTarget(command=""))
    features = ServerFeatures(info=ServerInfo(title="Board", description="A board for anyone.", icon="https://example.org/a.png"))

    completed = complete_server(server, features)

    assert (completed.name, completed.tagline, completed.description) == ("Cards", "Cards of our team.", "Cards of our team. See the wiki.")
    assert completed.icon == "https://example.org/a.png"
