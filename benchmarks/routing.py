"""
CPU time to find the route of a path with parameters, by Rookery's router and by Starlette's: `python -m benchmarks.routing`.

Measured for every such route of the server, by turns: the median route and the slowest, in microseconds.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from starlette.routing import Match, Route, Router
from starlette.types import Scope

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.responses import respond_not_found
from rookery.kernel.http.routes import PathRouter
from rookery.wiring import build_platform

_ROUNDS = 5
_LOOKUPS = 100


def make_routes() -> list[Route]:
    """Return routes with the paths and methods of the server that have parameters."""
    with tempfile.TemporaryDirectory() as folder:
        table = build_route_table(build_platform(Settings(data_dir=Path(folder))))
    endpoints = [endpoint for endpoint in table.endpoints if "{" in endpoint.path]
    return [Route(endpoint.path, respond_not_found, methods=[endpoint.route.method]) for endpoint in endpoints]


def time_lookups(find: Callable[[Scope], object], scope: Scope) -> float:
    """Return the microseconds of CPU of one look-up."""
    started = time.process_time()
    for _ in range(_LOOKUPS):
        find(scope)
    return (time.process_time() - started) / _LOOKUPS * 1e6


def main() -> None:
    """Measure both routers and print the result."""
    routes = make_routes()
    router = PathRouter(respond_not_found)
    for route in routes:
        router.add(route)
    all_routes = Router(routes).routes

    def find_by_start(scope: Scope) -> object:
        return next(route for match, _, route in router.match(scope) if match is Match.FULL)

    def find_among_all(scope: Scope) -> object:
        return next(route for route in all_routes if route.matches(scope)[0] is Match.FULL)

    times: dict[str, list[float]] = {"rookery": [], "starlette": []}
    for route in routes:
        path, method = route.path_format.replace("{", "").replace("}", ""), min(route.methods or ())
        scope: Scope = {"type": "http", "method": method, "path": path, "root_path": "", "path_params": {}}
        rounds = [(time_lookups(find_by_start, scope), time_lookups(find_among_all, scope)) for _ in range(_ROUNDS)]
        times["rookery"].append(statistics.median(ours for ours, _ in rounds))
        times["starlette"].append(statistics.median(theirs for _, theirs in rounds))
    figures = {name: {"median_us": round(statistics.median(of), 1), "slowest_us": round(max(of), 1)} for name, of in times.items()}
    print(json.dumps({"routes": len(routes), **figures}, indent=2))


if __name__ == "__main__":
    main()
