"""
Write `generated` and `operations` of `src/rookery_client` from the declarations of the operations: `make client`.

`--check` writes nothing, and fails if a file would change.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from distribution.client.operations import GROUPS, list_methods
from distribution.client.source import write_errors, write_group, write_groups, write_inputs, write_models
from distribution.client.types import Schema, TypeWriter
from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "src" / "rookery_client"
ERRORS = ROOT / "docs" / "reference" / "errors.md"

_FOLDERS = ("generated", "operations")


def write_client() -> dict[str, str]:
    """Return the source of each generated module, by its path in the package."""
    document = load_document()
    components = cast("Mapping[str, Schema]", cast("Schema", document["components"])["schemas"])
    inputs, results = TypeWriter(components, is_input=True), TypeWriter(components, is_input=False)
    methods = list_methods(document)
    files = dict[str, str]()
    for group in dict.fromkeys(GROUPS.values()):
        files[f"operations/{group}.py"] = write_group(group, [method for method in methods if method.group == group], inputs, results)
    files["operations/groups.py"] = write_groups(list(dict.fromkeys(GROUPS.values())))
    files["generated/models.py"] = write_models(components, results.used)
    files["generated/inputs.py"] = write_inputs(components, inputs.used)
    files["generated/errors.py"] = write_errors(_read_errors())
    for folder in _FOLDERS:
        files[f"{folder}/__init__.py"] = '"""Modules that `make client` writes."""\n'
    return files


def load_document() -> Schema:
    """Return the OpenAPI document of an application that is not started."""
    with tempfile.TemporaryDirectory() as folder:
        endpoints = build_route_table(build_platform(Settings(data_dir=Path(folder)))).endpoints
        return build_document(endpoints, public_url=lambda _: "http://127.0.0.1:8400")


def _read_errors() -> list[tuple[str, str, str]]:
    """Return code, status and meaning of each error that has a status. A test compares that page with the error classes of the server."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*?) \|", ERRORS.read_text(encoding="utf-8"), re.MULTILINE)
    return [(code, status, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", meaning)) for code, status, meaning in rows]


def main() -> int:
    """Write the modules; return 1 if `--check` finds one that would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file would change")
    options = parser.parse_args()
    files = write_client()
    existing = {
        str(path.relative_to(FOLDER)): path.read_text(encoding="utf-8") for folder in _FOLDERS for path in (FOLDER / folder).glob("*.py")
    }
    changed = sorted(name for name in files.keys() | existing.keys() if files.get(name) != existing.get(name))
    for name in changed:
        print(f"{name} is out of date: run `make client`." if options.check else f"wrote {name}")
        if not options.check:
            (FOLDER / name).write_text(files[name], encoding="utf-8") if name in files else (FOLDER / name).unlink()
    return int(options.check and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
