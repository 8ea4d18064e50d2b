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
    """Return every test of the suite without importing it."""
    tests: list[Test] = []
    for path in sorted([*TESTS.rglob("test_*.py"), *TESTS.rglob("*_contract.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                docstring = ast.get_docstring(node) or ""
                where = f"{path.relative_to(TESTS.parent)}:{node.lineno}"
                tests.append(Test(where, node.name.replace("_", " "), docstring, parse_citations(docstring)))
    return tuple(tests)


def parse_citations(docstring: str) -> frozenset[str]:
    """Return the sections (`spec 4.3`) and decisions (`D-44`) that *docstring* cites; `D-42 to D-44` cites three."""
    decisions = {f"D-{number:02}" for first, last in _DECISION.findall(docstring) for number in range(int(first), int(last or first) + 1)}
    lists = [_STEP.sub("", _DECISION.sub("", citation)) for citation in _SPEC.findall(docstring)]
    # The list ends where a sentence begins: after a full stop, or with a word that no list contains.
    heads = [re.split(r"\.(?:\s|$)|\s(?!and\b|\(|\d)[A-Za-z]", citation)[0] for citation in lists]
    return frozenset(decisions | {f"spec {section}" for head in heads for section in _SECTION.findall(re.sub(r"\([^)]*\)", "", head))})


def is_proven(requirement: Requirement) -> bool:
    """Return whether a test cites the requirement."""
    sections = {requirement.section, requirement.alternative} - {""}
    return any(
        not sections.isdisjoint(test.citations) and requirement.word in f"{test.name} {test.docstring}".lower() for test in list_tests()
    )


def test_every_test_cites_its_source() -> None:
    """House 6, tests: a docstring cites a section, a decision or another source, or gives a reason of several words."""
    unsourced = [
        test.where
        for test in list_tests()
        if not (test.citations or _SOURCE.search(test.docstring) or len(test.docstring.split()) >= _REASON_WORDS)
    ]

    assert unsourced == []


def test_every_requirement_is_proven_or_has_a_reason() -> None:
    """House 5.8: a requirement has either a test or a reason why it has none."""
    unproven = [requirement.id for requirement in REQUIREMENTS if not requirement.untested and not is_proven(requirement)]
    excused = [requirement.id for requirement in REQUIREMENTS if requirement.untested and is_proven(requirement)]

    assert (unproven, excused) == ([], [])


def test_citations_exist() -> None:
    """House 5.8: tests cite only sections of the specification and decisions of docs/decisions.md."""
    existing = {f"spec {section}" for section in SECTIONS} | set(re.findall(r"D-\d\d", DECISIONS.read_text(encoding="utf-8")))
    unknown = {name: test.where for test in list_tests() for name in test.citations - existing}

    assert unknown == {}


def test_every_decision_is_a_requirement() -> None:
    """House 5.8: every decision of docs/decisions.md is a requirement."""
    decided = set(re.findall(r"^### (D-\d\d)", DECISIONS.read_text(encoding="utf-8"), re.MULTILINE))

    assert {requirement.section for requirement in REQUIREMENTS if requirement.section.startswith("D-")} == decided


def test_requirement_ids_are_unique() -> None:
    """House 5.8: each requirement has a unique id."""
    counts = Counter(requirement.id for requirement in REQUIREMENTS)

    assert [name for name, count in counts.items() if count > 1] == []


def test_citations_are_parsed() -> None:
    """House 5.8: the forms of citations in docstrings."""
    assert parse_citations("Spec 4.3 (recall): relevance first.") == {"spec 4.3"}
    assert parse_citations("Spec 5.2 rule 5, 5.3 step 5: 403, 2 kinds.") == {"spec 5.2", "spec 5.3"}
    assert parse_citations("Spec 3.2, 7: unknown keys.") == {"spec 3.2", "spec 7"}
    assert parse_citations("D-42 to D-44 and spec 2.5, D-50.") == {"D-42", "D-43", "D-44", "spec 2.5", "D-50"}
    assert parse_citations("Specified nowhere; 3 tries.") == frozenset()
