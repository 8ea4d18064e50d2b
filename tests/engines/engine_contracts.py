"""The base of the contracts of all ports: which engine a test class tests, how, and which tests need a feature that it may lack."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import ClassVar

import pytest


class HowTested(StrEnum):
    """A way in which the tests provide an engine."""

    IN_PROCESS = "in the process"
    """It is part of Rookery and needs no server."""

    REAL_SERVER = "real server"
    """A released server of the engine, which the tests start."""

    STAND_IN = "stand-in"
    """A service of the tests, or of another package, that speaks the protocol of the engine and checks what it receives."""


class EngineContract:
    """
    The base of each contract.

    Attributes:
        port: The port whose engines the contract tests; set by the contract.
        engine: The addresses of the engine, or its name. Without one, the class is not in the table of engines.
        tested_on: How the tests provide the engine.
        tested_with: The server, in words.
        lacks: The features that the engine declares as missing.
        untested: Parts of the contract that the engine may have but its test service cannot show.
    """

    port: ClassVar[str] = ""
    engine: ClassVar[str] = ""
    tested_on: ClassVar[HowTested] = HowTested.IN_PROCESS
    tested_with: ClassVar[str] = ""
    lacks: ClassVar[Collection[str]] = frozenset()
    untested: ClassVar[Collection[str]] = frozenset()

    @pytest.fixture(autouse=True)
    def skip_without_features(self, request: pytest.FixtureRequest) -> None:
        """Skip a test that needs what the engine lacks, or what its service cannot show."""
        for mark in request.node.iter_markers("needs"):
            feature = str(mark.args[0])
            if feature in self.lacks:
                pytest.skip(f"the engine lacks {feature!r}")
            if feature in self.untested:
                pytest.skip(f"the service of this test has no {feature!r}")


def needs(feature: str) -> pytest.MarkDecorator:
    """Return the mark of a contract test for engines with *feature*."""
    return pytest.mark.needs(feature)
