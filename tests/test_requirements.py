"""Checks the tests against the requirements: every test names its source, and every requirement has a test."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS, SECTIONS, Requirement

TESTS = Path(__file__).resolve().parent
DECISIONS = TESTS.parent / "docs" / "decisions.md"

_DECISION = re.compile(r"D-(\d\d)(?: to D-(\d\d))?")
_SPEC = re.compile(r"\b[Ss]pec(?:ification)? (\d[^:;]*)")
_STEP = re.compile(r"\b(?:rule|step)s? \d(?:,? (?:and|to) \d)*")
_SECTION = re.compile(r"(?<![\w.-])\d(?:\.\d)?(?![\w-])")
_SOURCE = re.compile(r"\b(House|Issue|Notes?|RFC|SEP|JSON Schema)\b", re.IGNORECASE)
_REASON_WORDS = 3


@dataclass(frozen=True)
class Test:
    """A test: its location, its name as words, its docstring, and the sections and decisions that it cites."""

    __test__ = False
    where: str
    name: str
    docstring: str
    citations: frozenset[str]


@cache
def list_tests() -> tuple[Test, ...]:
    """Return every test of the suite, read without importing it."""
    found: list[Test] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                says = ast.get_docstring(node) or ""
                where = f"{path.relative_to(TESTS.parent)}:{node.lineno}"
                found.append(Test(where, node.name.replace("_", " "), says, parse_citations(says)))
    return tuple(found)


def parse_citations(says: str) -> frozenset[str]:
    """Return the sections (`spec 4.3`) and decisions (`D-44`) that a docstring names; `D-42 to D-44` names three."""
    decisions = {f"D-{number:02}" for first, last in _DECISION.findall(says) for number in range(int(first), int(last or first) + 1)}
    lists = [_STEP.sub("", _DECISION.sub("", each)) for each in _SPEC.findall(says)]
    # The list ends where a sentence begins: after a stop, or with a word that is not of a list.
    heads = [re.split(r"\.(?:\s|$)|\s(?!and\b|\(|\d)[A-Za-z]", each)[0] for each in lists]
    return frozenset(decisions | {f"spec {section}" for head in heads for section in _SECTION.findall(re.sub(r"\([^)]*\)", "", head))})


def is_proven(requirement: Requirement) -> bool:
    """Return whether a test cites the requirement."""
    named = {requirement.section, requirement.alternative} - {""}
    return any(
        not named.isdisjoint(test.citations) and requirement.word in f"{test.name} {test.docstring}".lower() for test in list_tests()
    )


def test_every_test_says_where_it_comes_from() -> None:
    """House 6, tests: a line of provenance, which is a section, a decision, a source of ours, or a reason in words."""
    silent = [
        test.where
        for test in list_tests()
        if not (test.citations or _SOURCE.search(test.docstring) or len(test.docstring.split()) >= _REASON_WORDS)
    ]

    assert silent == []


def test_every_requirement_is_proven_or_says_why_not() -> None:
    """House 5.8: no requirement without a test or a reason, and no reason where there is a test."""
    open_ones = [requirement.id for requirement in REQUIREMENTS if not requirement.untested and not is_proven(requirement)]
    excused = [requirement.id for requirement in REQUIREMENTS if requirement.untested and is_proven(requirement)]

    assert (open_ones, excused) == ([], [])


def test_what_tests_cite_exists() -> None:
    """House 5.8: no test names a section that the specification has not, or a decision that docs/decisions.md does not have."""
    known = {f"spec {section}" for section in SECTIONS} | set(re.findall(r"D-\d\d", DECISIONS.read_text(encoding="utf-8")))
    unknown = {name: test.where for test in list_tests() for name in test.citations - known}

    assert unknown == {}


def test_every_answered_decision_is_a_requirement() -> None:
    """House 5.8: every decision that docs/decisions.md answers is a requirement here."""
    answered = set(re.findall(r"^### (D-\d\d)", DECISIONS.read_text(encoding="utf-8"), re.MULTILINE))

    assert {requirement.section for requirement in REQUIREMENTS if requirement.section.startswith("D-")} == answered


def test_requirement_ids_are_unique() -> None:
    """House 5.8: each requirement has a unique id."""
    counted = Counter(requirement.id for requirement in REQUIREMENTS)

    assert [name for name, count in counted.items() if count > 1] == []


def test_citations_are_read_as_they_are_written() -> None:
    """House 5.8: the forms that docstrings use."""
    assert parse_citations("Spec 4.3 (recall): relevance first.") == {"spec 4.3"}
    assert parse_citations("Spec 5.2 rule 5, 5.3 step 5: 403, 2 kinds.") == {"spec 5.2", "spec 5.3"}
    assert parse_citations("Spec 3.2, 7: unknown keys.") == {"spec 3.2", "spec 7"}
    assert parse_citations("D-42 to D-44 and spec 2.5, D-50.") == {"D-42", "D-43", "D-44", "spec 2.5", "D-50"}
    assert parse_citations("Specified nowhere; 3 tries.") == frozenset()
