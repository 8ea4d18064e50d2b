"""`make examples`: record the story, and write the examples."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import orjson

from rookery.migrations import migrate
from rookery.reference import examples
from tests.reference.recording.story import record_story

FOLDER = Path(examples.__file__).with_name("examples")


def main() -> None:
    """Write the files; with --check only print which ones would change."""
    arguments = argparse.ArgumentParser(prog="make examples", description=__doc__)
    arguments.add_argument("--check", action="store_true", help="Write nothing; exit 1 if a file would change.")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-") as folder:
        migrate("embedded:", data_dir=Path(folder))
        parts = asyncio.run(record_story(Path(folder)))
    files = {
        FOLDER / f"{name}.json": orjson.dumps(part, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE) for name, part in parts.items()
    }
    existing = {path: path.read_bytes() for path in FOLDER.glob("*.json")}
    changed = sorted(path.name for path in existing.keys() | files.keys() if existing.get(path) != files.get(path))
    if options.check:
        sys.exit(f"files that would change: {', '.join(changed)}" if changed else 0)
    FOLDER.mkdir(exist_ok=True)
    for path in existing.keys() - files.keys():
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
    sys.stdout.write(
        f"{sum(len(part) for part in parts.values())} examples in {len(files)} files; changed: {', '.join(changed) or 'none'}\n"
    )


if __name__ == "__main__":
    main()
