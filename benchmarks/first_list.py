"""
The first list of a client that connects as soon as Rookery is up: `python -m benchmarks.first_list --against FOLDER`.

Ten tool servers need 2 s each before they answer. Clients that list once see those that are in this list. Each round starts Rookery on
an empty data folder; the trees take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import httpx2

from benchmarks.servers import Running, run_server

_SERVERS = 10
_DELAY_S = 2.0
_ODD = Path(__file__).resolve().parents[1] / "tests" / "tools" / "servers" / "odd.py"
_TIMEOUT_S = 60.0


def write_servers(folder: Path) -> None:
    """Write the entries of the slow servers."""
    program = f"import runpy, time; time.sleep({_DELAY_S}); runpy.run_path({str(_ODD)!r}, run_name='__main__')"
    entry = {"command": sys.executable, "args": ["-I", "-S", "-u", "-c", program]}
    entries = {f"slow{number}": entry for number in range(_SERVERS)}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


def list_once(running: Running) -> tuple[float, int]:
    """Connect, list the tools once, and return the seconds that took and the number of slow servers in the list."""
    headers = {"Authorization": f"Bearer {running.api_key}", "Accept": "application/json, text/event-stream"}
    started = time.perf_counter()
    with httpx2.Client(base_url=running.url, headers=headers, timeout=_TIMEOUT_S, trust_env=False) as client:
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "benchmark", "version": "1"}}
        opened = client.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-06-18"}
        client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=session)
        response = client.post("/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, headers=session)
    took_s = time.perf_counter() - started
    names = [str(tool["name"]) for tool in _read_tools(response.text)]
    return took_s, len({name.partition("__")[0] for name in names if name.startswith("slow")})


def _read_tools(body: str) -> list[Mapping[str, object]]:
    data = next((line[5:] for line in body.splitlines() if line.startswith("data:") and '"result"' in line), body)
    return cast("list[Mapping[str, object]]", json.loads(data)["result"]["tools"])


def main() -> None:
    """Print the figures of each tree as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_list", description=__doc__)
    parser.add_argument("--against", type=Path, action="append", default=[], help="the folder of another source tree")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trees: dict[str, Path | None] = {"this": None, **{f"against-{number}": path.resolve() for number, path in enumerate(options.against)}}
    figures: dict[str, list[tuple[float, int]]] = {name: [] for name in trees}
    for _ in range(options.rounds):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory(prefix="rookery-first-list-") as folder:
                write_servers(Path(folder))
                with run_server(Path(folder), tree) as running:
                    figures[name].append(list_once(running))
    print(
        json.dumps(
            {
                name: {"median_s": round(statistics.median(took for took, _ in rounds), 2), "listed": [count for _, count in rounds]}
                for name, rounds in figures.items()
            }
        )
    )


if __name__ == "__main__":
    main()
