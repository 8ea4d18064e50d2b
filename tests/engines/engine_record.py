"""
A pytest plugin that records which contract test ran on which engine, and with what outcome.

`pytest --engine-record FILE` runs the tests of the contracts alone and writes their outcomes to FILE, beside those of earlier runs.
`make engine-table` does this for both halves of the suite. Every run prints what was tested where, and what was skipped and why.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FunctionType
from typing import cast

import pytest

from tests.engines.engine_contracts import EngineContract, HowTested

RECORD = Path(__file__).with_name("engine_record.json")
"""The record of the last `make engine-table`, from which docs/reference/engines.md is made."""

PASSED, FAILED = "passed", "failed"

_PROPERTY = "engine contract"


@dataclass
class EngineRecord:
    """
    The outcomes of the tests of one engine.

    Attributes:
        ran_on: The day of the run.
        tests: The outcome of each test of the contract: passed, failed, or the reason for which it was skipped.
    """

    port: str
    engine: str
    tested_on: str
    tested_with: str
    lacks: list[str]
    ran_on: str
    tests: dict[str, str] = field(default_factory=dict[str, str])


def load_record(path: Path = RECORD) -> list[EngineRecord]:
    """Return the engines of a record."""
    return [EngineRecord(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


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


def list_tests(contract: type[EngineContract]) -> list[FunctionType]:
    """Return the tests of the class that declares the port, in the order of its source."""
    base = next(one for one in contract.__mro__ if "port" in vars(one))
    return [cast("FunctionType", value) for name, value in vars(base).items() if name.startswith("test_")]


def list_needs(test: FunctionType) -> set[str]:
    """Return the features that a test needs."""
    marks = cast("list[pytest.Mark]", getattr(test, "pytestmark", []))
    return {str(mark.args[0]) for mark in marks if mark.name == "needs"}


def describe(contract: type[EngineContract], outcomes: dict[str, str]) -> EngineRecord:
    """Return the record of an engine whose tests had *outcomes*, by their names."""
    return EngineRecord(
        port=contract.port,
        engine=contract.engine,
        tested_on=contract.tested_on.value,
        tested_with=contract.tested_with,
        lacks=sorted(contract.lacks),
        ran_on=datetime.now(UTC).date().isoformat(),
        tests={test.__name__: outcomes[test.__name__] for test in list_tests(contract) if test.__name__ in outcomes},
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--engine-record`."""
    parser.addoption("--engine-record", type=Path, help="run the contract tests of engines alone, and record their outcomes in this file")


def pytest_configure(config: pytest.Config) -> None:
    """Collect the outcomes in the process that has the reports of all workers."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config.getoption("--engine-record")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of contracts, and leave the others out if they are recorded."""
    others = list[pytest.Item]()
    for item in items:
        contract = _find_contract(item)
        if contract is None:
            others.append(item)
        else:
            item.user_properties.append((_PROPERTY, [contract.port, contract.engine, cast("pytest.Function", item).originalname]))
    if config.getoption("--engine-record") and others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]


def _find_contract(item: pytest.Item) -> type[EngineContract] | None:
    """Return the contract class of a test that its port declares."""
    cls = item.cls if isinstance(item, pytest.Function) else None
    if cls is None or not issubclass(cls, EngineContract) or not cls.engine:
        return None
    base = next(one for one in cls.__mro__ if "port" in vars(one))
    return cls if cast("pytest.Function", item).originalname in vars(base) else None


class _Recorder:
    """Collects the outcomes of contract tests, writes them to *path* if it is given, and prints a summary."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._outcomes = dict[tuple[str, str], dict[str, str]]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a contract test. One with several parameters has passed if all of them have."""
        place = cast("tuple[str, str, str] | None", dict(report.user_properties).get(_PROPERTY))
        if place is None or (report.when != "call" and report.passed):
            return
        port, engine, test = place
        outcomes = self._outcomes.setdefault((port, engine), {})
        if report.skipped:
            outcomes.setdefault(test, _read_reason(report))
        elif report.failed or outcomes.get(test) != FAILED:
            outcomes[test] = FAILED if report.failed else PASSED

    def pytest_sessionfinish(self) -> None:
        """Write the record: the engines of this run instead of their earlier entries, beside the others."""
        if self._path is None:
            return
        contracts = {(one.port, one.engine): one for group in find_contracts().values() for one in group}
        earlier = load_record(self._path) if self._path.exists() else []
        records = {(record.port, record.engine): record for record in earlier}
        records |= {place: describe(contracts[place], outcomes) for place, outcomes in self._outcomes.items()}
        ordered = [asdict(records[place]) for place in contracts if place in records]
        self._path.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print for each engine how many of its tests passed, and why others were skipped."""
        if not self._outcomes:
            return
        terminalreporter.section("contracts of engines")
        for (port, engine), outcomes in sorted(self._outcomes.items()):
            terminalreporter.write_line(f"{port} {engine}: {_summarise(outcomes.values())}")
        recorded = {(record.port, record.engine): record.tests for record in load_record()} if RECORD.exists() else {}
        differing = [place for place, outcomes in self._outcomes.items() if not outcomes.items() <= recorded.get(place, {}).items()]
        if differing:
            names = ", ".join(f"{port} {engine}" for port, engine in sorted(differing))
            terminalreporter.write_line(f"These differ from docs/reference/engines.md, which `make engine-table` writes: {names}")


def _summarise(outcomes: Iterable[str]) -> str:
    counts = Counter(outcomes)
    main = [f"{counts[name]} {name}" for name in (PASSED, FAILED) if counts[name]]
    return ", ".join([*main, *(f"{count} skipped: {reason}" for reason, count in counts.items() if reason not in {PASSED, FAILED})])


def _read_reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
