"""
Compare several server processes on PostgreSQL and Valkey with one embedded process: `python -m benchmarks.processes`.

Each set has the same memories. The sets with PostgreSQL keep records, vectors (pgvector) and full text in a database of their own on one
server with fsync, and count rate limits in one Valkey. With `--sets opensearch`, OpenSearch has the full text of two processes (`mvn` and a
JDK 21 are needed). All sets are up at once and are measured by turns; the others are idle meanwhile. Clients and engines share the machine.

Measured at one client and at `--clients`: remember, a hybrid recall of a new question, and tools/call of the built-in tool `get`. At one
client also the routes that differ by one hop: GET of a memory, the same with a key that has a limit, and recall by words and by meaning. A
hop costs what such a route takes longer than in the embedded set. CPU is that of all processes of Rookery, and of the engines, for a
request; for remember until the memories are indexed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import psutil
import psycopg
from rich.console import Console
from rich.table import Table

from benchmarks.load import Connection, Timings, measure
from benchmarks.servers import Running, run_server
from benchmarks.texts import TYPES, questions, texts
from tests.postgres import DURABLE_OPTIONS, create_database, start_postgres
from tests.search_servers import make_data_folder, run_search_node
from tests.valkey import run_valkey

Request = tuple[str, str, Mapping[str, object] | None]

_SECRET_KEY = "only of this benchmark: 5e0f1c7a9d"  # noqa: S105 - of stores that are deleted at the end
_DURABLE = {**DURABLE_OPTIONS, "autovacuum": "on", "shared_buffers": "256MB"}
_WORKERS = {"embedded": 1, "postgres-1": 1, "postgres-2": 2, "postgres-4": 4, "opensearch": 2}
_DEFAULT_SETS = ("embedded", "postgres-1", "postgres-2", "postgres-4")
_ROUTES = ("remember", "recall", "tools/call")
_HOP_ROUTES = ("get", "get, limited key", "recall by words", "recall by meaning")
_FILL_CLIENTS = 8
_INDEX_DEADLINE_S = 600.0
_WARM_CONNECTIONS = 24
"""New connections at once, so that each process gets some of them, checks the keys and loads the embedding model."""


@dataclass
class Figures:
    """The requests of one route at one number of clients, of all rounds."""

    each_ms: list[float] = field(default_factory=list[float])
    took_s: float = 0.0
    sent: int = 0
    """All requests whose CPU is counted, with those before the timed ones."""
    cpu_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    busiest_shares: list[float] = field(default_factory=list[float])
    """The share of the busiest server process in the CPU of all, of each round."""

    def add(self, timed: Timings, *, warm: int) -> None:
        """Add the requests of a round, which *warm* others preceded."""
        self.each_ms += timed.each_ms
        self.sent += len(timed.each_ms) + warm
        self.took_s += timed.took_s

    def as_json(self) -> dict[str, object]:
        """Return rate, percentiles and milliseconds of CPU per request."""
        return {
            **Timings(each_ms=self.each_ms, took_s=self.took_s).as_json(),
            "cpu_ms": {name: round(seconds / self.sent * 1000, 2) for name, seconds in self.cpu_s.items()},
            "busiest_process": round(statistics.median(self.busiest_shares), 2),
        }


class EngineSet:
    """A running server with its engines, and the requests that are sent to it."""

    def __init__(self, name: str, running: Running, engines: Mapping[str, int]) -> None:
        self.name = name
        self.running = running
        self.figures: defaultdict[tuple[str, int], Figures] = defaultdict(Figures)
        self._engines = engines
        self._numbers = count()
        self._memory_id = ""
        self._limited_key = ""

    async def prepare(self) -> None:
        """Create a key with a limit, choose a memory, and let each process load its model and check the keys."""
        connection = Connection(self.running.url, self.running.api_key)
        body = {"name": "limited", "rate_limit_tier": "pro", "scopes": ["brain:read"]}
        status, response = await connection.send("POST", "/api/v1/api-keys", body)
        assert status == 201, response
        self._limited_key = json.loads(response)["plaintext_key"]
        status, response = await connection.send("GET", "/v1/brain/memories?per_page=1")
        assert status == 200, response
        self._memory_id = json.loads(response)["data"][0]["id"]
        await connection.close()
        for _ in range(_WORKERS[self.name]):
            await self._send("recall", requests=_WARM_CONNECTIONS, clients=_WARM_CONNECTIONS)
            await self._send("get, limited key", requests=_WARM_CONNECTIONS * 4, clients=_WARM_CONNECTIONS)

    async def measure(self, route: str, *, requests: int, clients: int) -> None:
        """Send *requests* and add them to the figures."""
        before = self._read_cpu()
        timed = await self._send(route, requests=requests, clients=clients)
        if route == "remember":
            await wait_until_indexed(self.running)
        after = self._read_cpu()
        figures = self.figures[route, clients]
        figures.add(timed, warm=clients)
        spent = {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}
        of_processes = [seconds for name, seconds in spent.items() if name.startswith("process ")]
        figures.cpu_s["Rookery"] += sum(of_processes)
        for engine in self._engines:
            figures.cpu_s[engine] += spent[engine]
        figures.busiest_shares.append(max(of_processes) / (sum(of_processes) or 1.0))

    async def _send(self, route: str, *, requests: int, clients: int) -> Timings:
        numbers = list(islice(self._numbers, requests + clients))
        texts_of_route = _iter_texts(route, numbers[0])
        prepared = [self._build(route, text) for text in islice(texts_of_route, requests + clients)]
        key = self._limited_key if route == "get, limited key" else self.running.api_key
        return await measure(
            self.running.url,
            key,
            lambda number: prepared[number + clients],
            count=requests,
            clients=clients,
            expect=201 if route == "remember" else 200,
            warm=clients,
        )

    def _build(self, route: str, text: str) -> Request:
        if route == "remember":
            return "POST", "/v1/brain/remember", {"content": text, "type": TYPES[len(text) % len(TYPES)]}
        if route == "tools/call":
            body = {"server": "brain", "tool": "get", "arguments": {"id": self._memory_id}}
            return "POST", "/api/v1/mcp/tools/call", body
        if route.startswith("get"):
            return "GET", f"/v1/brain/memories/{self._memory_id}", None
        mode = {"recall": "hybrid", "recall by words": "keyword", "recall by meaning": "semantic"}[route]
        return "POST", "/v1/brain/recall", {"query": text, "mode": mode, "top_k": 5}

    def _read_cpu(self) -> dict[str, float]:
        """Return the seconds of CPU of each process of the server and of each engine."""
        server = psutil.Process(self.running.pid)
        result = {f"process {process.pid}": _cpu_of(process) for process in (server, *server.children())}
        for engine, pid in self._engines.items():
            main = psutil.Process(pid)
            result[engine] = main.cpu_times().children_user + main.cpu_times().children_system
            result[engine] += sum(_cpu_of(process) for process in (main, *main.children(recursive=True)))
        return result


def _cpu_of(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return times.user + times.system


def _iter_texts(route: str, first: int) -> Iterator[str]:
    """Yield texts or questions that no set has seen, the same in each set."""
    source = texts(seed=first) if route == "remember" else questions(seed=first)
    return (f"{text} Reference {first + number}." for number, text in enumerate(source))


async def wait_until_indexed(running: Running) -> None:
    """Wait until no memory waits for its vector."""
    connection = Connection(running.url, running.api_key)
    deadline = time.monotonic() + _INDEX_DEADLINE_S
    while True:
        status, body = await connection.send("GET", "/v1/brain/memories?per_page=1&state=pending_embed")
        assert status == 200, body
        if json.loads(body)["meta"]["total"] == 0:
            break
        if time.monotonic() > deadline:
            raise TimeoutError
        await asyncio.sleep(0.1)
    await connection.close()


async def fill(running: Running, memories: int) -> None:
    """Store *memories* and wait until they are indexed."""
    contents = list(islice(texts(), memories))

    def build(number: int) -> Request:
        return "POST", "/v1/brain/remember", {"content": contents[number], "type": TYPES[number % len(TYPES)]}

    await measure(running.url, running.api_key, build, count=memories, clients=_FILL_CLIENTS, expect=201, warm=0)
    await wait_until_indexed(running)


class Engines:
    """The engines of all sets, started when a set needs them."""

    def __init__(self, folder: Path, stack: ExitStack, names: Sequence[str], memories: int) -> None:
        self._folder = folder
        self._stack = stack
        self._memories = memories
        self._pids = dict[str, int]()
        self._server = self._valkey = self._texts = ""
        if any(name != "embedded" for name in names):
            self._start()
        if "opensearch" in names:
            node = stack.enter_context(run_search_node("opensearch", stack.enter_context(make_data_folder())))
            self._texts = f"opensearch://{urlsplit(node.url).netloc}/rookery-memories"
            self._node_pid = node.process.pid

    def _start(self) -> None:
        directory = self._folder / "postgres"
        directory.mkdir()
        self._server = self._stack.enter_context(start_postgres(directory, _DURABLE))
        valkey = self._stack.enter_context(run_valkey(self._folder, options=("--appendonly", "no")))
        self._valkey = valkey.address().rpartition("/")[0]
        postmaster = (directory / "data" / "postmaster.pid").read_text(encoding="ascii").split()[0]
        self._pids = {"PostgreSQL": int(postmaster), "Valkey": valkey.process.pid}

    def open_set(self, name: str) -> EngineSet:
        """Start the server of a set and fill it. The second and further sets with PostgreSQL copy the database of the first."""
        folder = self._folder / name
        settings = {"secret_key": _SECRET_KEY, "min_free_disk_mb": "0", "log_level": "warning"}
        if name == "embedded":
            running = self._stack.enter_context(run_server(folder, **settings))
            asyncio.run(fill(running, self._memories))
            return EngineSet(name, running, {})
        number = list(_WORKERS).index(name)
        filled = self._folder / "filled"
        database = f"{self._server}/{name}"
        url = {"database_url": database, "vectors": database, "texts": database}
        pids = dict(self._pids)
        if name == "opensearch":
            create_database(self._server, name)
            url["texts"], pids["OpenSearch"] = self._texts, self._node_pid
        else:
            if not filled.exists():
                first = create_database(self._server, "filled")
                engines = {"database_url": first, "vectors": first, "texts": first, "counters": f"{self._valkey}/0"}
                with run_server(filled, **settings, **engines) as running:
                    asyncio.run(fill(running, self._memories))
            create_database(self._server, name, template="filled")
            folder.mkdir()
            shutil.copy(filled / "keys.json", folder)
        settings |= {**url, "counters": f"{self._valkey}/{number}", "workers": str(_WORKERS[name])}
        running = self._stack.enter_context(run_server(folder, **settings))
        if name == "opensearch":
            asyncio.run(fill(running, self._memories))
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")  # a new table has no statistics until autovacuum has run
        return EngineSet(name, running, pids)


async def measure_sets(sets: Sequence[EngineSet], *, requests: int, clients: int, rounds: int) -> None:
    """Measure all sets by turns, each round in the other order."""
    for engine_set in sets:
        await engine_set.prepare()
    per_round = max(1, requests // rounds)
    for number in range(rounds):
        for engine_set in sets if number % 2 == 0 else reversed(sets):
            for route in (*_ROUTES, *_HOP_ROUTES):
                await engine_set.measure(route, requests=per_round, clients=1)
            for route in _ROUTES:
                await engine_set.measure(route, requests=per_round, clients=clients)


def compare_hops(sets: Sequence[EngineSet]) -> dict[str, dict[str, float]]:
    """Return for each set the milliseconds that a hop adds to the median of a request at one client, compared with the embedded set."""
    medians = {each.name: {route: statistics.median(each.figures[route, 1].each_ms) for route in _HOP_ROUTES} for each in sets}
    embedded = medians.get("embedded")
    if embedded is None:
        return {}
    result = dict[str, dict[str, float]]()
    for name, routes in medians.items():
        more = {route: routes[route] - embedded[route] for route in _HOP_ROUTES}
        result[name] = {
            "record store (GET of a memory)": round(more["get"], 2),
            "counter (a limited key, beyond that)": round(more["get, limited key"] - more["get"], 2),
            "text search and records (recall by words)": round(more["recall by words"], 2),
            "vector search and records (recall by meaning)": round(more["recall by meaning"], 2),
        }
    return result


def _print_table(sets: Sequence[EngineSet], clients: int) -> None:
    table = Table("route", "clients", *(each.name for each in sets), title="p50 / p99 ms, requests a second; CPU ms of a request")
    for at_once in (1, clients):
        for route in (*_ROUTES, *_HOP_ROUTES) if at_once == 1 else _ROUTES:
            cells = list[str]()
            for each in sets:
                figures = each.figures[route, at_once].as_json()
                cpu = " + ".join(f"{name} {ms}" for name, ms in cast("dict[str, float]", figures["cpu_ms"]).items())
                cells.append(f"{figures['p50_ms']:.1f} / {figures['p99_ms']:.1f}, {figures['per_s']:.0f}/s; {cpu}")
            table.add_row(route, str(at_once), *cells)
    Console(width=200).print(table)


_TITLES = {
    "embedded": "embedded, 1 process",
    "postgres-1": "PostgreSQL, 1 process",
    "postgres-2": "PostgreSQL, 2 processes",
    "postgres-4": "PostgreSQL, 4 processes",
    "opensearch": "OpenSearch for texts, 2 processes",
}


def render_markdown(result: Mapping[str, Any]) -> str:
    """Return the tables for the JSON that this benchmark prints."""
    sets: Mapping[str, Mapping[str, Any]] = result["sets"]
    header = ["", *(_TITLES[name] for name in sets)]
    routes: list[str] = list(next(iter(sets.values())))

    def name(route: str) -> str:
        title, _, clients = route.rpartition(", ")
        return f"{title}, {clients} client{'s' if clients != '1' else ''}"

    times = [
        [
            name(route),
            *(
                f"{figures[route]['p50_ms']:.1f} / {figures[route]['p99_ms']:.0f}, {figures[route]['per_s']:,.0f}/s"
                for figures in sets.values()
            ),
        ]
        for route in routes
    ]
    cpu = [
        [name(route), *(" + ".join(f"{ms:.1f}" for ms in figures[route]["cpu_ms"].values()) for figures in sets.values())]
        for route in routes
        if route.rpartition(", ")[0] in _ROUTES
    ]
    parts = ["p50 / p99 in ms, and requests a second:", "", *_render_table(header, times)]
    engines = max((figures[routes[0]]["cpu_ms"] for figures in sets.values()), key=len)
    parts += ["", f"CPU of a request in ms ({' + '.join(engines)}):", "", *_render_table(header, cpu)]
    hops: Mapping[str, Mapping[str, float]] = result["hops_ms"]
    if len(hops) > 1:
        rows = [[hop, *(f"{figures[hop]:.1f}" for name, figures in hops.items() if name != "embedded")] for hop in hops["embedded"]]
        parts += ["", "Milliseconds that a hop adds to the p50 at one client:", ""]
        parts += _render_table(["", *(_TITLES[name] for name in hops if name != "embedded")], rows)
    return "\n".join(parts)


def _render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.processes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300, help="of each route, each number of clients and each set, in all rounds")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--memories", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sets", nargs="+", choices=list(_WORKERS), default=list(_DEFAULT_SETS))
    parser.add_argument("--markdown", action="store_true", help="print the JSON as tables after it, in Markdown")
    parser.add_argument(
        "--render", type=Path, metavar="FILE", help="measure nothing, and print these tables for the JSON of an earlier run"
    )
    options = parser.parse_args()
    if options.render:
        earlier, _ = json.JSONDecoder().raw_decode(options.render.read_text(encoding="utf-8"))
        print(render_markdown(earlier))
        return
    started, load = time.perf_counter(), os.getloadavg()
    with tempfile.TemporaryDirectory(prefix="rookery-processes-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL does not run as root, and its user must reach its folder
        engines = Engines(folder, stack, options.sets, options.memories)
        sets = [engines.open_set(each) for each in options.sets]
        asyncio.run(measure_sets(sets, requests=options.requests, clients=options.clients, rounds=options.rounds))
        result = {
            "memories": options.memories,
            "sets": {
                each.name: {f"{route}, {at_once}": figures.as_json() for (route, at_once), figures in each.figures.items()} for each in sets
            },
            "hops_ms": compare_hops(sets),
            "load_average": {"before": load, "after": os.getloadavg()},
            "took_s": round(time.perf_counter() - started),
        }
        print(json.dumps(result, indent=1))
        if options.markdown:
            print(render_markdown(result))
        else:
            _print_table(sets, options.clients)


if __name__ == "__main__":
    main()
