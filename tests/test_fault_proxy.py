"""The proxy of the failure tests makes the faults that it names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import closing

import pytest

from tests.deadlines import HANG_S
from tests.fault_proxy import FaultProxy

_BRIEF_S = 0.05
"""Time in which a healthy proxy answers on any machine that is not stopped; used only to show that no answer comes."""


@pytest.fixture
def echo_port() -> Generator[int]:
    """Return the port of a server that sends back what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=[listener], daemon=True).start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)


def _serve(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:  # the end of the test
            return
        threading.Thread(target=_echo, args=[connection], daemon=True).start()


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1024):
                connection.sendall(data)
        except OSError:
            return


def _connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), HANG_S)


def _ask(connection: socket.socket, data: bytes = b"ping") -> bytes:
    connection.sendall(data)
    return connection.recv(1024)


def test_a_partition_delays_open_and_new_connections_until_it_is_healed(echo_port: int) -> None:
    """Nothing is lost and nothing is closed, so a client cannot know what arrived."""
    with FaultProxy(echo_port) as proxy, _connect(proxy) as old:
        assert _ask(old) == b"ping"
        proxy.partition()
        old.sendall(b"held")
        with _connect(proxy) as new:
            new.sendall(b"new")
            for connection in (old, new):
                connection.settimeout(_BRIEF_S)
                with pytest.raises(TimeoutError):
                    connection.recv(1024)
                connection.settimeout(HANG_S)
            proxy.heal()
            assert (old.recv(1024), new.recv(1024)) == (b"held", b"new")


def test_refused_connections_are_accepted_again_on_the_same_port(echo_port: int) -> None:
    """A reset ends open connections; a refusal concerns new ones."""
    with FaultProxy(echo_port) as proxy:
        port = proxy.port
        with _connect(proxy) as connection:
            assert _ask(connection) == b"ping"
            proxy.refuse()
            assert _ask(connection) == b"ping"
            proxy.reset()
            with pytest.raises(ConnectionResetError):
                connection.recv(1024)
        with pytest.raises(ConnectionRefusedError):
            _connect(proxy)
        proxy.heal()
        assert proxy.port == port
        with _connect(proxy) as connection:
            assert _ask(connection) == b"ping"


def test_an_answer_is_cut_and_a_line_is_slow(echo_port: int) -> None:
    """Half an answer arrives, then the end of the connection."""
    with FaultProxy(echo_port) as proxy:
        proxy.cut_after_bytes = 2
        with _connect(proxy) as connection:
            assert _ask(connection) == b"pi"
            assert connection.recv(1024) == b""
        proxy.heal()
        proxy.latency_s = HANG_S
        with _connect(proxy) as connection:
            connection.settimeout(_BRIEF_S)
            with pytest.raises(TimeoutError):
                _ask(connection)
        assert proxy.connection_count == 2


def test_a_stopped_engine_closes_its_connections() -> None:
    """The proxy accepts, and closes when it cannot connect to the engine itself."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        port = int(listener.getsockname()[1])
    with FaultProxy(port) as proxy, _connect(proxy) as connection:
        assert connection.recv(1024) == b""
