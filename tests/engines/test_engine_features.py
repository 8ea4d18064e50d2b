"""The documentation lists how each engine is tested, and what it lacks."""

from __future__ import annotations

from rookery.engines.texts.postgresql import PostgresTextIndex
from rookery.memory.ports import TextFeature
from tests.engines.engine_contracts import HowTested
from tests.engines.engine_record import PASSED, describe, find_contracts, list_needs, list_tests, load_record
from tests.engines.engine_table import PAGE, render


def test_the_page_of_engines_is_that_of_the_recorded_run() -> None:
    """The suite writes the table of engines, tests and how they are tested. `make engine-table` runs it and writes it again."""
    assert PAGE.read_text(encoding="utf-8") == render(load_record())


def test_the_recorded_run_has_each_engine_and_each_test_of_its_contract() -> None:
    """A new test, a renamed engine or another declaration needs a new run. What an engine does not lack has passed on it."""
    recorded = {(record.port, record.engine): record for record in load_record()}
    contracts = {(port, one.engine): one for port, group in find_contracts().items() for one in group}

    assert recorded.keys() == contracts.keys()
    for place, contract in contracts.items():
        record = recorded[place]
        expected = describe(contract, record.tests)
        assert list(record.tests) == [test.__name__ for test in list_tests(contract)], place
        assert (record.tested_on, record.tested_with, record.lacks) == (expected.tested_on, expected.tested_with, expected.lacks), place
        skippable = {test.__name__ for test in list_tests(contract) if list_needs(test) & {*contract.lacks, *contract.untested}}
        assert {test for test, outcome in record.tests.items() if outcome != PASSED} == skippable, place


def test_each_port_has_an_engine_that_is_tested_as_it_is() -> None:
    """A stand-in alone would test our idea of an engine."""
    contracts = find_contracts()

    assert {"TextIndex", "VectorIndex", "RateLimitCounter", "Embedder"} <= contracts.keys()
    assert all(any(one.tested_on is not HowTested.STAND_IN for one in contracts[port]) for port in ("TextIndex", "VectorIndex"))
    assert TextFeature.ERASURE in PostgresTextIndex.lacks
