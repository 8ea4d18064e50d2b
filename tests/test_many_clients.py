"""A crowd in front of a real server: who holds connections, and who is served nevertheless (D-16)."""

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
from tests.processes import run_server

_SILENT = 1100
_QUICK_S = 1.0
"""It takes a hundredth of that alone; the machine of a test may be busy."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\nX-A: "], ids=["silent", "half a head"])
def test_a_caller_is_answered_beside_more_silent_connections_than_there_may_be(tmp_path: Path, model_folder: Path, sent: bytes) -> None:
    """D-16: 1,100 of them, at a limit of 1,000; over new connections and over one that was there before."""
    if raise_file_limit(_SILENT) < _SILENT:
        pytest.skip("the limit of open files is too low to try this")
    lend_model(model_folder, tmp_path / "home")
    with run_server(tmp_path / "home") as server, ExitStack() as silent:
        address = urlsplit(server.url)
        assert server.client.get("/api/v1/rate-limit").status_code == 200
        for _ in range(_SILENT):
            one = silent.enter_context(socket.create_connection((address.hostname, address.port)))
            one.sendall(sent)
        took_s = list[float]()
        for number in range(20):
            started = time.perf_counter()
            if number % 2:
                status = server.client.get("/api/v1/rate-limit").status_code
            else:
                status = httpx2.get(f"{server.url}/api/v1/rate-limit", headers=dict(server.client.headers)).status_code
            took_s.append(time.perf_counter() - started)
            assert status == 200

        assert max(took_s) < _QUICK_S
        assert server.log().count("connections.full") == 1


def test_half_of_all_is_for_one_household_but_not_for_proxies() -> None:
    """D-16, D-20, D-28: an IPv6 caller owns a /64; a trusted proxy and the loopback address speak for many."""
    owner = make_owner_lookup(["10.0.0.0/8"])

    assert (owner("192.0.2.1"), owner("::ffff:192.0.2.1")) == ("192.0.2.1", "192.0.2.1")
    assert owner("2001:db8::1") == owner("2001:db8::ffff") != owner("2001:db8:0:1::1")
    assert [owner(each) for each in ("127.0.0.1", "127.9.9.9", "::1", "10.1.2.3", "::ffff:10.1.2.3", "")] == [None] * 6


def test_fewer_connections_than_wanted_are_told(tmp_path: Path, model_folder: Path) -> None:
    """D-16: the limit of open files is raised as far as the system lets us; the doctor says when that is not enough."""
    lend_model(model_folder, tmp_path / "home")
    doctor = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path / "home"), "doctor", "--json"]
    asked = (
        "import resource as r; from rookery.kernel.http.connection_limit import raise_file_limit; "
        "print(raise_file_limit(1000), *r.getrlimit(r.RLIMIT_NOFILE))"
    )
    limits = "ulimit -Sn 256; ulimit -Hn 600; "

    made = subprocess.run(
        ["/bin/sh", "-c", f'{limits}exec "$0" -c "$1"', sys.executable, asked], capture_output=True, text=True, check=True, timeout=30
    )
    told = subprocess.run(["/bin/sh", "-c", f'{limits}exec "$@"', "sh", *doctor], capture_output=True, text=True, check=False, timeout=30)

    assert made.stdout.split() == ["400", "600", "600"]
    [finding] = [each for each in json.loads(told.stdout) if each["about"] == "connections"]
    assert (finding["grade"], "400" in finding["says"], "1,200" in finding["advice"]) == ("warning", True, True)
