"""
Tool calls through Rookery, mcpo and ContextForge in one run: `python -m benchmarks.tools --peers FOLDER`.

Each serves the same two tool servers: mcp-server-time (structured output, on the SDK) and server-everything's echo (Node, so
fast that the gateway dominates). All run at the same time and take turns, so that a slow minute of the machine affects all. ContextForge
starts no server itself: its bridge does, with one more HTTP hop. A bare client over the pipes is the lower bound.

FOLDER has the environments of the peers, which the first run installs from PyPI. Without --peers only Rookery is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.error import URLError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.table import Table

from benchmarks.baseline import time_calls
from benchmarks.load import Timings, measure
from benchmarks.servers import run_server, stop_process
from tests import real_servers

_PEERS = {
    # Plain installs of mcpo are broken with the SDK's second version, and with newer FastAPIs.
    "mcpo": ["mcpo==0.0.20", "mcp<2", "fastapi==0.128.0"],
    "contextforge": ["mcp-contextforge-gateway==1.0.7"],
}
_START_S = 120.0
_SEQUENTIAL, _PARALLEL, _CLIENTS = 200, 1000, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """One way to call the two tools."""

    name: str
    url: str
    key: str
    requests: Mapping[str, tuple[str, Mapping[str, object]]]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """A tool server and the call of its tool."""

    name: str
    command: str
    args: tuple[str, ...]
    tool: str
    arguments: Mapping[str, object]

    @property
    def line(self) -> str:
        """The command in one line."""
        return " ".join((self.command, *self.args))


def _upstreams() -> list[Upstream]:
    clock, everything = real_servers.clock(), real_servers.everything()
    return [
        Upstream(
            name="time",
            command=str(clock["command"]),
            args=tuple(cast("list[str]", clock["args"])),
            tool="get_current_time",
            arguments={"timezone": "UTC"},
        ),
        Upstream(
            name="everything",
            command=str(everything["command"]),
            args=tuple(cast("list[str]", everything["args"])),
            tool="echo",
            arguments={"message": "hi"},
        ),
    ]


@contextmanager
def _program(command: list[str], log: Path, **variables: str) -> Generator[None]:
    """Run a program until the block ends, then stop it by its process id."""
    with log.open("ab") as log_file:
        process = subprocess.Popen(command, env=os.environ | variables, stdout=log_file, stderr=log_file)
        try:
            yield
        finally:
            stop_process(process)


def _port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_up(url: str) -> None:
    """Wait until *url* returns any status."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urlopen(url, timeout=2):  # noqa: S310 - our own address
                return
        except URLError as error:
            if hasattr(error, "status"):
                return
            time.sleep(0.1)
    raise TimeoutError(url)


def _install_peer(folder: Path, peer: str) -> Path:
    """Return the folder of a peer's programs, after installing it there once."""
    home = folder / peer
    if not (home / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "pip"), "install", "--quiet", *_PEERS[peer]], check=True)
    return home / "bin"


@contextmanager
def _rookery(folder: Path, upstreams: list[Upstream]) -> Generator[Gateway]:
    folder.mkdir()
    entries = {upstream.name: {"command": upstream.command, "args": list(upstream.args), "lifecycle": "eager"} for upstream in upstreams}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    requests = {
        upstream.name: ("/api/v1/mcp/tools/call", {"server": upstream.name, "tool": upstream.tool, "arguments": upstream.arguments})
        for upstream in upstreams
    }
    with run_server(folder) as running:
        yield Gateway(name="Rookery", url=running.url, key=running.api_key, requests=requests)


@contextmanager
def _mcpo(folder: Path, upstreams: list[Upstream], programs: Path) -> Generator[Gateway]:
    port, key = _port(), secrets.token_hex(16)
    config = folder / "mcpo.json"
    entries = {upstream.name: {"command": upstream.command, "args": list(upstream.args)} for upstream in upstreams}
    config.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    command = [str(programs / "mcpo"), "--host", "127.0.0.1", "--port", str(port), "--api-key", key, "--config", str(config)]
    with _program(command, folder / "mcpo.log", LOG_LEVEL="WARNING"):
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(f"{url}/openapi.json")
        requests = {upstream.name: (f"/{upstream.name}/{upstream.tool}", upstream.arguments) for upstream in upstreams}
        yield Gateway(name="mcpo", url=url, key=key, requests=requests)


@contextmanager
def _contextforge(folder: Path, upstreams: list[Upstream], programs: Path) -> Generator[Gateway]:
    port, secret = _port(), secrets.token_hex(32)
    password = f"Aa1!{secrets.token_hex(16)}"
    python = str(programs / "python")
    variables = {
        "ENVIRONMENT": "development",
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "DATABASE_URL": f"sqlite:///{folder / 'contextforge.db'}",
        "CACHE_TYPE": "memory",
        "LOG_LEVEL": "CRITICAL",
        "JWT_SECRET_KEY": secret,
        "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32),
        "PLATFORM_ADMIN_EMAIL": "admin@example.com",
        "PLATFORM_ADMIN_PASSWORD": password,
        "BASIC_AUTH_PASSWORD": password,
        "DEFAULT_USER_PASSWORD": password,
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "true",
        "PLUGINS_ENABLED": "false",
        "SSRF_ALLOW_LOCALHOST": "true",
        "SSRF_ALLOW_PRIVATE_NETWORKS": "true",
        "RATE_LIMITING_ENABLED": "false",
        "RATE_LIMIT_LOCKOUT_ENABLED": "false",
    }
    with ExitStack() as stack:
        stack.enter_context(_program([str(programs / "mcpgateway-server")], folder / "contextforge.log", **variables))
        url = f"http://127.0.0.1:{port}"
        _wait_until_up(f"{url}/health")
        token_command = [python, "-m", "mcpgateway.utils.create_jwt_token", "--username", "admin@example.com", "--exp", "10080"]
        process = subprocess.run(
            [*token_command, "--secret", secret], env=os.environ | variables, capture_output=True, check=True, text=True, timeout=_START_S
        )
        token = process.stdout.split()[-1]
        requests: dict[str, tuple[str, Mapping[str, object]]] = {}
        for upstream in upstreams:
            bridge = _port()
            arguments = ["-m", "mcpgateway.translate", "--stdio", upstream.line, "--expose-streamable-http", "--port", str(bridge)]
            stack.enter_context(_program([python, *arguments, "--logLevel", "error"], folder / f"bridge-{upstream.name}.log", **variables))
            _wait_until_up(f"http://127.0.0.1:{bridge}/healthz")
            _register(url, token, {"name": upstream.name, "url": f"http://127.0.0.1:{bridge}/mcp", "transport": "STREAMABLEHTTP"})
            params = {"name": f"{upstream.name}-{upstream.tool.replace('_', '-')}", "arguments": upstream.arguments}
            requests[upstream.name] = ("/rpc", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        # With a session id it reuses its upstream session; without one it opens a session for each call.
        yield Gateway(name="ContextForge", url=url, key=token, requests=requests, headers={"mcp-session-id": "benchmark"})


def _register(url: str, token: str, gateway: Mapping[str, object]) -> None:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = Request(f"{url}/gateways", json.dumps(gateway).encode(), headers, method="POST")  # noqa: S310 - our own address
    with urlopen(request, timeout=_START_S):  # noqa: S310 - as above
        return


async def _round(gateway: Gateway, upstream: str, *, count: int, clients: int) -> Timings:
    path, body = gateway.requests[upstream]
    return await measure(gateway.url, gateway.key, lambda _: ("POST", path, body), count=count, clients=clients, headers=gateway.headers)


def run(gateways: list[Gateway], upstreams: list[Upstream], rounds: int) -> dict[str, dict[str, float]]:
    """Run all gateways in turns and return the medians of their rounds."""
    timings: dict[str, list[tuple[Timings, Timings]]] = {}
    floor = list[Timings]()
    for _ in range(rounds):
        floor.append(time_calls(_SEQUENTIAL))
        for upstream in upstreams:
            for gateway in gateways:
                one = asyncio.run(_round(gateway, upstream.name, count=_SEQUENTIAL, clients=1))
                many = asyncio.run(_round(gateway, upstream.name, count=_PARALLEL, clients=_CLIENTS))
                timings.setdefault(f"{gateway.name}, {upstream.name}", []).append((one, many))
    figures = {"bare pipe, time": {"p50_ms": statistics.median(timings_.p50 for timings_ in floor)}}
    for name, pairs in timings.items():
        figures[name] = {
            "p50_ms": statistics.median(one.p50 for one, _ in pairs),
            "p99_ms": statistics.median(one.percentile(0.99) for one, _ in pairs),
            "per_s_at_16": statistics.median(many.rate for _, many in pairs),
            "p99_ms_at_16": statistics.median(many.percentile(0.99) for _, many in pairs),
        }
    return figures


def main() -> None:
    """Start all gateways, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder of the peers' environments")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    upstreams = _upstreams()
    with tempfile.TemporaryDirectory() as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        gateways = [stack.enter_context(_rookery(folder / "rookery", upstreams))]
        if options.peers is not None:
            peers = options.peers.absolute()
            gateways.append(stack.enter_context(_mcpo(folder, upstreams, _install_peer(peers, "mcpo"))))
            gateways.append(stack.enter_context(_contextforge(folder, upstreams, _install_peer(peers, "contextforge"))))
        before = os.getloadavg()[0]
        figures = run(gateways, upstreams, options.rounds)
    if options.json:
        print(json.dumps({"load_before": before, "figures": figures}, indent=2))
        return
    table = Table("", "p50 ms", "p99 ms", "16: a second", "16: p99 ms", title=f"load before: {before:.1f}")
    for name, gateway_figures in figures.items():
        table.add_row(
            name,
            *(
                f"{gateway_figures[key]:,.2f}" if key in gateway_figures else ""
                for key in ("p50_ms", "p99_ms", "per_s_at_16", "p99_ms_at_16")
            ),
        )
    Console().print(table)


if __name__ == "__main__":
    main()
