"""`make examples`: play the story, and write what was said."""

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
    """Write the files; with --check only say which would be others."""
    arguments = argparse.ArgumentParser(prog="make examples", description=__doc__)
    arguments.add_argument("--check", action="store_true", help="Write nothing; exit 1 if a file would be another one.")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-") as folder:
        migrate("embedded:", data_dir=Path(folder))
        parts = asyncio.run(record_story(Path(folder)))
    files = {
        FOLDER / f"{name}.json": orjson.dumps(each, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE) for name, each in parts.items()
    }
    there = {path: path.read_bytes() for path in FOLDER.glob("*.json")}
    others = sorted(path.name for path in there.keys() | files.keys() if there.get(path) != files.get(path))
    if chosen.check:
        sys.exit(f"other than what is there: {', '.join(others)}" if others else 0)
    FOLDER.mkdir(exist_ok=True)
    for path in there.keys() - files.keys():
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)
    sys.stdout.write(
        f"{sum(len(each) for each in parts.values())} examples in {len(files)} files; changed: {', '.join(others) or 'none'}\n"
    )


if __name__ == "__main__":
    main()
