"""The negotiation of the protocol revision, and its memory in the record store."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from rookery.engines import upstreams
from rookery.engines.upstreams.start_failures import Symptom
from rookery.kernel.db import Database
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import CommandTarget, Server, ServerProtocol
from rookery.tools.ports import Connector, RequestOptions
from rookery.tools.servers.entries import InvalidServerEntry, ServerEntry
from rookery.tools.servers.server_check import ServerChecker
from rookery.tools.store.mcp_sessions import StoredProtocols
from tests.conftest import eventually
from tests.tools.conftest import Start
from tests.tools.makers import CALLER, SERVERS, call_text, make_http_server, text_of

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

MODERN = "2026-07-28"
PROBE, HANDSHAKE = "server/discover", "initialize"


class EraServer:
    """The server of `servers/eras.py` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.args = ("-I", "-S", str(SERVERS / "eras.py"), str(folder))
        self.entry: dict[str, object] = {"command": sys.executable, "args": [*self.args]}
        self.server = Server(id="eras", name="eras", target=CommandTarget(command=sys.executable, args=self.args))

    def set(self, mode: str, **files: str) -> None:
        """Set how the server behaves from its next start on, and empty its log."""
        (self.folder / "log").write_text("")
        for name, text in {"mode": mode, **files}.items():
            (self.folder / name).write_text(text)

    def read_log(self) -> list[str]:
        """Return its starts and the methods that it received, without the notification that ends a handshake."""
        lines = (self.folder / "log").read_text().split("\n")
        return [line for line in lines if line and line != "notifications/initialized" and not line.startswith("offered")]

    def read_opening(self) -> list[str]:
        """Return its starts and the first messages, up to the first other method."""
        return [line for line in self.read_log() if line in {"start", PROBE, HANDSHAKE}]

    @contextlib.contextmanager
    def serve_http(self) -> Generator[str]:
        """Run it over HTTP; yield its URL."""
        command = [sys.executable, "-I", "-S", str(SERVERS / "eras.py"), "--http", str(self.folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            try:
                yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
            finally:
                process.kill()


@pytest.fixture
def eras(tmp_path: Path) -> EraServer:
    """The server, which understands only the handshake at first."""
    folder = tmp_path / "eras"
    folder.mkdir()
    eras = EraServer(folder)
    eras.set("handshake")
    return eras


@pytest.fixture
def eras_url(eras: EraServer) -> Iterator[str]:
    """The URL of the server over HTTP."""
    with eras.serve_http() as url:
        yield url


async def open_and_call(db: Database, server: Server) -> str:
    """Open a session as a new process of Rookery would, and return the era in which the server was called."""
    connector = upstreams.open([], protocols=StoredProtocols(db))[server.kind]
    async with connector.connect(server, on_changed=lambda: None) as connection:
        features = await connection.list_features()
        assert [tool["name"] for tool in features.tools] == ["era"]
        return text_of(await connection.request("tools/call", {"name": "era", "arguments": {}}, RequestOptions(caller=CALLER)))


@pytest.mark.parametrize("mode", ["strict", "polite"])
async def test_a_server_that_exits_on_the_probe_is_started_again_and_then_opened_at_once(db: Database, eras: EraServer, mode: str) -> None:
    """The second start begins with `initialize`: the revision is stored."""
    eras.set(mode)

    assert await open_and_call(db, eras.server) == "handshake"
    assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]

    eras.set(mode)
    assert await open_and_call(db, eras.server) == "handshake"
    assert eras.read_opening() == ["start", HANDSHAKE]


async def test_a_silent_server_gets_initialize_on_the_same_connection(db: Database, eras: EraServer) -> None:
    """A program may still be downloading, so silence is no reason to start it again."""
    eras.set("silent")

    assert await open_and_call(db, eras.server) == "handshake"
    assert eras.read_opening() == ["start", PROBE, HANDSHAKE]

    eras.set("silent")
    assert await open_and_call(db, eras.server) == "handshake"
    assert eras.read_opening() == ["start", HANDSHAKE]


async def test_a_late_answer_to_the_probe_counts(db: Database, eras: EraServer) -> None:
    """A server that starts slowly reads both messages, accepts the first and rejects the second."""
    eras.set("slow")

    assert await open_and_call(db, eras.server) == MODERN
    assert eras.read_opening() == ["start", PROBE, HANDSHAKE]


@pytest.mark.parametrize(("mode", "era"), [("handshake", "handshake"), ("modern", MODERN), ("deaf", MODERN), ("locked", MODERN)])
async def test_the_first_start_probes_and_the_second_does_not_guess(db: Database, eras: EraServer, mode: str, era: str) -> None:
    """Modern servers are probed each time: the answer has their features."""
    eras.set(mode)
    assert await open_and_call(db, eras.server) == era
    assert eras.read_opening()[:2] == ["start", PROBE]

    eras.set(mode)
    assert await open_and_call(db, eras.server) == era
    assert eras.read_opening() == ["start", PROBE if era == MODERN else HANDSHAKE]


@pytest.mark.parametrize(
    ("before", "after", "era"),
    [
        ("strict", "modern", MODERN),
        ("strict", "deaf", MODERN),
        ("strict", "locked", "handshake"),
        ("silent", "strict", "handshake"),
        ("modern", "strict", "handshake"),
        ("modern", "silent", "handshake"),
        ("modern", "handshake", "handshake"),
    ],
)
async def test_a_replaced_server_is_opened_at_its_first_start(db: Database, eras: EraServer, before: str, after: str, era: str) -> None:
    """A stored revision that is no longer right costs no failure, and is replaced. Silence is borne for a share of the start time-out."""
    eras.set(before)
    await open_and_call(db, eras.server)
    eras.set(after)
    server = replace(eras.server, start_timeout_s=3) if after in {"silent", "deaf"} else eras.server
    assert await open_and_call(db, server) == era

    eras.set(after)
    assert await open_and_call(db, eras.server) == era
    assert eras.read_opening() == ["start", PROBE if era == MODERN else HANDSHAKE]


async def test_a_server_with_a_new_version_is_probed_again(db: Database, eras: EraServer) -> None:
    """A server that still accepts the handshake may also support a newer revision since its upgrade."""
    await open_and_call(db, eras.server)
    eras.set("locked", version="2")
    assert await open_and_call(db, eras.server) == "handshake"

    assert await open_and_call(db, eras.server) == MODERN


async def test_a_server_that_fails_for_another_reason_is_started_twice_at_most(db: Database, eras: EraServer) -> None:
    """The error is that of the start with the right first message."""
    eras.set("dead")
    with pytest.raises(ConnectFailed, match=r"^The server exited with code 1: expect nothing request$"):
        await open_and_call(db, eras.server)
    assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]

    eras.set("strict")
    await open_and_call(db, eras.server)
    eras.set("dead")
    with pytest.raises(ConnectFailed):
        await open_and_call(db, eras.server)
    assert eras.read_opening() == ["start", HANDSHAKE, "start", PROBE]


async def fail_to_open(connector: Connector, server: Server, reason: str) -> None:
    """Open a session, which must fail for this reason."""
    with pytest.raises(ConnectFailed, match=reason):
        async with connector.connect(server, on_changed=lambda: None):
            pass


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_program_that_exits_before_it_reads_is_started_once(
    eras: EraServer, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """It cannot have failed because of the first message. Both kinds of event loops show what it left unread."""
    eras.set("broken")

    async def open_twice() -> None:
        connector = upstreams.open([])["stdio"]
        await fail_to_open(connector, eras.server, "^The server exited with code 1: no token$")
        assert eras.read_log() == ["start"]
        eras.set("strict")
        async with connector.connect(eras.server, on_changed=lambda: None):
            assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(open_twice())


async def test_a_program_that_fails_with_any_first_message_is_started_once_from_then_on(db: Database, eras: EraServer) -> None:
    """Both starts failed in the same way, so the first message is not the reason. The next one is sent as it would have been anyway."""
    connector = upstreams.open([], protocols=StoredProtocols(db))["stdio"]
    eras.set("dead")
    await fail_to_open(connector, eras.server, "expect nothing")
    assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]

    for _ in range(2):
        eras.set("dead")
        await fail_to_open(connector, eras.server, "expect nothing")
        assert eras.read_opening() == ["start", PROBE]

    eras.set("strict")  # fails in another way, so it is started again
    async with connector.connect(eras.server, on_changed=lambda: None):
        assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]


async def test_a_strict_server_that_lacks_something_is_started_once_from_then_on(db: Database, eras: EraServer) -> None:
    """The next start begins with `initialize`, so that the server can be used as soon as it has what it lacked."""
    connector = upstreams.open([], protocols=StoredProtocols(db))["stdio"]
    eras.set("picky")
    await fail_to_open(connector, eras.server, "has no token")
    assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]

    for _ in range(2):
        eras.set("picky")
        await fail_to_open(connector, eras.server, "has no token")
        assert eras.read_opening() == ["start", HANDSHAKE]

    eras.set("strict")
    async with connector.connect(eras.server, on_changed=lambda: None):
        assert eras.read_opening() == ["start", HANDSHAKE]


async def test_a_server_of_both_eras_that_recovers_is_probed_at_its_next_start(db: Database, eras: EraServer) -> None:
    """The start with `initialize` alone does not show that it supports nothing newer."""
    connector = upstreams.open([], protocols=StoredProtocols(db))["stdio"]
    eras.set("picky")
    await fail_to_open(connector, eras.server, "has no token")
    eras.set("locked")
    async with connector.connect(eras.server, on_changed=lambda: None) as connection:
        assert connection.info.protocol_version != MODERN

    assert await open_and_call(db, eras.server) == MODERN


async def test_a_changed_entry_is_started_as_if_it_were_new(eras: EraServer) -> None:
    """Its failures were seen with other arguments or variables, so they do not count."""
    connector = upstreams.open([])["stdio"]
    eras.set("picky")
    await fail_to_open(connector, eras.server, "has no token")
    eras.set("picky")
    assert isinstance(eras.server.target, CommandTarget)
    edited = replace(eras.server, target=replace(eras.server.target, env={"TOKEN": "wrong"}))

    await fail_to_open(connector, edited, "has no token")

    assert eras.read_opening() == ["start", PROBE, "start", HANDSHAKE]


@pytest.mark.parametrize(
    ("protocol", "mode", "opening"),
    [
        (ServerProtocol.HANDSHAKE, "locked", HANDSHAKE),
        (ServerProtocol.V2025_03_26, "locked", HANDSHAKE),
        (ServerProtocol.V2026_07_28, "locked", PROBE),
    ],
)
async def test_the_entry_sets_the_first_message(db: Database, eras: EraServer, protocol: ServerProtocol, mode: str, opening: str) -> None:
    """`protocol` has precedence over what the server negotiated last."""
    eras.set(mode)
    await open_and_call(db, eras.server)
    eras.set(mode)

    await open_and_call(db, replace(eras.server, protocol=protocol))

    assert eras.read_opening() == ["start", opening]
    if protocol is ServerProtocol.V2025_03_26:
        assert "offered 2025-03-26" in (eras.folder / "log").read_text()


@pytest.mark.parametrize(
    ("protocol", "mode", "text"),
    [
        (
            ServerProtocol.V2026_07_28,
            "handshake",
            "The server does not support protocol 2026-07-28, as its entry demands: Method not found",
        ),
        (ServerProtocol.HANDSHAKE, "modern", "The server does not support protocol 2025-11-25, as its entry demands: Unsupported protocol"),
        (ServerProtocol.V2026_07_28, "strict", "The server exited with code 1: expect initialize request"),
    ],
)
async def test_a_server_without_the_demanded_revision_is_not_opened(
    db: Database, eras: EraServer, protocol: ServerProtocol, mode: str, text: str
) -> None:
    """Neither message is sent in place of the other, and the server is started once."""
    eras.set(mode)

    with pytest.raises(ConnectFailed) as error:
        await open_and_call(db, replace(eras.server, protocol=protocol))

    assert str(error.value).startswith(text)
    assert eras.read_opening()[0] == "start"
    assert len(eras.read_opening()) == 2


@pytest.mark.parametrize("mode", ["silent", "handshake"])
async def test_the_revision_of_a_server_over_http_is_stored_too(db: Database, eras: EraServer, eras_url: str, mode: str) -> None:
    """The second session begins with `initialize`."""
    del mode  # both are handshake servers; over HTTP an ignored request is answered with 202
    server = make_http_server(eras_url)
    assert await open_and_call(db, server) == "handshake"
    assert eras.read_opening()[:2] == ["start", PROBE]

    eras.set("handshake")
    assert await open_and_call(db, server) == "handshake"
    assert eras.read_opening() == [HANDSHAKE]

    eras.set("handshake")
    assert await open_and_call(db, replace(server, protocol=ServerProtocol.HANDSHAKE)) == "handshake"
    assert eras.read_opening() == [HANDSHAKE]


@pytest.mark.parametrize("is_http", [False, True])
async def test_a_check_names_the_field_for_a_server_that_wants_initialize_first(eras: EraServer, is_http: bool) -> None:
    """It knows no probe, and rejects `initialize` after one; the advice is tried out here."""
    eras.set("sullen")
    with eras.serve_http() if is_http else contextlib.nullcontext("") as url:
        server = make_http_server(url) if is_http else eras.server
        checker = ServerChecker(upstreams.open([]))
        check = await checker.check(server)
        mended = await checker.check(replace(server, protocol=ServerProtocol.HANDSHAKE))

    assert mended.error is None
    assert check.error == "Already in use"
    assert 'set "protocol": "handshake" in its entry' in str(check.advice)


async def test_the_supervisor_and_a_check_count_no_failure_and_share_the_revision(start: Start, db: Database, eras: EraServer) -> None:
    """A check uses a session of its own."""
    eras.set("strict")
    check = await ServerChecker(upstreams.open([], protocols=StoredProtocols(db))).check(eras.server)
    assert check.error is None
    eras.set("strict")

    tools = await start({"eras": eras.entry})

    assert await call_text(tools, "era", server="eras") == "handshake"
    assert eras.read_opening() == ["start", HANDSHAKE]
    assert tools.sessions.failure_counts["eras"] == 0


async def test_a_start_that_needs_a_second_process_counts_no_failure(start: Start, eras: EraServer) -> None:
    """The health is online, without an error."""
    eras.set("strict")
    tools = await start({"eras": eras.entry})

    assert await call_text(tools, "era", server="eras") == "handshake"

    health = tools.sessions.get_health_state(tools.catalogue.get_server(CALLER, "eras"))
    assert (health.health.value, health.last_error) == ("online", "")
    assert tools.sessions.failure_counts["eras"] == 0
    await eventually(lambda: eras.read_opening()[:4] == ["start", PROBE, "start", HANDSHAKE])


def test_an_entry_may_name_each_revision_of_the_protocol() -> None:
    """`protocol` is `auto`, `handshake` or a revision that the SDK supports."""
    assert [protocol.value for protocol in ServerProtocol] == ["auto", "handshake", *KNOWN_PROTOCOL_VERSIONS]


def test_an_invalid_protocol_is_rejected_with_the_values_that_are_allowed() -> None:
    """The error names the field, its value and what it may be."""
    with pytest.raises(InvalidServerEntry) as error:
        ServerEntry({"command": "x", "protocol": "2026"}, {}).to_server("x", "x")

    assert error.value.field == "protocol"
    allowed = ", ".join(ServerProtocol)
    assert str(error.value) == f"protocol must be one of {allowed}, not '2026'."


def test_times_and_numbers_do_not_make_a_failure_another_one() -> None:
    """Log lines have them, so that no two are equal. The exit code counts."""
    first = Symptom.describe(1, "The server exited with code 1: 2026-11-28 12:00:00,1 ERROR root (pid 4711, 0f3a-9be2) no token")
    second = Symptom.describe(1, "The server exited with code 1: 2026-11-29 07:30:12,9 ERROR root (pid 5, 77c1-10ad) no token")

    assert first == second
    assert first != Symptom.describe(2, first.reason)
    assert first != Symptom.describe(1, "The server exited with code 1: 2026-11-28 12:00:00,1 ERROR root (pid 4711, 0f3a-9be2) no file")
