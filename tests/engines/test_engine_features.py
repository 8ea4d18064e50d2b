"""The documentation lists how each engine is tested, and what it lacks."""

from __future__ import annotations

from rookery.engines.texts.postgresql import PostgresTextIndex
from rookery.memory.ports import TextFeature
from tests.engines.engine_contracts import HowTested
from tests.engines.engine_table import PAGE, find_contracts, render


def test_the_page_of_engines_agrees_with_the_contracts() -> None:
    """Issue 20: the suite writes the table of engines, tests and how they are tested. `make engine-table` writes it again."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_each_port_has_an_engine_that_is_tested_as_it_is() -> None:
    """A stand-in alone would test our idea of an engine."""
    contracts = find_contracts()

    assert {"TextIndex", "VectorIndex", "RateLimitCounter", "Embedder"} <= contracts.keys()
    assert all(any(one.tested_on is not HowTested.STAND_IN for one in contracts[port]) for port in ("TextIndex", "VectorIndex"))
    assert TextFeature.ERASURE in PostgresTextIndex.lacks
