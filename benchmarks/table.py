"""
The table of README.md, made of the results beside it: `python -m benchmarks.table` writes it, and `--check` fails if it is out of date.

`results` has a file for each benchmark, named for the module, test or target of its command. Its `rows` are lines of the table, its `runs`
measurements, the oldest first. Braces in the figure of a row are paths to values of a run, as in JSON Pointer: `{recall/p50_ms} ms`. The
values are those of the newest run of the row's command that has all of them.

`--record 'python -m benchmarks.start'` runs a benchmark that prints JSON, some only with `--json`, and adds its output with the date, the
machine and the commit. The commit of a run that was not recorded is the one that published it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = "str | int | float | Decimal | list[Json] | dict[str, Json] | None"

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results"
README = FOLDER / "README.md"

GROUPS: Mapping[str, Sequence[str]] = {
    "Memory": ("__main__", "recall_latency", "large_store", "pauses", "vector_libraries", "large_texts", "engine_costs", "maintenance"),
    "Quality of recall": ("recall_quality", "recall_quality.engine_sets", "embedding_models", "peers", "personal_data"),
    "Tools": ("tools", "faults", "first_list", "refused_calls", "tool_search", "tool_catalogue"),
    "Agents": ("agents", "agent_events", "coding_agent_hooks"),
    "Content and deliveries": ("scoring", "content_generation", "jobs", "webhooks", "notifications"),
    "Server": ("install", "commands", "start", "guard", "flood", "metrics", "routing", "reference", "test-clients", "fuzz"),
    "Processes and engines": ("processes", "neighbours", "soak", "test_engine_failures", "test_two_hosts", "engines"),
}
"""The files of results under each heading of the table, in its order."""

NO_GOAL = "–"

_HEAD = """\
# Figures

`python -m benchmarks.table` writes this page from [`results`](results), where each file is named for the module, test or target of its
command. A run there has its date, the commit, the machine, the load of other work, what ran by turns with it, and more values than this
table. A row has the newest run. `make bench` measures the figures of `python -m benchmarks`, the guard, the flood and the built-in tools.
`python -m benchmarks.table --record 'python -m benchmarks.start --rounds 21'` measures again and stores the new run.

- Each benchmark starts its own server, with its own folder and port, and stops it afterwards. Server, client and engines share two cores.
- The machine is slow and its speed varies: within an hour, importing `mcp` took 0.9 to 1.2 s. Compare only figures of one run, and ignore
  differences under 15 %.
- `load.py` sends whole requests over keep-alive connections, and measures each to the last byte of the answer. An unexpected status ends
  the run. No answer comes from the cache of questions. Every tool call includes the check of the key, the validation and its row.
- Memories of benchmarks of speed are sentences of 12 to 20 words (`texts.py`), embedded by the real model.
- frac@10 is the share of the requested memories among the first ten, in percent. Its floor is plain SQLite full text.

"""

_TAIL = """
The output of `benchmarks.large_store`, drawn by `python -m benchmarks.plot figures.json docs/images/growth.svg`:

![How recall, memory and the start grow with the number of memories](../docs/images/growth.svg)
"""

_MAX_LINE = 140


def load_results() -> dict[str, dict[str, Any]]:
    """Return the content of each file of results. Numbers with a fraction are decimals, so that their digits stay as they are."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal) for path in sorted(RESULTS.glob("*.json"))}


def render_page() -> str:
    """Return the text of README.md."""
    return _HEAD + "\n".join(_render_lines(load_results())) + "\n" + _TAIL


def _render_lines(results: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    listed = [name for names in GROUPS.values() for name in names]
    if sorted(listed) != sorted(results):
        raise LookupError(f"results without a group, or groups without results: {sorted(set(listed) ^ set(results))}")
    yield "| What | Figure | Goal | Command |"
    yield "|---|---|---|---|"
    for heading, names in GROUPS.items():
        yield f"| **{heading}** | | | |"
        for name in names:
            for row in results[name]["rows"]:
                cells = (row["what"], render_figure(row, results[name]["runs"]), row["goal"] or NO_GOAL, f"`{row['command']}`")
                yield f"| {' | '.join(cells)} |"


def render_figure(row: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the figure of *row* with the values of the newest run that has them."""
    for run in reversed(runs):
        if run["command"] == row["command"]:
            try:
                return "".join(_render_parts(row["figure"], run["values"]))
            except LookupError:
                continue
    raise LookupError(f"no run of {row['command']} has the values of {row['figure']!r}")


def _render_parts(figure: str, values: Json) -> Iterator[str]:
    """Yield the text outside braces as it is, and the values of the paths in braces."""
    for number, part in enumerate(re.split(r"\{([^}]+)\}", figure)):
        path, _, separator = part.partition("|")
        yield _format(_look_up(values, path), separator) if number % 2 else part


def _look_up(values: Json, path: str) -> Json:
    for name in path.split("/"):
        match values:
            case list():
                values = values[int(name)]
            case dict():
                values = values[name.replace("~1", "/")]
            case _:
                raise LookupError(path)
    return values


def _format(value: Json, separator: str) -> str:
    """Return a number, or the numbers of several runs: with *separator* between them, or as a list in words."""
    if not isinstance(value, list):
        return f"{value:,}" if isinstance(value, int | Decimal) else str(value)
    numbers = [_format(number, "") for number in value]
    if separator:
        return separator.join(numbers)
    return " and ".join(filter(None, (", ".join(numbers[:-1]), numbers[-1])))


def format_json(value: Json, indent: int = 0) -> str:
    """Return *value* as JSON with the digits of its decimals; what fits is on one line."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            items = [(f"{json.dumps(key, ensure_ascii=False)}: ", item) for key, item in value.items()]
            opening, closing = "{}"
        case list():
            items = [("", item) for item in value]
            opening, closing = "[]"
        case _:
            return json.dumps(value, ensure_ascii=False)
    one_line = ", ".join(key + format_json(item) for key, item in items)
    if "\n" not in one_line and len(one_line) + indent < _MAX_LINE:
        return f"{opening}{one_line}{closing}"
    lines = [" " * (indent + 1) + key + format_json(item, indent + 1) for key, item in items]
    return "\n".join([opening, ",\n".join(lines), " " * indent + closing])


def record(command: str) -> Path:
    """Run *command*, which prints JSON, and add its output to its file of results."""
    words = shlex.split(command)
    name = words[words.index("-m") + 1].removeprefix("benchmarks").removeprefix(".") or "__main__"
    path = RESULTS / f"{name}.json"
    results = load_results()[name]
    load = round(os.getloadavg()[0], 1)
    run = [sys.executable if word == "python" else word for word in words]
    output = subprocess.run(run, check=True, stdout=subprocess.PIPE, text=True).stdout
    try:
        values, _ = json.JSONDecoder(parse_float=Decimal).raw_decode(output.lstrip())
    except json.JSONDecodeError as error:
        raise SystemExit(f"{command} prints no JSON: add its figures to {path.name} by hand\n{output}") from error
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=FOLDER, check=True, stdout=subprocess.PIPE, text=True)
    results["runs"].append(
        {
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit.stdout.strip(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "load": str(load),
            "command": command.replace(" --json", ""),
            "values": values,
        }
    )
    path.write_text(format_json(results) + "\n", encoding="utf-8")
    return path


def main() -> int:
    """Write README.md, or compare it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if README.md is out of date")
    parser.add_argument("--record", metavar="COMMAND", help="run this benchmark first, and add the JSON that it prints to its results")
    options = parser.parse_args()
    if options.record:
        print(record(options.record))
    page = render_page()
    if options.check:
        if README.read_text(encoding="utf-8") != page:
            print("benchmarks/README.md is out of date: run `python -m benchmarks.table`", file=sys.stderr)
            return 1
        return 0
    README.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
