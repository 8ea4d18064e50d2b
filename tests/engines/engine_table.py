"""
Writes docs/reference/engines.md: which contract test ran on which engine, and how. `make engine-table` runs it.

The page is made from the outcomes that the runs of the tests have recorded (tests/engines/engine_record.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from tests.engines.engine_contracts import HowTested
from tests.engines.engine_record import FAILED, PASSED, EngineRecord, load_record
from tests.markdown_tables import render_table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "engines.md"

_SIGNS = {HowTested.IN_PROCESS.value: "●", HowTested.REAL_SERVER.value: "●", HowTested.STAND_IN.value: "◐"}
_SKIPPED = "–"

_HEAD = """# Engines and how they are tested

An engine is an implementation of a port, chosen by an address in the [settings](settings.md). One contract, a suite of tests, runs against
every engine of a port. This page is the result of a run of these suites: `make engine-table` runs them and writes it. The run was on
{days}.

| Sign | Meaning |
|---|---|
| ● | passed on the engine itself: in the process, or on a real server that the tests start |
| ◐ | passed on a stand-in, which speaks the protocol of the engine and checks each request |
| – | skipped; the reasons are below each table |

An engine declares what it lacks. Memory then works without it, as the port describes.
"""


def render(records: Iterable[EngineRecord]) -> str:
    """
    Return the page.

    Raises:
        ValueError: A test failed, or did not run.
    """
    engines = list(records)
    days = sorted({record.ran_on for record in engines})
    head = _HEAD.format(days=" and ".join(filter(None, (", ".join(days[:-1]), days[-1]))))
    return "\n".join([head, *(line for port, group in groupby(engines, _get_port) for line in _render_port(port, list(group)))]) + "\n"


def _get_port(record: EngineRecord) -> str:
    return record.port


def _render_port(port: str, records: list[EngineRecord]) -> Iterator[str]:
    yield f"## {port}\n"
    provisions = [", ".join(filter(None, (one.tested_on, one.tested_with))) for one in records]
    missing_features = [", ".join(one.lacks) or _SKIPPED for one in records]
    engines = [one.engine for one in records]
    counts = [f"{sum(outcome == PASSED for outcome in one.tests.values())} of {len(one.tests)}" for one in records]
    yield from render_table(("Engine", "Tested on", "Passed", "Lacks"), zip(engines, provisions, counts, missing_features, strict=True))
    tests = max((list(one.tests) for one in records), key=len)
    yield from render_table(("Test", *engines), [(_to_sentence(test), *(_render_cell(one, test) for one in records)) for test in tests])
    reasons = dict[str, list[str]]()
    for one in records:
        for reason in sorted({outcome for outcome in one.tests.values() if outcome != PASSED}):
            reasons.setdefault(reason, []).append(one.engine)
    for reason, names in reasons.items():
        yield f"Skipped on {', '.join(names)}: {reason}.\n"


def _to_sentence(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def _render_cell(record: EngineRecord, test: str) -> str:
    outcome = record.tests.get(test)
    if outcome is None or outcome == FAILED:
        msg = f"{test} has no outcome to publish on {record.engine} of {record.port}: {outcome or 'it did not run'}"
        raise ValueError(msg)
    return _SIGNS[record.tested_on] if outcome == PASSED else _SKIPPED


def main() -> int:
    """Write the page."""
    PAGE.write_text(render(load_record()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
