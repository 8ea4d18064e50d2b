"""The syntax trees of the repository's modules, for tests of its rules."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable
from functools import cache
from pathlib import Path


@cache
def parse_module(path: Path) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def parse_modules(paths: Iterable[Path]) -> tuple[tuple[Path, ast.Module], ...]:
    """Return each module with its syntax tree. Garbage collection would take three quarters of the time, so it leaves the trees out."""
    gc.disable()
    try:
        trees = tuple((path, parse_module(path)) for path in paths)
        gc.freeze()
    finally:
        gc.enable()
    return trees
