"""
Time to serve the OpenAPI document: `python -m benchmarks.reference`.

On a new server: the first request, which builds the document, then 2,000 more by one client, without compression and with gzip.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path

from benchmarks.load import measure
from benchmarks.servers import run_server

_PATH = "/docs/openapi.json"


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference", description=__doc__)
    parser.add_argument("--asks", type=int, default=2000)
    options = parser.parse_args()
    figures: dict[str, object] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="rookery-reference-") as name, run_server(Path(name)) as running:
        for case, count, coding in (("first", 1, "gzip"), ("gzip", options.asks, "gzip"), ("plain", options.asks, "identity")):
            timed = asyncio.run(
                measure(
                    running.url,
                    running.api_key,
                    lambda _: ("GET", _PATH, None),
                    count=count,
                    warm=0,
                    headers={"Accept-Encoding": coding},
                )
            )
            figures[case] = timed.as_json()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
