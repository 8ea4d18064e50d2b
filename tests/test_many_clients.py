"""A real server with more open connections than its limit."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from rookery.kernel.http.connection_limit import raise_file_limit
from rookery.serving import make_owner_lookup
from tests.conftest import lend_model
from tests.deadlines import HANG_S
from tests.processes import run_server
from tests.stopwatch import Stopwatch

_SILENT_CONNECTIONS = 1100
_MAX_REQUEST_S = 1.0
"""Maximum time of a request. A request on an idle machine takes a hundredth of it."""


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "], ids=["silent", "half of the head"])
def test_requests_are_served_beside_more_silent_connections_than_the_limit(tmp_path: Path, model_folder: Path, sent: bytes) -> None:
    """1,100 silent connections at a limit of 1,000; new and existing connections are served."""
    if raise_file_limit(_SILENT_CONNECTIONS) < _SILENT_CONNECTIONS:
        pytest.skip("the limit of open files is too low to try this")
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home") as server, ExitStack() as silent:
        address = urlsplit(server.url)
        assert server.client.get("/api/v1/rate-limit").status_code == 200
        for _ in range(_SILENT_CONNECTIONS):
            connection = silent.enter_context(socket.create_connection((address.hostname, address.port)))
            connection.sendall(sent)
        took_s = list[float]()
        with Stopwatch() as watch:
            for number in range(20):
                started = time.perf_counter()
                if number % 2:
                    status = server.client.get("/api/v1/rate-limit").status_code
                else:
                    status = httpx2.get(f"{server.url}/api/v1/rate-limit", headers=dict(server.client.headers)).status_code
                took_s.append(time.perf_counter() - started)
                assert status == 200

        assert max(took_s) / watch.slowness < _MAX_REQUEST_S
        assert server.log().count("connections.full") == 1


def test_connections_are_counted_by_owner_except_those_of_proxies() -> None:
    """An IPv6 owner is a /64; trusted proxies and loopback addresses have no owner, as they serve many callers."""
    owner = make_owner_lookup(["10.0.0.0/8"])

    assert (owner("192.0.2.1"), owner("::ffff:192.0.2.1")) == ("192.0.2.1", "192.0.2.1")
    assert owner("2001:db8::1") == owner("2001:db8::ffff") != owner("2001:db8:0:1::1")
    assert [owner(address) for address in ("127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "::ffff:10.1.2.3", "")] == [None] * 6


def test_the_doctor_reports_a_low_limit_of_open_files(tmp_path: Path, model_folder: Path) -> None:
    """The limit of open files is raised as far as the system allows; the doctor reports if that is too low."""
    lend_model(model_folder, tmp_path / "home")
    doctor = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path / "home"), "doctor", "--json"]
    script = (
        "import resource as r; from rookery.kernel.http.connection_limit import raise_file_limit; "
        "print(raise_file_limit(1000), *r.getrlimit(r.RLIMIT_NOFILE))"
    )
    limits = "ulimit -Sn 256; ulimit -Hn 600; "

    limits_process = subprocess.run(
        ["/bin/sh", "-c", f'{limits}exec "$0" -c "$1"', sys.executable, script], capture_output=True, text=True, check=True, timeout=HANG_S
    )
    doctor_process = subprocess.run(
        ["/bin/sh", "-c", f'{limits}exec "$@"', "sh", *doctor], capture_output=True, text=True, check=False, timeout=HANG_S
    )

    assert limits_process.stdout.split() == ["400", "600", "600"]
    [finding] = [entry for entry in json.loads(doctor_process.stdout) if entry["about"] == "connections"]
    assert (finding["grade"], "400" in finding["says"], "1,200" in finding["advice"]) == ("warning", True, True)
