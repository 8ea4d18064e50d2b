"""
Build the wheel of the client alone, `rookery-client`, for machines that have no server: `make dist`.

Name, licence and dependencies come from this project's pyproject.toml. The same sources give the same bytes.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import cast

from distribution.backend import ROOT, run_hook

DEPENDENCIES = ("httpx2", "pydantic")


def build_client(out: Path) -> Path:
    """
    Build the wheel into *out* and return its path.

    Raises:
        SystemExit: The build backend failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rookery-client-build-") as temporary:
        copy, made = Path(temporary) / "client", Path(temporary) / "made"
        shutil.copytree(ROOT / "src" / "rookery_client", copy / "src" / "rookery_client", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(ROOT / "LICENSE", copy / "LICENSE")
        (copy / "pyproject.toml").write_text(write_pyproject(), encoding="utf-8")
        made.mkdir()
        run_hook("build_wheel", copy, made)
        (wheel,) = made.iterdir()
        shutil.copyfile(wheel, out / wheel.name)
    return out / wheel.name


def write_pyproject() -> str:
    """Return the pyproject.toml of the client."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = cast("dict[str, object]", whole["project"])
    dependencies = [text for text in cast("list[str]", project["dependencies"]) if text.startswith(DEPENDENCIES) and "-core" not in text]
    fields = {
        "name": "rookery-client",
        "version": project["version"],
        "description": "The typed Python client of Rookery.",
        "requires-python": project["requires-python"],
        "license": project["license"],
        "license-files": project["license-files"],
        "dependencies": dependencies,
    }
    build_system = cast("dict[str, object]", whole["build-system"])
    tables = {"build-system": build_system, "project": fields, "tool.uv.build-backend": {"module-name": "rookery_client"}}
    # A JSON string or list of strings is also a TOML one.
    return "\n".join(
        line for name, table in tables.items() for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()))
    )
