"""
Run nginx and Caddy with the configurations of deploy/ in front of a real server, and use them: `make check-deploy` calls it.

Only the addresses on which they listen, the host name and the certificate are replaced. A proxy that is not installed is named.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import cast

from benchmarks.servers import Running, run_server, stop_process
from tests.certificates import write_certificate
from tests.deadlines import HANG_S
from tests.deploy.files import DEPLOY

CLIENT = "127.0.0.2"
"""The address from which requests come. The proxies connect to Rookery from 127.0.0.1."""
CLAIMED = "203.0.113.9"
"""The address that the client claims in a header."""


def free_port() -> int:
    """Return an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return cast("int", listening.getsockname()[1])


@contextmanager
def run_nginx(folder: Path, upstream: int) -> Generator[int]:
    """Run nginx with deploy/nginx.conf; yield its port with TLS."""
    port, plain_port = free_port(), free_port()
    certificate = write_certificate(folder / "certificate.pem")
    text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"listen \[::\]:.*;", "", text).replace("listen 80;", f"listen 127.0.0.1:{plain_port};")
    text = text.replace("listen 443 ", f"listen 127.0.0.1:{port} ").replace("127.0.0.1:8400", f"127.0.0.1:{upstream}")
    text = re.sub(r"/etc/ssl/rookery/\w+\.pem", str(certificate), text)
    (folder / "site.conf").write_text(text, encoding="utf-8")
    places = "".join(f"{name}_temp_path {folder / name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    http = f"access_log off;\n{places}include {folder}/site.conf;\n"
    main = f"daemon off;\npid {folder}/pid;\nerror_log stderr warn;\nevents {{}}\nhttp {{\n{http}}}\n"
    (folder / "nginx.conf").write_text(main, encoding="utf-8")
    with run_proxy(["nginx", "-c", str(folder / "nginx.conf")], folder, port):
        yield port


@contextmanager
def run_caddy(folder: Path, upstream: int) -> Generator[int]:
    """Run Caddy with deploy/Caddyfile, with its own authority for certificates; yield its port with TLS."""
    port = free_port()
    text = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    local = f"admin off\n\tdefault_bind 127.0.0.1\n\thttps_port {port}\n\tauto_https disable_redirects\n\tskip_install_trust\n"
    (folder / "Caddyfile").write_text(text.replace("\tgrace_period", f"\t{local}\tgrace_period", 1), encoding="utf-8")
    variables = {"PUBLIC_HOST": "localhost", "UPSTREAM": f"127.0.0.1:{upstream}", "HOME": str(folder)}
    with run_proxy(["caddy", "run", "--config", str(folder / "Caddyfile"), "--adapter", "caddyfile"], folder, port, variables):
        yield port


@contextmanager
def run_proxy(command: list[str], folder: Path, port: int, variables: dict[str, str] | None = None) -> Generator[None]:
    """Run a proxy until the block ends."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([str(shutil.which(command[0])), *command[1:]], stdout=log, stderr=log, env=variables)
        try:
            deadline = time.monotonic() + HANG_S
            while True:
                try:
                    connect(port).request("GET", "/healthz")
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        sys.exit(f"{command[0]} did not start:\n{(folder / 'log').read_text(encoding='utf-8')}")
                    time.sleep(0.05)
            yield
        finally:
            stop_process(process)


def connect(port: int) -> HTTPSConnection:
    """Return a connection from `CLIENT`, by the name `localhost`. The certificate is not verified."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return HTTPSConnection("localhost", port, timeout=HANG_S, context=context, source_address=(CLIENT, 0))


def send(connection: HTTPConnection, key: str, method: str, path: str, body: object = None) -> HTTPResponse:
    """Send a request that claims another address, and return its response."""
    content = None if body is None else json.dumps(body)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "X-Forwarded-For": CLAIMED}
    connection.request(method, path, content, headers)
    return connection.getresponse()


def wait_for_addresses(log: Path, offset: int, path: str) -> set[str]:
    """Return the addresses in the access log of *path*, whose line is written after the response."""
    deadline = time.monotonic() + HANG_S
    while time.monotonic() < deadline:
        lines = log.read_bytes()[offset:].decode().split("\n")[:-1]
        if addresses := {json.loads(line)["address"] for line in lines if f'"{path}"' in line}:
            return addresses
        time.sleep(0.05)
    return set()


def check(name: str, port: int, running: Running, log: Path) -> None:
    """Use the server through the proxy, and fail on the first thing that is wrong."""
    key = running.api_key

    def require(claim: str, *, holds: bool) -> None:
        if not holds:
            sys.exit(f"{name}: {claim}: this does not hold")

    ready = send(connect(port), key, "GET", "/readyz")
    require("/readyz is answered over TLS", holds=ready.status == 200 and b'"ok"' in ready.read())
    require("HSTS is set", holds=ready.headers["Strict-Transport-Security"] == "max-age=31536000")
    require("/metrics is hidden", holds=send(connect(port), key, "GET", "/metrics").status == 404)

    before = log.stat().st_size
    require("a request is answered", holds=send(connect(port), key, "GET", "/v1/brain/tags").status == 200)
    addresses = wait_for_addresses(log, before, "/v1/brain/tags")
    require(f"the client's address is {CLIENT}, not {addresses}", holds=addresses == {CLIENT})

    session = json.loads(send(connect(port), key, "POST", "/api/agent/sessions", {"agent_type": name, "goal": "Stream"}).read())["session"][
        "id"
    ]
    stream = send(connect(port), key, "GET", f"/api/agent/sessions/{session}/stream")
    send(connect(port), key, "POST", f"/api/agent/sessions/{session}/events", {"type": "note", "message": "streamed at once"})
    while line := stream.readline():
        if b"streamed at once" in line:
            break
    require("an event arrives while its stream is open", holds=line != b"")

    # The answer may come before the body was sent, so the connection may be closed while sending.
    large = connect(port)
    large.putrequest("POST", "/v1/brain/remember/batch")
    large.putheader("Authorization", f"Bearer {key}")
    large.putheader("Content-Type", "application/json")
    large.putheader("Content-Length", str(10 * 1024 * 1024 + 1))
    large.endheaders()
    try:
        for _ in range(10):
            large.send(b" " * 1024 * 1024)
        large.send(b" ")
    except OSError:
        pass
    try:
        status = large.getresponse().status
    except OSError:
        status = 413  # closed by the proxy
    require(f"a body of more than 10 MiB is refused, not {status}", holds=status == 413)
    print(f"used: {name} with TLS, the client's address, streams, limits")


def main() -> None:
    """Try each proxy that is installed."""
    with tempfile.TemporaryDirectory(prefix="rookery-proxies-") as temporary:
        folder = Path(temporary)
        settings = {"access_log": "true", "log_format": "json", "trusted_proxies": "127.0.0.1", "base_url": "https://localhost"}
        with run_server(folder / "data", **settings) as running:
            upstream = int(running.url.rpartition(":")[2])
            for name, run in (("nginx", run_nginx), ("caddy", run_caddy)):
                if shutil.which(name) is None:
                    print(f"not used: {name}, because it is not installed")
                    continue
                place = folder / name
                place.mkdir(mode=0o755)
                with run(place, upstream) as port:
                    check(name, port, running, folder / "data" / "server.log")


if __name__ == "__main__":
    main()
