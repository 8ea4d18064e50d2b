"""
Writes docs/reference/engines.md: which contract test runs on which engine, and how. `make engine-table` runs it.

The page is made from the test classes that pytest collects, and from the marks `needs` of their tests. It needs no server.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import cast

import pytest

from tests.engines.engine_contracts import EngineContract, HowTested

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "engines.md"

_SIGNS = {HowTested.IN_PROCESS: "●", HowTested.REAL_SERVER: "●", HowTested.STAND_IN: "◐"}
_NOT_TESTED = "–"

_HEAD = """# Engines and how they are tested

An engine is an implementation of a port, chosen by an address in the [settings](settings.md). One contract, a suite of tests, runs against
every engine of a port. This page is written from these suites by `make engine-table`, and a test compares both.

| Sign | Meaning |
|---|---|
| ● | tested on the engine itself: in the process, or on a real server that the tests start |
| ◐ | tested on a stand-in, which speaks the protocol of the engine and checks each request |
| – | not tested, because the engine lacks the feature, or its stand-in cannot show it |

An engine declares what it lacks. Memory then works without it, as the port describes.
"""


def find_contracts() -> dict[str, list[type[EngineContract]]]:
    """Return the test classes of engines by port, in the order of their names."""
    classes = set[type[EngineContract]]()
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for value in vars(importlib.import_module(f"tests.engines.{path.stem}")).values():
            if inspect.isclass(value) and issubclass(value, EngineContract) and value.__name__.startswith("Test") and value.engine:
                classes.add(value)
    contracts = dict[str, list[type[EngineContract]]]()
    for contract in sorted(classes, key=lambda one: (one.port, one.tested_on is not HowTested.IN_PROCESS, one.engine)):
        contracts.setdefault(contract.port, []).append(contract)
    return contracts


def render() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for port, contracts in find_contracts().items() for line in _render_port(port, contracts))]) + "\n"


def _render_port(port: str, contracts: list[type[EngineContract]]) -> Iterator[str]:
    yield f"## {port}\n"
    provisions = [", ".join(filter(None, (one.tested_on, one.tested_with))) for one in contracts]
    missing_features = [", ".join(sorted(one.lacks)) or _NOT_TESTED for one in contracts]
    engines = [one.engine for one in contracts]
    yield from _render_table(("Engine", "Tested on", "Lacks"), zip(engines, provisions, missing_features, strict=True))
    yield from _render_table(
        ("Test", *engines),
        [(_to_sentence(test), *(_render_cell(one, test) for one in contracts)) for test in _list_tests(contracts)],
    )


def _render_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    names = list(head)
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _list_tests(contracts: list[type[EngineContract]]) -> list[FunctionType]:
    """Return the tests of the class that declares the port, in the order of its source."""
    base = next(one for one in contracts[0].__mro__ if "port" in vars(one))
    return [cast("FunctionType", value) for name, value in vars(base).items() if name.startswith("test_")]


def _to_sentence(test: FunctionType) -> str:
    return test.__name__.removeprefix("test_").replace("_", " ")


def _render_cell(contract: type[EngineContract], test: FunctionType) -> str:
    marks = cast("list[pytest.Mark]", getattr(test, "pytestmark", []))
    needed = {str(mark.args[0]) for mark in marks if mark.name == "needs"}
    return _NOT_TESTED if needed & {*contract.lacks, *contract.untested} else _SIGNS[contract.tested_on]


def main() -> int:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
